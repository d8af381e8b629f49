"""Which objects may be pasted: by how much of the labels they would cover."""

from __future__ import annotations

from fastyolo_data.kernels._jit import inline, kernel

__all__ = ["LIMIT", "covered_share", "grow_selection"]

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
