"""Every random draw of a batch, as arrays. `augment` carries a plan out and draws nothing.

A sample's numbers come from the stream of (seed, epoch, image index, repeat), see `streams`; slot k of the stream
always means the same thing, so switching one augmentation off leaves all other draws as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.hyp import Dialect, Hyp
from fastyolo_data.plan.geometry import Letterbox, invert, letterbox, mosaic9_layout, mosaic_layout, warp_matrix
from fastyolo_data.plan.order import EpochOrder
from fastyolo_data.plan.streams import MORE, SAMPLE, Streams

__all__ = ["AugmentPlan", "LetterboxPlan", "SamplePlanner"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# Slots of a sample's stream. Each layer (the picture, its mixup partner) takes LAYER slots.
GATE, CENTRE, PARTNER, PERSPECTIVE, ANGLE, SCALE, SHEAR, TRANSLATE, PLACES = 0, 1, 3, 6, 8, 9, 10, 12, 14
LAYER = 18
MIX_GATE, MIX_INDEX, HSV, FLIPUD, FLIPLR, BGR = (2 * LAYER + k for k in (0, 1, 2, 5, 6, 7))
BASE = 2 * LAYER + 8
# What came later has a stream of its own, so that the numbers above stay what they were. MORE_LAYER slots per layer:
# which kind of mosaic, the partners that only nine pictures need, and the key of what is pasted.
NINE, PARTNER9, PASTE = 0, 1, 6
MORE_LAYER = 7
SLOTS = BASE + 2 * MORE_LAYER


@dataclass(frozen=True)
class LetterboxPlan:
    """B samples without augmentation.

    Attributes:
        index: (B,) image of each sample.
        tile_hw: (B, 2) int64 size of the tile.
        out_hw: (height, width) of the batch image.
        box: places in the letterbox.
    """

    index: I64
    tile_hw: I64
    out_hw: tuple[int, int]
    box: Letterbox

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class AugmentPlan:
    """B augmented samples. Axis 1 of the layer arrays: the picture itself, and its mixup partner.

    Attributes:
        index: (B,) image of each sample.
        out_hw: (height, width) of the batch image.
        tiles: (B, 2, T) int64 image of each tile; T is 4, or 9 in dialects with mosaics of nine.
        until: (B, 2, T) int64 last sample number that may want each tile; sample numbers go on from epoch to epoch.
        counts: (B, 2) int64 tiles in use: 4 or 9 (mosaic), 1, or 0 (no such layer).
        tile_hw: (B, 2, T, 2) float64 size of each tile, before `resize_hw`.
        resize_hw: (B, 2) int64 size to which a lone tile is resized first (letterbox_first dialects), else 0.
        rects: (B, 2, T, 4) float64 visible x0 y0 x1 y1 of each tile on its canvas; of nine, later ones cover earlier.
        pads: (B, 2, T, 2) float64 x, y of each tile's origin on its canvas.
        label_pads: (B, 2, T, 2) float64 the same as the labels see it.
        label_hw: (B, 2, T, 2) float64 tile size as the labels see it.
        canvas: (B, 2, 2) float64 height, width.
        matrix, inverse: (B, 2, 3, 3) float64 canvas -> output pixels, and back.
        scale: (B, 2) float64 the zoom in `matrix`.
        ratio: (B,) float64 weight of the first layer under mixup, else 1.
        hsv: (B, 3) float64 signed gains.
        flipud, fliplr, bgr: (B,) bool.
        copy_paste: share of the objects that are pasted.
        paste_key: (B, 2) uint64 what the choice of those objects hangs on (augment/pasting.py).
        hsv_active: whether the colour step runs at all.
        projective: whether matrices may have a perspective part (hyp perspective is not 0).
    """

    index: I64
    out_hw: tuple[int, int]
    tiles: I64
    until: I64
    counts: I64
    tile_hw: F64
    resize_hw: I64
    rects: F64
    pads: F64
    label_pads: F64
    label_hw: F64
    canvas: F64
    matrix: F64
    inverse: F64
    scale: F64
    ratio: F64
    hsv: F64
    flipud: Bool
    fliplr: Bool
    bgr: Bool
    copy_paste: float
    paste_key: npt.NDArray[np.uint64]
    hsv_active: bool
    projective: bool

    def __len__(self) -> int:
        return len(self.index)

    @property
    def used(self) -> Bool:
        """(B, 2, T) which tiles are in use."""
        return np.arange(self.tiles.shape[-1]) < self.counts[..., None]


@dataclass(frozen=True)
class SamplePlanner:
    """Plans batches; holds only what does not change with the epoch.

    Attributes:
        tile_hw: (n, 2) int64 tile size of every image.
        imgsz: side of mosaic tiles and of square pictures.
        hyp, dialect: see hyp.py.
        seed: of the run.
        augment: plan augmentation; else plain letterboxes.
        mosaic: False switches mosaic and what hangs on it off, whatever hyp says (close_mosaic, rect).
        recent: number of recent positions that mosaic partners come from; 0: from the whole epoch ("uniform").
        shapes: (batches, 2) rect shapes, or None for square pictures.
    """

    tile_hw: I64
    imgsz: int
    hyp: Hyp
    dialect: Dialect
    seed: int
    augment: bool
    mosaic: bool
    recent: int
    shapes: I64 | None

    def plan(self, order: EpochOrder, epoch: int, start: int, stop: int) -> AugmentPlan | LetterboxPlan:
        """Plan the samples at positions start:stop of this rank's order (one batch).

        The same arguments always give the same plan.
        """
        out_hw = (self.imgsz, self.imgsz)
        if self.shapes is not None:
            h, w = self.shapes[order.batch_id[start]]
            out_hw = (int(h), int(w))
        index = order.mine[start:stop]
        if not self.augment:
            tile_hw = self.tile_hw[index]
            box = letterbox(tile_hw, np.array([out_hw]), scaleup=False, float_pads=self.dialect.float_pads)
            return LetterboxPlan(index, tile_hw, out_hw, box)
        return self._plan_augmented(order, epoch, start, stop, out_hw)

    def _draw(self, order: EpochOrder, epoch: int, start: int, stop: int) -> tuple[F64, F64]:
        """Uniform numbers (B, SLOTS) and mixup ratios (B,)."""
        streams = Streams(self.seed, epoch)
        u, beta = np.zeros((stop - start, SLOTS)), np.ones(stop - start)
        for row, position in enumerate(range(start, stop)):
            key, repeat = int(order.mine[position]), int(order.repeat[position])
            rng = streams.at(SAMPLE, key, repeat)
            rng.random(out=u[row, :BASE])
            if self.hyp.mixup > 0:
                beta[row] = rng.beta(self.dialect.mix_beta, self.dialect.mix_beta)
            if self.dialect.mosaic9 or self.hyp.copy_paste:
                streams.at(MORE, key, repeat).random(out=u[row, BASE:])
        return u, beta

    def _plan_augmented(
        self, order: EpochOrder, epoch: int, start: int, stop: int, out_hw: tuple[int, int]
    ) -> AugmentPlan:
        u, beta = self._draw(order, epoch, start, stop)
        index, n = order.mine[start:stop], stop - start
        layers, more = u[:, : 2 * LAYER].reshape(n, 2, LAYER), u[:, BASE:].reshape(n, 2, MORE_LAYER)
        mosaic = (layers[..., GATE] < self.hyp.mosaic) & self.mosaic
        mixup = (u[:, MIX_GATE] < self.hyp.mixup) & self.mosaic  # closing mosaic closes mixup too, in all stock code
        if not self.dialect.mixup_any:
            mixup &= mosaic[:, 0]
            mosaic[:, 1] = mosaic[:, 0]
        partners = layers[..., PARTNER : PARTNER + 3]
        if self.dialect.mosaic9:
            partners = np.concatenate((partners, more[..., PARTNER9 : PARTNER9 + 5]), -1)
        tiles, until = self._pick_tiles(order, start, partners, u[:, MIX_INDEX])
        counts = np.where(mosaic, np.where(more[..., NINE] < 1 - self.dialect.mosaic9, 4, 9), 1)
        counts[~mixup, 1] = 0
        if self.dialect.shuffle_tiles:
            places = np.argsort(layers[..., PLACES : PLACES + 4], -1)
            tiles = np.where(mosaic[..., None], np.take_along_axis(tiles, places, -1), tiles)
            until = np.where(mosaic[..., None], np.take_along_axis(until, places, -1), until)
        layout = self._layout(tiles, counts, layers, out_hw)
        hyp = self.hyp
        warp = self._warp(layers, layout["canvas"], out_hw)
        return AugmentPlan(
            index=index,
            out_hw=out_hw,
            tiles=tiles,
            until=until + epoch * len(order.mine),
            counts=counts,
            ratio=np.where(mixup, beta, 1.0),
            hsv=(2.0 * u[:, HSV : HSV + 3] - 1.0) * (hyp.hsv_h, hyp.hsv_s, hyp.hsv_v),
            flipud=u[:, FLIPUD] < hyp.flipud,
            fliplr=u[:, FLIPLR] < hyp.fliplr,
            bgr=u[:, BGR] < hyp.bgr,
            copy_paste=hyp.copy_paste,
            paste_key=(more[..., PASTE] * 2.0**53).astype(np.uint64),
            hsv_active=bool(self.dialect.colour_always or hyp.hsv_h or hyp.hsv_s or hyp.hsv_v),
            projective=bool(hyp.perspective),
            **layout,
            **warp,
        )

    def _pick_tiles(self, order: EpochOrder, start: int, partners: F64, mix_index: F64) -> tuple[I64, I64]:
        """Image of every tile, the sample's own first, then partners drawn from the pool; and how long each is wanted.

        Args:
            partners: (n, 2, T - 1) uniform numbers.
            mix_index: (n,) uniform numbers, for the mixup partner.

        Returns:
            (n, 2, T) images and (n, 2, T) last positions of this epoch that may want them.
        """
        n = len(partners)
        own = np.arange(start, start + n)
        if self.recent:
            # The pool of position p is the last `recent` positions, p included; at the start of an epoch, where fewer
            # have been, the first `recent` ones. Either way each image is decoded once.
            size = min(self.recent, len(order.mine))
            first, pool = np.maximum(own - size + 1, 0), order.mine
        else:
            size, first, pool = len(order.every), np.zeros(n, np.int64), order.every
        picks = np.concatenate((partners.reshape(n, -1), mix_index[:, None]), 1)
        positions = first[:, None] + (picks * size).astype(np.int64)
        images = pool[positions]
        if not self.recent:
            positions = np.broadcast_to(own[:, None], positions.shape)
        heads = np.stack((order.mine[start : start + n], images[:, -1]), 1)
        tiles = np.concatenate((heads[..., None], images[:, :-1].reshape(partners.shape)), -1)
        heads = np.stack((own, positions[:, -1]), 1)
        until = np.concatenate((heads[..., None], positions[:, :-1].reshape(partners.shape)), -1)
        return tiles, until + size - 1 if self.recent else until

    def _mosaics(self, tile_hw: I64, counts: I64, u: F64) -> tuple[F64, F64]:
        """Rects and pads of four tiles around a centre, or of nine, where there are nine; u (n, 2, 2) is for y, x."""
        s = self.imgsz
        half = -(-s // 2)
        rects, pads = np.zeros((*tile_hw.shape[:-1], 4)), np.zeros(tile_hw.shape)
        centre = (half + u * (2 * s - 2 * half)).astype(np.int64)
        rects[:, :, :4], pads[:, :, :4] = mosaic_layout(tile_hw[:, :, :4], centre, s)
        if self.dialect.mosaic9:
            nine = (counts == 9)[..., None, None]
            rects9, pads9 = mosaic9_layout(tile_hw, (u * s).astype(np.int64), s)
            rects, pads = np.where(nine, rects9, rects), np.where(nine, pads9, pads)
        return rects, pads

    def _layout(self, tiles: I64, counts: I64, layers: F64, out_hw: tuple[int, int]) -> dict[str, npt.NDArray]:
        """Where each tile lies on the canvas of its layer: in a mosaic, or the first one alone."""
        s, n = self.imgsz, len(tiles)
        tile_hw = self.tile_hw[tiles]
        rects, pads = self._mosaics(tile_hw, counts, layers[..., CENTRE : CENTRE + 2])
        label_pads, label_hw = pads.copy(), tile_hw.astype(np.float64)
        lone = tile_hw[:, :, 0].reshape(2 * n, 2)
        size, pad, label_pad, label, canvas = lone, np.zeros((2 * n, 2)), np.zeros((2 * n, 2)), lone, lone
        if self.dialect.letterbox_first:
            box = letterbox(lone, np.array([out_hw]), scaleup=True, float_pads=True)
            size, pad, label_pad = box.new_hw, np.stack((box.left, box.top), 1), box.pad
            label, canvas = lone * box.ratio[:, None], np.tile(out_hw, (2 * n, 1))
        resize = np.where((size != lone).any(1, keepdims=True), size, 0).reshape(n, 2, 2)[:, 0]
        alone = (counts <= 1)[..., None]

        def put(array: F64, value: npt.NDArray) -> None:
            array[:, :, 0] = np.where(alone, value.reshape(n, 2, -1), array[:, :, 0])

        put(rects, np.concatenate((pad, pad + size[:, ::-1]), 1))
        put(pads, pad)
        put(label_pads, label_pad)
        put(label_hw, label)
        return {
            "tile_hw": tile_hw.astype(np.float64),
            "resize_hw": np.where(alone[:, 0], resize, 0),
            "rects": rects,
            "pads": pads,
            "label_pads": label_pads,
            "label_hw": label_hw,
            "canvas": np.where(alone, canvas.reshape(n, 2, 2), 2.0 * s),
        }

    def _warp(self, layers: F64, canvas: F64, out_hw: tuple[int, int]) -> dict[str, F64]:
        """Warp matrix of every layer."""
        hyp = self.hyp
        n = len(layers)
        u = layers.reshape(2 * n, LAYER)
        low, high = hyp.scale_range(self.dialect.scale_extra)
        scale = low + (high - low) * u[:, SCALE]
        matrix = warp_matrix(
            canvas.reshape(2 * n, 2),
            np.tile(np.array(out_hw, np.float64), (2 * n, 1)),
            (2.0 * u[:, PERSPECTIVE : PERSPECTIVE + 2] - 1.0) * hyp.perspective,
            (2.0 * u[:, ANGLE] - 1.0) * hyp.degrees,
            scale,
            (2.0 * u[:, SHEAR : SHEAR + 2] - 1.0) * hyp.shear,
            0.5 + (2.0 * u[:, TRANSLATE : TRANSLATE + 2] - 1.0) * hyp.translate,
            self.dialect,
        )
        return {
            "matrix": matrix.reshape(n, 2, 3, 3),
            "inverse": invert(matrix).reshape(n, 2, 3, 3),
            "scale": scale.reshape(n, 2),
        }
