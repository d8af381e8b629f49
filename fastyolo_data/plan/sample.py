"""Every random draw of a batch, as arrays. `augment` carries a plan out and draws nothing.

The numbers behind them: `draws`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.hyp import Dialect, Hyp
from fastyolo_data.plan import draws
from fastyolo_data.plan.draws import draw_batch, layer_slots, more_slots
from fastyolo_data.plan.geometry import (
    Letterbox,
    cut_areas,
    invert,
    letterbox,
    mosaic9_layout,
    mosaic_layout,
    paste_spots,
    warp_matrix,
)
from fastyolo_data.plan.order import EpochOrder
from fastyolo_data.plan.streams import Streams

__all__ = ["AugmentPlan", "LetterboxPlan", "SamplePlanner"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


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
    """B augmented samples. Axis 1 of the layer arrays: L = 2, 6 or 14 roles, see draws.

    Attributes:
        index: (B,) image of each sample.
        out_hw: (height, width) of the batch image.
        tiles: (B, L, T) int64 image of each tile; T is 4, or 9 in dialects with mosaics of nine.
        until: (B, L, T) int64 last sample number that may want each tile; sample numbers go on from epoch to epoch.
        counts: (B, L) int64 tiles in use: 4 or 9 (mosaic), 1, or 0 (no such layer).
        tile_hw: (B, L, T, 2) float64 size of each tile, before `resize_hw`.
        resize_hw: (B, 2) int64 size to which a lone tile is resized first (letterbox_first dialects), else 0.
        rects: (B, L, T, 4) float64 visible x0 y0 x1 y1 of each tile on its canvas; of nine, later ones cover earlier.
        pads: (B, L, T, 2) float64 x, y of each tile's origin on its canvas.
        label_pads: (B, L, T, 2) float64 the same as the labels see it.
        label_hw: (B, L, T, 2) float64 tile size as the labels see it.
        canvas: (B, L, 2) float64 height, width.
        matrix, inverse: (B, L or 2, 3, 3) float64 canvas -> output pixels, and back; of layers that are warped.
        scale: (B, L or 2) float64 the zoom in `matrix`.
        ratio: (B,) float64 weight of the first layer under mixup, else 1.
        hsv: (B, 3) float64 signed gains.
        flipud, fliplr, bgr: (B,) bool.
        copy_paste: share of the objects that are pasted.
        paste_mirrored: they are mirror images from the same canvas; else copies from the layer three roles on.
        paste_key: (B, L) uint64 what the choice of those objects hangs on (augment/pasting.py).
        areas: (B, 3, 4) int64 x0 y0 x1 y1 of the rectangles that cutmix may replace; (B, 0, 4) without it.
        area_pick: (B,) float64 in [0, 1) which of the usable ones it takes.
        spots: (B, n, 4) int64 x0 y0 x1 y1 where paste_in may paste; n is 0 without it.
        spot_pick: (B, n) float64 in [0, 1) which object goes there.
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
    paste_mirrored: bool
    paste_key: npt.NDArray[np.uint64]
    areas: I64
    area_pick: F64
    spots: I64
    spot_pick: F64
    hsv_active: bool
    projective: bool

    def __len__(self) -> int:
        return len(self.index)

    @property
    def used(self) -> Bool:
        """(B, L, T) which tiles are in use."""
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
        pasting: False switches copy-paste off, whatever hyp says (close_mosaic, labels without polygons).
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
    pasting: bool = True

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

    @property
    def _copying(self) -> bool:
        """Whether objects are copied from other samples."""
        return self.dialect.after_warp and self.hyp.copy_paste_mode == "mixup" and self.hyp.copy_paste > 0

    @property
    def _roles(self) -> int:
        """Number of layers that are planned."""
        if self.dialect.paste_in and self.hyp.paste_in > 0:
            return draws.ROLES
        return draws.SOURCES if self._copying or (self.dialect.after_warp and self.hyp.cutmix > 0) else 2

    def _draw(self, order: EpochOrder, epoch: int, start: int, stop: int) -> tuple[F64, F64]:
        """Uniform numbers (B, SLOTS) and mixup ratios (B,)."""
        beta = self.dialect.mix_beta if self.hyp.mixup > 0 else None
        more = bool(self.dialect.mosaic9 or self.hyp.copy_paste or self._roles > 2)
        return draw_batch(order, start, stop, Streams(self.seed, epoch), beta, more)

    def _plan_augmented(
        self, order: EpochOrder, epoch: int, start: int, stop: int, out_hw: tuple[int, int]
    ) -> AugmentPlan:
        u, ratio = self._draw(order, epoch, start, stop)
        hyp, layers, more = self.hyp, layer_slots(u, self._roles), more_slots(u, self._roles)
        counts = self._counts(u, layers, more)
        partners = layers[..., draws.PARTNER : draws.PARTNER + 3]
        if self.dialect.mosaic9:
            partners = np.concatenate((partners, more[..., draws.PARTNER9 : draws.PARTNER9 + 5]), -1)
        heads = np.concatenate((u[:, draws.MIX_INDEX, None], u[:, draws.HEADS : draws.HEADS + self._roles - 2]), 1)
        tiles, until = self._pick_tiles(order, start, partners, heads)
        if self.dialect.shuffle_tiles:
            places, mosaic = np.argsort(layers[..., draws.PLACES : draws.PLACES + 4], -1), counts[..., None] > 1
            tiles = np.where(mosaic, np.take_along_axis(tiles, places, -1), tiles)
            until = np.where(mosaic, np.take_along_axis(until, places, -1), until)
        cuts = 3 if self._roles == draws.SOURCES else 0
        scales = draws.SPOT_SCALES if self._roles == draws.ROLES else ()
        spots = u[:, draws.SPOTS : draws.SPOTS + len(scales) * draws.SPOT].reshape(len(u), len(scales), draws.SPOT)
        layout = self._layout(tiles, counts, layers, out_hw)
        warped = 2 if self._roles == draws.ROLES else self._roles  # objects for paste_in come from canvases
        warp = self._warp(layers[:, :warped], layout["canvas"][:, :warped], out_hw)
        return AugmentPlan(
            index=order.mine[start:stop],
            out_hw=out_hw,
            tiles=tiles,
            until=until + epoch * len(order.mine),
            counts=counts,
            ratio=np.where(counts[:, 1] > 0, ratio, 1.0),
            hsv=(2.0 * u[:, draws.HSV : draws.HSV + 3] - 1.0) * (hyp.hsv_h, hyp.hsv_s, hyp.hsv_v),
            flipud=u[:, draws.FLIPUD] < hyp.flipud,
            fliplr=u[:, draws.FLIPLR] < hyp.fliplr,
            bgr=u[:, draws.BGR] < hyp.bgr,
            copy_paste=hyp.copy_paste if self.pasting else 0.0,
            paste_mirrored=not self._copying,
            paste_key=(more[..., draws.PASTE] * 2.0**53).astype(np.uint64),
            areas=cut_areas(u[:, draws.AREAS : draws.AREAS + 3 * cuts].reshape(len(u), cuts, 3), out_hw),
            area_pick=u[:, draws.AREA_PICK],
            spots=paste_spots(spots[..., :5], scales, out_hw),
            spot_pick=spots[..., 5].copy(),
            hsv_active=bool(self.dialect.colour_always or hyp.hsv_h or hyp.hsv_s or hyp.hsv_v),
            projective=bool(hyp.perspective),
            **layout,
            **warp,
        )

    def _counts(self, u: F64, layers: F64, more: F64) -> I64:
        """(B, roles) tiles of each layer; 0: no such layer."""
        hyp = self.hyp
        mosaic = (layers[..., draws.GATE] < hyp.mosaic) & self.mosaic
        used = np.zeros(mosaic.shape, bool)
        used[:, 0] = True
        # Closing mosaic closes these too, in all stock code.
        used[:, 1] = (u[:, draws.MIX_GATE] < hyp.mixup) & self.mosaic
        if not self.dialect.mixup_any:
            used[:, 1] &= mosaic[:, 0]
            mosaic[:, 1] = mosaic[:, 0]
        if self._roles == draws.SOURCES:
            used[:, 2] = (u[:, draws.CUT_GATE] < hyp.cutmix) & self.mosaic
            if self._copying and self.pasting:
                used[:, 3:] = used[:, :3] & (u[:, draws.COPY_GATE : draws.COPY_GATE + 3] < hyp.copy_paste)
        counts = np.where(mosaic, np.where(more[..., draws.NINE] < 1 - self.dialect.mosaic9, 4, 9), 1)
        counts[~used] = 0
        if self._roles == draws.ROLES:
            counts[(u[:, draws.PASTE_IN] < hyp.paste_in) & self.pasting, draws.SOURCES :] = 4
        return counts

    def _pick_tiles(self, order: EpochOrder, start: int, partners: F64, heads: F64) -> tuple[I64, I64]:
        """Image of every tile, and how long each is wanted.

        The first tile of the first layer is the sample's own image; the others are drawn from the pool.

        Args:
            partners: (n, L, T - 1) uniform numbers.
            heads: (n, L - 1) uniform numbers, for the first tile of the other layers.

        Returns:
            (n, L, T) images and (n, L, T) last positions of this epoch that may want them.
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
        picks = np.concatenate((np.zeros((n, 1)), heads), 1)[..., None]
        positions = first[:, None, None] + (np.concatenate((picks, partners), -1) * size).astype(np.int64)
        tiles = pool[positions]
        tiles[:, 0, 0] = order.mine[start : start + n]
        if not self.recent:
            return tiles, np.broadcast_to(own[:, None, None], tiles.shape).copy()
        positions[:, 0, 0] = own
        return tiles, positions + size - 1

    def _mosaics(self, tile_hw: I64, counts: I64, u: F64) -> tuple[F64, F64]:
        """Rects and pads of four tiles around a centre, or of nine, where there are nine; u (n, L, 2) is for y, x."""
        s = self.imgsz
        half = -(-s // 2)
        centre = (half + u * (2 * s - 2 * half)).astype(np.int64)
        rects4, pads4 = mosaic_layout(tile_hw[:, :, :4], centre, s)
        if not self.dialect.mosaic9:
            return rects4, pads4
        rects, pads = np.zeros((*tile_hw.shape[:-1], 4)), np.zeros(tile_hw.shape)
        rects[:, :, :4], pads[:, :, :4] = rects4, pads4
        nine = counts == 9
        rects[nine], pads[nine] = mosaic9_layout(tile_hw[nine], (u[nine] * s).astype(np.int64), s)
        return rects, pads

    def _layout(self, tiles: I64, counts: I64, layers: F64, out_hw: tuple[int, int]) -> dict[str, npt.NDArray]:
        """Where each tile lies on the canvas of its layer: in a mosaic, or the first one alone."""
        s, shape = self.imgsz, counts.shape
        tile_hw = self.tile_hw[tiles]
        rects, pads = self._mosaics(tile_hw, counts, layers[..., draws.CENTRE : draws.CENTRE + 2])
        label_pads, label_hw = pads.copy(), tile_hw.astype(np.float64)
        lone = tile_hw[:, :, 0].reshape(-1, 2)
        size, pad, label_pad, label, canvas = lone, np.zeros(lone.shape), np.zeros(lone.shape), lone, lone
        if self.dialect.letterbox_first:
            box = letterbox(lone, np.array([out_hw]), scaleup=True, float_pads=True)
            size, pad, label_pad = box.new_hw, np.stack((box.left, box.top), 1), box.pad
            label, canvas = lone * box.ratio[:, None], np.tile(out_hw, (len(lone), 1))
        resize = np.where((size != lone).any(1, keepdims=True), size, 0).reshape(*shape, 2)[:, 0]
        alone = (counts <= 1)[..., None]

        def put(array: F64, value: npt.NDArray) -> None:
            array[:, :, 0] = np.where(alone, value.reshape(*shape, -1), array[:, :, 0])

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
            "canvas": np.where(alone, canvas.reshape(*shape, 2), 2.0 * s),
        }

    def _warp(self, layers: F64, canvas: F64, out_hw: tuple[int, int]) -> dict[str, F64]:
        """Warp matrix of every layer."""
        hyp = self.hyp
        shape, u = layers.shape[:2], layers.reshape(-1, draws.LAYER)
        low, high = hyp.scale_range(self.dialect.scale_extra)
        scale = low + (high - low) * u[:, draws.SCALE]
        matrix = warp_matrix(
            canvas.reshape(-1, 2),
            np.tile(np.array(out_hw, np.float64), (len(u), 1)),
            (2.0 * u[:, draws.PERSPECTIVE : draws.PERSPECTIVE + 2] - 1.0) * hyp.perspective,
            (2.0 * u[:, draws.ANGLE] - 1.0) * hyp.degrees,
            scale,
            (2.0 * u[:, draws.SHEAR : draws.SHEAR + 2] - 1.0) * hyp.shear,
            0.5 + (2.0 * u[:, draws.TRANSLATE : draws.TRANSLATE + 2] - 1.0) * hyp.translate,
            self.dialect,
        )
        return {
            "matrix": matrix.reshape(*shape, 3, 3),
            "inverse": invert(matrix).reshape(*shape, 3, 3),
            "scale": scale.reshape(shape),
        }
