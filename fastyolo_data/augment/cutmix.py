"""Cutmix: an area of a picture is replaced by that of another one, labels included."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.instances import Instances, concat
from fastyolo_data.kernels.paste import crop_oriented

__all__ = ["cut_in"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LEAST_BOX, LEAST_POLYGON = 0.1, 0.01  # share of a box that has to lie in the area; the latter where polygons are


def cut_in(
    labels: Instances, other: Instances, areas: I64, pick: float, oriented: bool
) -> tuple[Instances, tuple[int, int, int, int] | None]:
    """Choose an area that touches no label, and add the labels of the other picture that lie in it, cropped.

    Args:
        labels, other: in pixels of the output picture.
        areas: (n, 4) candidates, x0 y0 x1 y1.
        pick: in [0, 1), chooses among the usable ones.
        oriented: polygons are oriented boxes, which keep their direction when they are cropped.

    Returns:
        Labels and area; the labels as they were and None when no area is usable or nothing lies in it.

    Source: CutMix of ultralytics 8.4.190 (data/augment.py).
    """
    usable = areas[(_overlap(areas, labels.xyxy) <= 0).all(1)]
    if not len(usable):
        return labels, None
    area = usable[int(pick * len(usable))]
    box = other.xyxy
    share = _overlap(area[None], box)[0] / ((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) + 1e-7)
    chosen = np.flatnonzero(share >= (LEAST_POLYGON if labels.offsets[-1] else LEAST_BOX))
    if not len(chosen):
        return labels, None
    inside = _crop(other.take(chosen), area, oriented)
    x0, y0, x1, y1 = area.tolist()
    return concat([labels, inside]), (x0, y0, x1, y1)


def _overlap(areas: I64, boxes: F64) -> F64:
    """(n, m) pixels that n areas and m boxes have in common."""
    a, b = areas[:, None], boxes[None]
    w = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    h = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    return np.maximum(w, 0) * np.maximum(h, 0)


def _crop(instances: Instances, area: I64, oriented: bool) -> Instances:
    """Clip instances to an area; those without anything in it are dropped when they are oriented."""
    low, high = area[:2], area[2:]
    xyxy = instances.xyxy.copy()
    if oriented:
        longest = int(np.diff(instances.offsets).max(initial=0))
        points, lengths = np.empty((len(xyxy), longest + 4, 2)), np.empty(len(xyxy), np.int64)
        work = np.empty((3, 2 * longest + 8, 2))
        crop_oriented(instances.offsets, instances.points, area.astype(np.float64), work, xyxy, points, lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        flat = points[np.arange(longest + 4) < lengths[:, None]]
        whole = Instances(instances.cls, _clip_boxes(xyxy, low, high), offsets, flat, instances.keypoints)
        return whole.take(np.flatnonzero(lengths))
    keypoints = instances.keypoints.copy()
    outside = ((keypoints[..., :2] < low) | (keypoints[..., :2] > high)).any(-1)
    keypoints[..., 2][outside] = 0.0
    keypoints[..., :2] = np.clip(keypoints[..., :2], low, high)
    points = np.clip(instances.points, low, high)
    return Instances(instances.cls, _clip_boxes(xyxy, low, high), instances.offsets, points, keypoints)


def _clip_boxes(xyxy: F64, low: I64, high: I64) -> F64:
    return np.clip(xyxy, np.tile(low, 2), np.tile(high, 2))
