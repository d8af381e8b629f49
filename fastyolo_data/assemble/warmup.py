"""Compiling the kernels by making one tiny batch of each kind, so that no training batch waits for the compiler."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

import numpy as np

from fastyolo_data.assemble.batch import BatchJob
from fastyolo_data.assemble.buffers import BatchMemory
from fastyolo_data.augment import InstanceRules, Renderer, SampleContext, TilePool
from fastyolo_data.augment.cutmix import cut_in
from fastyolo_data.augment.instances import Instances
from fastyolo_data.datatypes import LabelTable, PackedStrings, U8Image
from fastyolo_data.hyp import Hyp, get_dialect
from fastyolo_data.plan import SamplePlanner, plan_order

__all__ = ["compile_kernels"]

LOGGER = logging.getLogger("fastyolo_data")
PATIENCE = 1.5  # seconds; loading compiled kernels from numba's cache takes less
SIDE = 32

_lock = threading.Lock()
_done: set[tuple[str, bool]] = set()


def compile_kernels(decode: Callable[[], object], tasks: Iterable[str], pasting: bool) -> float:
    """Compile the kernels that tasks need, or load them from numba's cache; at most once per process and task.

    Args:
        decode: runs the JPEG kernel once, on any bytes.
        tasks: "detect", "segment", "pose", "obb".
        pasting: also those of copy-paste and cutmix.

    Returns:
        Seconds that it took; 0 if it was done before.
    """
    with _lock:
        missing = [(t, paste) for t in tasks for paste in {False, pasting} if (t, paste) not in _done]
        if not missing:
            return 0.0
        began = time.perf_counter()
        notice = threading.Timer(
            PATIENCE,
            LOGGER.info,
            ["compiling kernels: some 20 seconds, once per installation (`fastyolo warmup` does it beforehand)"],
        )
        notice.daemon = True
        notice.start()
        try:
            decode()
            for task, paste in missing:
                if paste:
                    _make_batches(task, "ultralytics", Hyp(copy_paste=1.0))
                    _make_batches(task, "yolov5", Hyp(copy_paste=1.0))
                    _cut_square()
                else:
                    _make_batches(task, "ultralytics", Hyp(mixup=1.0))
                _done.add((task, paste))
        finally:
            notice.cancel()
        return time.perf_counter() - began


class _GreyStore:
    """Tiles of one colour; both store and reader."""

    name = "grey"

    def reader(self) -> _GreyStore:
        return self

    def tile(self, index: int) -> U8Image:
        return np.full((SIDE, SIDE, 3), 90, np.uint8)

    def close(self) -> None:
        """Nothing is held open."""


def _make_batches(task: str, name: str, hyp: Hyp) -> None:
    """Make an augmented batch, and a validation batch with the other form of masks."""
    n = 4
    table = _labels(n, task == "pose")
    dialect = get_dialect(name)
    order = plan_order(n, seed=0, epoch=0, shuffle=False, batch=n)
    tile_hw = table.hw.astype(np.int64)
    for augment in (True, False):
        rules = InstanceRules(dialect, task, np.arange(table.keypoints.shape[1]), 4, augment)
        context = SampleContext(table, _GreyStore(), TilePool(n, SIDE * SIDE), rules, False, SIDE)
        renderer, memory = Renderer(context), BatchMemory(False, 0)
        planner = SamplePlanner(tile_hw, SIDE, hyp, dialect, 0, augment, augment, 0, None)
        job = BatchJob(planner.plan(order, 0, 0, n), context, memory, None)
        for row in range(n):
            job.run(row, renderer)
        job.finish()


def _cut_square() -> None:
    """Crop an oriented box; whether cutmix does that is left to chance."""
    square = Instances.room(1, 4, 0)
    square.xyxy[:], square.offsets[:] = (0, 0, 2, 2), (0, 4)
    square.points[:] = (0, 0), (0, 2), (2, 2), (2, 0)
    cut_in(square.take([]), square, np.array([[0, 0, 1, 1]]), 0.0, oriented=True)


def _labels(n: int, pose: bool) -> LabelTable:
    """One square per image, as a polygon, or with a keypoint."""
    square = np.array([[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8]], np.float32)
    return LabelTable(
        im_files=PackedStrings.pack(["warm-up"] * n),
        hw=np.full((n, 2), SIDE, np.int32),
        file_size=np.zeros(n, np.int64),
        mtime_ns=np.zeros(n, np.int64),
        box_offsets=np.arange(n + 1),
        cls=np.zeros(n, np.float32),
        xywhn=np.full((n, 4), 0.5, np.float32),
        point_offsets=np.zeros(0, np.int64) if pose else 4 * np.arange(n + 1),
        points=np.tile(square, (0 if pose else n, 1)),
        keypoints=np.ones((n, 1, 3), np.float32) if pose else np.zeros((0, 0, 3), np.float32),
    )
