"""The picture of one augmented sample: from the tiles of its layers to its place in the batch."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.compose import CanvasMemory, compose_canvas
from fastyolo_data.augment.exact import finish_exact, mix_pictures, warp_exact
from fastyolo_data.augment.pasting import PixelSteps
from fastyolo_data.augment.pool import PackedTile
from fastyolo_data.datatypes import U8Image
from fastyolo_data.kernels.warp import HUE_ADDITIVE, HUE_MULTIPLICATIVE, HUE_OFF, make_scratch, render_sample
from fastyolo_data.plan import AugmentPlan

__all__ = ["PictureMaker"]

MOSAIC = 4  # tiles of a layer that the kernel takes
_NO_TILE = np.zeros((1, 1), np.uint32)
_NO_GAINS = np.zeros(3)

Layers = dict[int, list[PackedTile]]
KernelArrays = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]


class PictureMaker:
    """Makes pictures; one per worker thread, owns its scratch memory.

    Args:
        additive_hue: hue formula of the dialect.
        exact: use the stock sequence of OpenCV calls instead of the fused kernel.
        row_pixels: the longest row of any tile, canvas or batch image, in pixels.
    """

    def __init__(self, additive_hue: bool, exact: bool, row_pixels: int) -> None:
        self._additive_hue = additive_hue
        self._exact = exact
        self._scratch = make_scratch(row_pixels, row_pixels)
        self._canvases = CanvasMemory()

    def make(self, plan: AugmentPlan, row: int, layers: Layers, steps: PixelSteps, dst: U8Image) -> None:
        """Make one picture.

        Args:
            layers: the tiles of every layer that is needed; only read.
            dst: (3, H, W) uint8, fully overwritten.
        """
        if plan.resize_hw[row, 0]:
            layers = {0: [_resize_packed(layers[0][0], plan.resize_hw[row])]}
        if steps.after_warp:
            self._finish(self._put_together(plan, row, layers, steps), plan, row, dst)
        elif self._exact:
            pictures = [self._warp(plan, row, k, tiles, steps) for k, tiles in layers.items()]
            self._finish(_mix(plan, row, pictures), plan, row, dst)
        else:
            self._render(plan, row, layers, steps, dst)

    def _render(self, plan: AugmentPlan, row: int, layers: Layers, steps: PixelSteps, dst: U8Image) -> None:
        """The fused way: everything in one kernel call."""
        both = [layers[0], layers.get(1, [])]
        rects, pads, counts = plan.rects[row], plan.pads[row], plan.counts[row]
        if rects.shape[1] > MOSAIC or steps.canvas or len(counts) > 2:
            rects, pads, counts = self._kernel_arrays(plan, row, (0, 1), both, steps)
        render_sample(
            dst,
            _four(both[0]),
            _four(both[1]),
            rects,
            pads,
            counts,
            plan.inverse[row],
            plan.ratio[row],
            self._hue(plan),
            plan.hsv[row],
            plan.flipud[row],
            plan.fliplr[row],
            plan.bgr[row],
            self._scratch,
        )

    def _hue(self, plan: AugmentPlan) -> int:
        if not plan.hsv_active:
            return HUE_OFF
        return HUE_ADDITIVE if self._additive_hue else HUE_MULTIPLICATIVE

    def _kernel_arrays(
        self, plan: AugmentPlan, row: int, roles: Sequence[int], layers: list[list[PackedTile]], steps: PixelSteps
    ) -> KernelArrays:
        """Put a canvas in place of the tiles of every layer that needs one.

        Args:
            roles: one or two layers; `layers` has their tiles, and is changed.

        Returns:
            rects (2, 4, 4), pads (2, 4, 2) and counts (2,) for the kernel.
        """
        rects, pads, counts = np.zeros((2, MOSAIC, 4)), np.zeros((2, MOSAIC, 2)), np.zeros(2, np.int64)
        for i, k in enumerate(roles):
            if len(layers[i]) > MOSAIC or k in steps.canvas:
                canvas = compose_canvas(plan, row, k, layers[i], steps.canvas.get(k), self._canvases)
                layers[i] = [canvas]
                rects[i, 0] = 0, 0, canvas.shape[1], canvas.shape[0]
            else:
                rects[i], pads[i] = plan.rects[row, k, :MOSAIC], plan.pads[row, k, :MOSAIC]
            counts[i] = len(layers[i])
        return rects, pads, counts

    def _put_together(self, plan: AugmentPlan, row: int, layers: Layers, steps: PixelSteps) -> U8Image:
        """Warped pictures with what is copied between them, as (H, W, 3) BGR."""
        pictures = {k: self._warp(plan, row, k, tiles, steps) for k, tiles in layers.items()}
        for k, outlines in steps.copies.items():
            mask = np.zeros(plan.out_hw, np.uint8)
            for outline in outlines:
                cv2.drawContours(mask, [outline], -1, 1, cv2.FILLED)
            cv2.copyTo(pictures[k + 3], mask, pictures[k])
        im = _mix(plan, row, [pictures[k] for k in (0, 1) if k in pictures])
        if steps.area is not None:
            x0, y0, x1, y1 = steps.area
            im[y0:y1, x0:x1] = pictures[2][y0:y1, x0:x1]
        return im

    def _warp(self, plan: AugmentPlan, row: int, k: int, tiles: list[PackedTile], steps: PixelSteps) -> U8Image:
        """One layer on the output picture, (H, W, 3) BGR."""
        one = [tiles]
        rects, pads, counts = self._kernel_arrays(plan, row, (k,), one, steps)
        if self._exact:
            return warp_exact(plan, row, k, [_unpack(tile) for tile in one[0]])
        planes = np.empty((3, *plan.out_hw), np.uint8)
        inverse = np.stack((plan.inverse[row, k], np.eye(3)))
        self._render_plain(planes, _four(one[0]), rects, pads, counts, inverse)
        return cv2.merge(list(planes))

    def _render_plain(
        self,
        planes: U8Image,
        tiles: tuple[PackedTile, ...],
        rects: npt.NDArray[np.float64],
        pads: npt.NDArray[np.float64],
        counts: npt.NDArray[np.int64],
        inverse: npt.NDArray[np.float64],
    ) -> None:
        """A layer as it is, in BGR planes."""
        none, no = _four([]), np.False_
        render_sample(
            planes, tiles, none, rects, pads, counts, inverse, np.float64(1), HUE_OFF, _NO_GAINS, no, no, np.True_,
            self._scratch,
        )  # fmt: skip

    def _finish(self, im: U8Image, plan: AugmentPlan, row: int, dst: U8Image) -> None:
        """Colour step, flips and channel order of a picture (H, W, 3) BGR."""
        if self._exact:
            dst[...] = finish_exact(im, plan, row, self._additive_hue)
            return
        h, w = plan.out_hw
        rects, pads, counts = np.zeros((2, MOSAIC, 4)), np.zeros((2, MOSAIC, 2)), np.array([1, 0])
        rects[0, 0] = 0, 0, w, h
        tile = cv2.cvtColor(im, cv2.COLOR_BGR2BGRA).view(np.uint32)[..., 0]
        render_sample(
            dst,
            _four([tile]),
            _four([]),
            rects,
            pads,
            counts,
            np.stack((np.eye(3), np.eye(3))),
            np.float64(1),
            self._hue(plan),
            plan.hsv[row],
            plan.flipud[row],
            plan.fliplr[row],
            plan.bgr[row],
            self._scratch,
        )


def _mix(plan: AugmentPlan, row: int, pictures: Sequence[U8Image]) -> U8Image:
    return pictures[0] if len(pictures) == 1 else mix_pictures(*pictures, float(plan.ratio[row]))


def _four(tiles: list[PackedTile]) -> tuple[PackedTile, ...]:
    return (*tiles, *[_NO_TILE] * (MOSAIC - len(tiles)))


def _unpack(tile: PackedTile) -> U8Image:
    h, w = tile.shape
    return cv2.cvtColor(tile.view(np.uint8).reshape(h, w, 4), cv2.COLOR_BGRA2BGR)


def _resize_packed(tile: PackedTile, hw: npt.NDArray[np.int64]) -> PackedTile:
    """Resize as the stock letterbox does; OpenCV treats channels alike, so the fourth does not matter."""
    h, w = tile.shape
    size = (int(hw[1]), int(hw[0]))
    out = cv2.resize(tile.view(np.uint8).reshape(h, w, 4), size, interpolation=cv2.INTER_LINEAR)
    return out.view(np.uint32)[..., 0]
