"""Carrying out plans: pixels into the batch image."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import cv2

from fastyolo_data.augment.instances import InstanceRules, letterbox
from fastyolo_data.augment.labels import read_only
from fastyolo_data.augment.masks import MaskMemory
from fastyolo_data.augment.pastein import insert_objects
from fastyolo_data.augment.pasting import NO_STEPS, PixelSteps, make_instances, may_paste
from fastyolo_data.augment.picture import PictureMaker
from fastyolo_data.augment.pool import PackedTile, TilePool
from fastyolo_data.augment.targets import Targets, make_targets
from fastyolo_data.datatypes import LabelTable, U8Image
from fastyolo_data.hyp import Dialect
from fastyolo_data.kernels.pack import pack_image
from fastyolo_data.plan import AugmentPlan, LetterboxPlan
from fastyolo_data.store import TileReader, TileStore

__all__ = ["Renderer", "SampleContext"]


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
        self._pictures = PictureMaker(context.dialect.additive_hue, context.exact, context.row_pixels)
        self._masks = MaskMemory()

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
            if boxes_only:
                return None
            return make_targets(letterbox(plan, row, table, rules), plan, row, rules, self._masks)
        if boxes_only and not may_paste(plan):
            self._augment(plan, row, NO_STEPS, dst)
            return None
        instances, steps = make_instances(plan, row, table, rules)
        self._augment(plan, row, steps, dst)
        return make_targets(instances, plan, row, rules, self._masks)

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

    def _augment(self, plan: AugmentPlan, row: int, steps: PixelSteps, dst: U8Image) -> None:
        pool = self._context.pool
        assert pool is not None, "augmentation needs a tile pool"
        counts, index, until = (a[row].tolist() for a in (plan.counts, plan.tiles, plan.until))
        held: list[int] = []

        def acquire(k: int, t: int) -> PackedTile:
            tile = pool.acquire(index[k][t], until[k][t], self._load)
            held.append(index[k][t])
            return tile

        try:
            layers = {k: [acquire(k, t) for t in range(counts[k])] for k in steps.layers(counts)}
            self._pictures.make(plan, row, layers, steps, dst)
            if steps.inserts:
                tiles = {place: acquire(*place) for place in {(i.layer, i.tile) for i in steps.inserts}}
                insert_objects(steps.inserts, tiles, plan, row, dst)
        finally:
            for index in held:
                pool.release(index)
