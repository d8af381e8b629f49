"""Pasted objects: how much of the labels they would cover, and oriented boxes cropped to the pasted area."""

from __future__ import annotations

from fastyolo_data.kernels._jit import inline, kernel
from fastyolo_data.kernels.oriented import clip_oriented

__all__ = ["LIMIT", "covered_share", "crop_oriented", "grow_selection"]

LIMIT = 0.3  # an object is not pasted where it would cover this share of a label (all stock code)
EPS = 1e-7


@inline
def _covered(x0, y0, x1, y1, box):
    """Share of `box` that lies under x0 y0 x1 y1."""
    w = min(x1, box[2]) - max(x0, box[0])
    h = min(y1, box[3]) - max(y0, box[1])
    if w <= 0.0 or h <= 0.0:
        return 0.0
    return w * h / ((box[2] - box[0]) * (box[3] - box[1]) + EPS)


@kernel
def covered_share(boxes, labels, out):
    """The largest share of any label that each box covers.

    Args:
        boxes: (n, 4) float64 xyxy.
        labels: (m, 4) float64 xyxy.
        out: (n,) float64, overwritten; 0 where there are no labels.

    Source: bbox_ioa of ultralytics 8.4.190 (utils/metrics.py), yolov5 7.0.14 and yolov9 (utils/metrics.py).
    """
    for i in range(boxes.shape[0]):
        most = 0.0
        for j in range(labels.shape[0]):
            most = max(most, _covered(boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3], labels[j]))
        out[i] = most


@kernel
def grow_selection(xyxy, tries, width, out):
    """Try objects one by one: the mirror image of each must spare all labels and the mirror images accepted before.

    Args:
        xyxy: (n, 4) float64 labels on the canvas.
        tries: (k,) int64 objects in the order in which they are tried.
        width: of the canvas.
        out: (k,) int64, receives the accepted ones.

    Returns:
        Number of accepted objects.

    Source: copy_paste of yolov5 7.0.14 (utils/augmentations.py) and yolov7 (utils/datasets.py).
    """
    n = 0
    for t in range(tries.shape[0]):
        box = xyxy[tries[t]]
        x0, y0, x1, y1 = width - box[2], box[1], width - box[0], box[3]
        most = 0.0
        for j in range(xyxy.shape[0]):
            most = max(most, _covered(x0, y0, x1, y1, xyxy[j]))
        for j in range(n):
            other = xyxy[out[j]]
            # Both are mirrored, so they meet as the originals do.
            most = max(most, _covered(box[0], y0, box[2], y1, other))
        if most < LIMIT:
            out[n] = tries[t]
            n += 1
    return n


@kernel
def crop_oriented(offsets, points, area, work, xyxy, out, lengths):
    """Crop oriented boxes to an area of the picture, keeping their direction.

    Args:
        offsets, points: as in Instances; not modified.
        area: (4,) float64 x0 y0 x1 y1.
        work: (3, k, 2) float64 scratch, k >= 2 * the longest polygon + 8.
        xyxy: (n, 4) float64, updated where a box crosses the border of the area.
        out: (n, m, 2) float64 points, m >= the longest polygon and 4.
        lengths: (n,) int64 points of each; 0 where nothing is visible.
    """
    for j in range(len(offsets) - 1):
        n, part = offsets[j + 1] - offsets[j], out[j]
        for i in range(n):
            part[i, 0], part[i, 1] = points[offsets[j] + i, 0] - area[0], points[offsets[j] + i, 1] - area[1]
        for c in range(4):
            xyxy[j, c] -= area[c % 2]
        lengths[j] = clip_oriented(part, n, area[2] - area[0], area[3] - area[1], work, xyxy[j])
        for i in range(lengths[j]):
            part[i, 0], part[i, 1] = part[i, 0] + area[0], part[i, 1] + area[1]
        for c in range(4):
            xyxy[j, c] += area[c % 2]
