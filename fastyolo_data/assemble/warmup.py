"""Compiling the kernels by making one tiny batch of each kind, so that no training batch waits for the compiler."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import numpy as np

from fastyolo_data.assemble.batch import BatchJob
from fastyolo_data.assemble.buffers import BatchMemory
from fastyolo_data.augment import Renderer, SampleContext, TilePool
from fastyolo_data.datatypes import LabelTable, PackedStrings, U8Image
from fastyolo_data.hyp import Hyp, get_dialect
from fastyolo_data.plan import SamplePlanner, plan_order

__all__ = ["compile_kernels"]

LOGGER = logging.getLogger("fastyolo_data")
PATIENCE = 1.5  # seconds; loading compiled kernels from numba's cache takes less
SIDE = 32

_lock = threading.Lock()
_done = False


def compile_kernels(decode: Callable[[], object]) -> float:
    """Compile every kernel, or load it from numba's cache; at most once per process.

    Args:
        decode: runs the JPEG kernel once, on any bytes.

    Returns:
        Seconds that it took; 0 if it was done before.
    """
    global _done
    with _lock:
        if _done:
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
            _make_batches()
            _done = True
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


def _make_batches() -> None:
    """Make an augmented batch with polygons and mixup, and a validation batch."""
    n = 4
    hw = np.full((n, 2), SIDE, np.int32)
    square = np.array([[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8]], np.float32)
    table = LabelTable(
        im_files=PackedStrings.pack(["warm-up"] * n),
        hw=hw,
        file_size=np.zeros(n, np.int64),
        mtime_ns=np.zeros(n, np.int64),
        box_offsets=np.arange(n + 1),
        cls=np.zeros(n, np.float32),
        xywhn=np.full((n, 4), 0.5, np.float32),
        point_offsets=4 * np.arange(n + 1),
        points=np.tile(square, (n, 1)),
        keypoints=np.zeros((0, 0, 3), np.float32),
    )
    dialect = get_dialect("ultralytics")
    context = SampleContext(table, _GreyStore(), TilePool(n, SIDE * SIDE), dialect, False, SIDE)
    renderer, memory = Renderer(context), BatchMemory(False, 0)
    order = plan_order(n, seed=0, epoch=0, shuffle=False, batch=n)
    for augment in (True, False):
        planner = SamplePlanner(hw.astype(np.int64), SIDE, Hyp(mixup=1.0), dialect, 0, augment, augment, 0, None)
        job = BatchJob(planner.plan(order, 0, 0, n), context, memory, None)
        for row in range(n):
            job.run(row, renderer)
        job.finish()
