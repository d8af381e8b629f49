"""What label rows mean: the rules of a task, and rows of numbers spread over columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import F32Array
from fastyolo_data.labels.columns import Columns

__all__ = ["BOTTOM", "TOP", "LabelRules", "float32", "gather_rows"]

# 1 % of tolerance on both sides, as in ultralytics 8.4.190, data/utils.py, verify_image_label
TOP = np.float32(1.01)
BOTTOM = np.float32(-0.01)


@dataclass(frozen=True)
class LabelRules:
    """What rows have to look like.

    Attributes:
        task: "detect", "segment", "pose" or "obb".
        nc: number of classes; 0 when any index is allowed.
        kpt_shape: (K, D) of the data set, else None.
    """

    task: str = "detect"
    nc: int = 0
    kpt_shape: tuple[int, int] | None = None

    @property
    def nkpt(self) -> int:
        """Keypoints per box in the result."""
        return self.kpt_shape[0] if self.task == "pose" and self.kpt_shape else 0

    @property
    def pose_width(self) -> int:
        """Numbers in a row with keypoints, 0 when the data set has none."""
        return 5 + self.kpt_shape[0] * self.kpt_shape[1] if self.kpt_shape else 0


def float32(values: Sequence[float]) -> F32Array:
    """Round to float32; what is too large becomes inf, which the checks reject."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def gather_rows(
    values: F32Array,
    starts: npt.NDArray[np.int64],
    width: npt.NDArray[np.int64],
    poly: npt.NDArray[np.bool_],
    counts: npt.NDArray[np.int32],
    rules: LabelRules,
) -> tuple[Columns, F32Array]:
    """Spread a flat list of rows over columns.

    Returns:
        The columns, and per row all numbers that rules limit: (m, 4) boxes, or (m, 4 + K * D) in a pose set.
    """
    m = len(starts)
    xywhn = np.empty((m, 4), np.float32)
    box_rows = np.flatnonzero(~poly)
    xywhn[box_rows] = values[starts[box_rows, None] + np.arange(1, 5)]
    npoints = np.zeros(m, np.int32)
    points = np.zeros((0, 2), np.float32)
    rows = np.flatnonzero(poly)
    if len(rows):
        is_vertex = np.ones(len(values), bool)
        is_vertex[starts] = False
        is_vertex[(starts[box_rows, None] + np.arange(5)).ravel()] = False
        points = values[is_vertex].reshape(-1, 2)
        npoints[rows] = (width[rows] - 1) // 2
        first = np.cumsum(npoints[rows]) - npoints[rows]
        xywhn[rows] = _polygon_boxes(points, first)
    keypoints = np.zeros((0, 0, 3), np.float32)
    limited = xywhn
    if rules.nkpt:
        limited = values.reshape(m, -1)[:, 1:]
        keypoints = _keypoints(limited[:, 4:], rules)
    return Columns(counts, values[starts], xywhn, npoints, points, keypoints), limited


def _polygon_boxes(points: F32Array, first: npt.NDArray[np.integer]) -> F32Array:
    """Return the (p, 4) xywh extents of polygons that start at `first` in (k, 2) points."""
    lo, hi = np.minimum.reduceat(points, first), np.maximum.reduceat(points, first)
    return np.concatenate(((lo + hi) / 2, hi - lo), 1)


def _keypoints(flat: F32Array, rules: LabelRules) -> F32Array:
    """Return (m, K, 3) keypoints of (m, K * D) numbers; without visibility, 1 where neither x nor y is negative."""
    k, d = rules.kpt_shape or (0, 0)
    out = np.ones((len(flat), k, 3), np.float32)
    out[..., :d] = flat.reshape(-1, k, d)
    if d == 2:
        out[..., 2] = (out[..., 0] >= 0) & (out[..., 1] >= 0)
    return out
