"""Labels of many files as flat arrays: what parsing yields, the cache stores and the LabelTable is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import F32Array

__all__ = ["Columns", "expand", "offsets_of"]

I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """Labels of n files, m boxes and k polygon vertices.

    Attributes:
        counts: (n,) int32 boxes per file.
        cls: (m,) float32.
        xywhn: (m, 4) float32.
        npoints: (m,) int32 polygon vertices per box, 0 without polygon.
        points: (k, 2) float32.
        keypoints: (m, K, 3) float32, or (0, 0, 3) when the task has none.
    """

    counts: I32Array
    cls: F32Array
    xywhn: F32Array
    npoints: I32Array
    points: F32Array
    keypoints: F32Array

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def empty(cls, n: int, nkpt: int = 0) -> Columns:
        """Return n files without boxes; nkpt keypoints a box, 0 for tasks without."""
        f = np.float32
        return cls(
            np.zeros(n, np.int32),
            np.zeros(0, f),
            np.zeros((0, 4), f),
            np.zeros(0, np.int32),
            np.zeros((0, 2), f),
            np.zeros((0, nkpt, 3), f),
        )

    @classmethod
    def concat(cls, parts: Sequence[Columns]) -> Columns:
        """Join the files of several tables; all must have the same number of keypoints."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([p.counts for p in parts]),
            np.concatenate([p.cls for p in parts]),
            np.concatenate([p.xywhn for p in parts]),
            np.concatenate([p.npoints for p in parts]),
            np.concatenate([p.points for p in parts]),
            np.concatenate([p.keypoints for p in parts]),
        )

    def take(self, idx: npt.ArrayLike) -> Columns:
        """Return the files at idx, in that order; repeats are allowed."""
        idx = np.asarray(idx, np.int64)
        if len(idx) == len(self) and np.array_equal(idx, np.arange(len(self))):
            return self
        rows = expand(offsets_of(self.counts), idx)
        return self._rows(rows, self.counts[idx])

    def keep(self, mask: npt.NDArray[np.bool_]) -> Columns:
        """Return the same files with only the boxes of the (m,) mask."""
        if mask.all():
            return self
        owner = np.repeat(np.arange(len(self)), self.counts)
        counts = np.bincount(owner[mask], minlength=len(self)).astype(np.int32)
        return self._rows(np.flatnonzero(mask), counts)

    def without_polygons(self) -> Columns:
        """Return the same boxes without their polygons."""
        return Columns(self.counts, self.cls, self.xywhn, np.zeros_like(self.npoints), self.points[:0], self.keypoints)

    def _rows(self, rows: I64Array, counts: I32Array) -> Columns:
        points = self.points[expand(offsets_of(self.npoints), rows)] if len(self.points) else self.points
        keypoints = self.keypoints[rows] if len(self.keypoints) else self.keypoints
        return Columns(counts, self.cls[rows], self.xywhn[rows], self.npoints[rows], points, keypoints)


def offsets_of(counts: npt.NDArray[np.integer]) -> I64Array:
    """Return (n + 1,) int64 start positions of consecutive runs."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def expand(offsets: I64Array, idx: I64Array) -> I64Array:
    """Return the positions of the ranges offsets[i]:offsets[i + 1] for i in idx, one after the other."""
    counts = offsets[idx + 1] - offsets[idx]
    new = offsets_of(counts)
    return np.arange(new[-1]) + np.repeat(offsets[idx] - new[:-1], counts)
