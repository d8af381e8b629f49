"""Masks of one sample."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.instances import Instances
from fastyolo_data.kernels.masks import draw_masks, merge_masks, stack_masks

__all__ = ["MaskMemory", "make_masks"]

I64 = npt.NDArray[np.int64]
Masks = tuple[npt.NDArray[np.uint8], I64, I64]  # pool, cells, areas; see draw_masks


class MaskMemory:
    """Scratch of one worker thread: fresh memory of this size would cost more page faults than drawing costs time."""

    def __init__(self) -> None:
        self.full = np.zeros((0, 0), np.uint8)
        self.vertices = np.empty((0, 2), np.int64)
        self.rows = np.empty((2, 0), np.int64)
        self.crossings = np.empty(0, np.int64)
        self.pool = np.empty(0, np.uint8)

    def fit(self, out_hw: tuple[int, int], longest: int, cells: int) -> None:
        """Make everything large enough for a picture, its longest polygon and the masks of all its instances."""
        if self.full.shape != out_hw:
            self.full = np.zeros(out_hw, np.uint8)
            self.rows = np.empty((2, out_hw[0] + 2), np.int64)
        if len(self.vertices) < longest:
            self.vertices = np.empty((longest, 2), np.int64)
        if len(self.crossings) < longest * out_hw[0]:
            self.crossings = np.empty(longest * out_hw[0], np.int64)
        if len(self.pool) < cells:
            self.pool = np.empty(cells, np.uint8)


def make_masks(
    instances: Instances, out_hw: tuple[int, int], ratio: int, overlap: bool, classes: bool, memory: MaskMemory
) -> tuple[I64 | None, npt.NDArray, npt.NDArray[np.float32]]:
    """Draw the polygons of at least one instance.

    Args:
        instances: on the output picture, in pixels.
        out_hw: height and width of the picture.
        ratio: how much smaller the masks are.
        overlap: one picture of instance numbers; else one picture per instance.
        classes: whether the picture of classes is wanted (Ultralytics' sem_masks).
        memory: scratch; nothing that is returned lies in it.

    Returns:
        Order in which the instances must be listed (largest first, under overlap), else None; masks (1, h, w) uint8 or,
        with more than 255 instances, int32, or (n, h, w) uint8; classes (h, w) float32, or (0, 0).
    """
    n, hw = len(instances), (out_hw[0] // ratio, out_hw[1] // ratio)
    exact = ratio == 1 or (ratio % 2 == 0 and out_hw[0] % ratio == 0 and out_hw[1] % ratio == 0)
    pool, cells, areas = _draw(instances, out_hw, ratio if exact else 1, memory)
    if not exact:
        pool, cells, areas = _resize(pool, cells, out_hw, hw)
    sem = np.zeros(hw if classes else (0, 0), np.float32)
    if not overlap:
        masks = np.zeros((n, *hw), np.uint8)
        least = np.full(hw if classes else (0, 0), np.iinfo(np.int64).max)
        stack_masks(instances.cls, areas, pool, cells, masks, least, sem)
        return None, masks, sem
    # As in the stock code: unsigned, so that -0 comes first, and by the same sort, which orders ties as it likes.
    order = np.argsort(-areas.astype(np.uint64))
    masks = np.zeros((1, *hw), np.int32 if n > 255 else np.uint8)
    merge_masks(order, instances.cls, pool, cells, masks[0], sem)
    return order, masks, sem


def _draw(instances: Instances, out_hw: tuple[int, int], ratio: int, memory: MaskMemory) -> Masks:
    n, (h, w) = len(instances), out_hw
    longest = int(np.diff(instances.offsets).max())
    memory.fit(out_hw, longest, n * (h // ratio) * (w // ratio))
    cells, areas = np.empty((n, 5), np.int64), np.empty(n, np.int64)
    draw_masks(
        instances.offsets,
        instances.points,
        ratio,
        memory.full,
        memory.vertices,
        memory.rows,
        memory.crossings,
        memory.pool,
        cells,
        areas,
    )
    return memory.pool, cells, areas


def _resize(pool: npt.NDArray[np.uint8], cells: I64, out_hw: tuple[int, int], hw: tuple[int, int]) -> Masks:
    """Shrink by a ratio that has no rule of its own: by the stock resize of each whole picture."""
    small = np.empty((len(cells), *hw), np.uint8)
    for k, (x0, y0, x1, y1, at) in enumerate(cells.tolist()):
        full = np.zeros(out_hw, np.uint8)
        full[y0:y1, x0:x1] = pool[at : at + (y1 - y0) * (x1 - x0)].reshape(y1 - y0, x1 - x0)
        cv2.resize(full, hw[::-1], dst=small[k])
    whole = np.zeros((len(cells), 5), np.int64)
    whole[:, 2:4], whole[:, 4] = hw[::-1], np.arange(len(cells)) * (hw[0] * hw[1])
    return small.reshape(-1), whole, small.sum((1, 2), np.int64)
