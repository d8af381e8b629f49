"""Carrying out plans: pixels into the batch image."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.compose import CanvasMemory, compose_canvas
from fastyolo_data.augment.exact import render_exact
from fastyolo_data.augment.instances import InstanceRules, letterbox
from fastyolo_data.augment.labels import read_only
from fastyolo_data.augment.pasting import CanvasPastes, make_instances, may_paste
from fastyolo_data.augment.pool import PackedTile, TilePool
from fastyolo_data.augment.targets import Targets, make_targets
from fastyolo_data.datatypes import LabelTable, U8Image
from fastyolo_data.hyp import Dialect
from fastyolo_data.kernels.pack import pack_image
from fastyolo_data.kernels.warp import HUE_ADDITIVE, HUE_MULTIPLICATIVE, HUE_OFF, make_scratch, render_sample
from fastyolo_data.plan import AugmentPlan, LetterboxPlan
from fastyolo_data.store import TileReader, TileStore

__all__ = ["Renderer", "SampleContext"]

MOSAIC = 4  # tiles of a layer that the kernel takes
_NO_TILE = np.zeros((1, 1), np.uint32)


class LoadTimer:
    """Counts tile loads and the seconds they took, over all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        """Count one load."""
        with self._lock:
            self.seconds += seconds
            self.count += 1


@dataclass(frozen=True)
class SampleContext:
    """What all workers share; nothing in it changes while they run.

    Attributes:
        table: labels.
        store: tiles.
        pool: tiles in use; None without augmentation.
        rules: of the dialect and the task.
        exact: use the stock sequence of OpenCV calls instead of the fused kernel.
        row_pixels: the longest row of any tile, canvas or batch image, in pixels.
        timer: what loading costs.
    """

    table: LabelTable
    store: TileStore
    pool: TilePool | None
    rules: InstanceRules
    exact: bool
    row_pixels: int
    timer: LoadTimer = field(default_factory=LoadTimer)

    @property
    def dialect(self) -> Dialect:
        """The dialect's rules."""
        return self.rules.dialect


class Renderer:
    """Makes samples; one per worker thread, owns its scratch memory."""

    def __init__(self, context: SampleContext) -> None:
        self._context = context
        self._reader: TileReader = context.store.reader()
        self._scratch = make_scratch(context.row_pixels, context.row_pixels)
        self._canvases = CanvasMemory()

    def run(self, plan: AugmentPlan | LetterboxPlan, row: int, dst: U8Image) -> Targets | None:
        """Make the picture of sample `row` of a plan, and its targets unless these are made for the whole batch.

        Args:
            dst: (3, H, W) uint8, the sample's place in the batch; fully overwritten.

        Returns:
            The sample's targets when there is more to them than boxes, or when the picture hangs on them (pasting),
            which is so for all samples of a plan or for none; else None: see make_labels.

        Raises:
            ImageDecodeError: one of its images cannot be read.
        """
        table, rules = self._context.table, self._context.rules
        boxes_only = rules.task == "detect"
        if isinstance(plan, LetterboxPlan):
            self._letterbox(plan, row, dst)
            return None if boxes_only else make_targets(letterbox(plan, row, table, rules), plan, row, rules)
        if boxes_only and not may_paste(plan, table):
            self._augment(plan, row, [], dst)
            return None
        instances, pastes = make_instances(plan, row, table, rules)
        self._augment(plan, row, pastes, dst)
        return make_targets(instances, plan, row, rules)

    def _load(self, index: int) -> U8Image:
        began = time.perf_counter()
        im = self._reader.tile(index)
        self._context.timer.add(time.perf_counter() - began)
        return im

    def _letterbox(self, plan: LetterboxPlan, row: int, dst: U8Image) -> None:
        index, box = int(plan.index[row]), plan.box
        im = self._load(index)
        h, w = int(box.new_hw[row, 0]), int(box.new_hw[row, 1])
        if im.shape[:2] != (h, w):
            im = cv2.resize(im, (w, h), interpolation=cv2.INTER_LINEAR)
        pack_image(read_only(im), dst, int(box.top[row]), int(box.left[row]), 114, False)

    def _augment(self, plan: AugmentPlan, row: int, pastes: Sequence[CanvasPastes | None], dst: U8Image) -> None:
        pool, used = self._context.pool, plan.used[row]
        assert pool is not None, "augmentation needs a tile pool"
        wanted = zip(plan.tiles[row][used].tolist(), plan.until[row][used].tolist(), strict=True)
        held: list[int] = []
        packed: list[PackedTile] = []
        try:
            for index, until in wanted:
                packed.append(pool.acquire(index, until, self._load))
                held.append(index)
            self._pixels(plan, row, packed, pastes, dst)
        finally:
            for index in held:
                pool.release(index)

    def _pixels(
        self,
        plan: AugmentPlan,
        row: int,
        packed: list[PackedTile],
        pastes: Sequence[CanvasPastes | None],
        dst: U8Image,
    ) -> None:
        if plan.resize_hw[row, 0]:
            packed = [_resize_packed(packed[0], plan.resize_hw[row])]
        first = int(plan.counts[row, 0])
        layers = [packed[:first], packed[first:]]
        rects, pads, counts = plan.rects[row], plan.pads[row], plan.counts[row]
        if rects.shape[1] > MOSAIC or any(pastes):
            rects, pads, counts = self._compose(plan, row, layers, pastes)
        if self._context.exact:
            images = [[_unpack(tile) for tile in layer] for layer in layers if layer]
            dst[...] = render_exact(plan, row, images, self._context.dialect.additive_hue)
            return
        hue = HUE_OFF
        if plan.hsv_active:
            hue = HUE_ADDITIVE if self._context.dialect.additive_hue else HUE_MULTIPLICATIVE
        render_sample(
            dst,
            (*layers[0], *[_NO_TILE] * (MOSAIC - len(layers[0]))),
            (*layers[1], *[_NO_TILE] * (MOSAIC - len(layers[1]))),
            rects,
            pads,
            counts,
            plan.inverse[row],
            plan.ratio[row],
            hue,
            plan.hsv[row],
            plan.flipud[row],
            plan.fliplr[row],
            plan.bgr[row],
            self._scratch,
        )

    def _compose(
        self,
        plan: AugmentPlan,
        row: int,
        layers: list[list[PackedTile]],
        pastes: Sequence[CanvasPastes | None],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Put a canvas in place of the tiles of every layer that needs one.

        Returns:
            rects (2, 4, 4), pads (2, 4, 2) and counts (2,) for the kernel.
        """
        rects, pads = plan.rects[row, :, :MOSAIC].copy(), plan.pads[row, :, :MOSAIC].copy()
        counts = plan.counts[row].copy()
        pastes = [*pastes, *[None] * (len(layers) - len(pastes))]
        for k in range(len(layers)):
            if counts[k] <= MOSAIC and pastes[k] is None:
                continue
            canvas = compose_canvas(plan, row, k, layers[k], pastes[k], self._canvases)
            layers[k] = [canvas]
            rects[k, 0], pads[k, 0], counts[k] = (0, 0, canvas.shape[1], canvas.shape[0]), 0.0, 1
        return rects, pads, counts


def _unpack(tile: PackedTile) -> U8Image:
    h, w = tile.shape
    return cv2.cvtColor(tile.view(np.uint8).reshape(h, w, 4), cv2.COLOR_BGRA2BGR)


def _resize_packed(tile: PackedTile, hw: npt.NDArray[np.int64]) -> PackedTile:
    """Resize as the stock letterbox does; OpenCV treats channels alike, so the fourth does not matter."""
    h, w = tile.shape
    size = (int(hw[1]), int(hw[0]))
    out = cv2.resize(tile.view(np.uint8).reshape(h, w, 4), size, interpolation=cv2.INTER_LINEAR)
    return out.view(np.uint32)[..., 0]
