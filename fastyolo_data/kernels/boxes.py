"""Label kernels: boxes and polygons of a sample through mosaic, warp, clip, filter and flips.

Everything runs in float64 over the flat columns of a LabelTable; float32 appears only in the batch. The stock code
works in float32 (Ultralytics) or float64 (YOLOv5), so results agree within 1e-3 pixel.
"""

from __future__ import annotations

import numpy as np

from fastyolo_data.kernels._jit import inline, kernel
from fastyolo_data.kernels.polygons import (
    MIN_AREA_BOX,
    MIN_AREA_POLYGON,
    RESAMPLE,
    inside_bounds,
    is_candidate,
    project,
    resample,
    visible_bounds,
    warped_bounds,
)

__all__ = [
    "POLYGON_INSIDE",
    "POLYGON_VISIBLE",
    "augment_labels",
    "finish_boxes",
    "letterbox_boxes",
    "letterbox_labels",
    "warp_boxes",
]

# How a box follows from a warped polygon.
POLYGON_VISIBLE = 1  # Ultralytics: bounds of polygon and picture's intersection
POLYGON_INSIDE = 2  # YOLOv5/7/9: bounds of the resampled points that lie inside the picture


@inline
def _polygon_bounds(points, hw, pad, canvas, clip, m, out_hw, rule, work, dense, out):
    """Bounds of one warped polygon in the output picture."""
    count = points.shape[0]
    clipped = False
    for i in range(count):
        x, y = points[i, 0] * hw[1] + pad[0], points[i, 1] * hw[0] + pad[1]
        clipped = clipped or (clip and not (0.0 <= x <= canvas[1] and 0.0 <= y <= canvas[0]))
        if rule == POLYGON_INSIDE and clip:
            x, y = min(max(x, 0.0), canvas[1]), min(max(y, 0.0), canvas[0])
        work[i, 0], work[i, 1] = x, y
    # Between vertices a projective map keeps lines straight, so the visible bounds need no extra points - unless the
    # mosaic clipped the polygon: the stock code clips resampled points, and the clipped shape depends on them.
    if rule == POLYGON_INSIDE or clipped:
        n = resample(work, count, RESAMPLE, rule == POLYGON_VISIBLE, dense)
    else:
        n = count
        for i in range(n):
            dense[i] = work[i]
    for i in range(n):
        x, y = dense[i, 0], dense[i, 1]
        if clipped:
            x, y = min(max(x, 0.0), canvas[1]), min(max(y, 0.0), canvas[0])
        dense[i, 0], dense[i, 1] = project(m, x, y)
    if rule == POLYGON_VISIBLE:
        visible_bounds(dense, n, out_hw[1], out_hw[0], out)
    else:
        inside_bounds(dense, n, out_hw[1], out_hw[0], out)


@inline
def _has_polygon(indices, count, box_offsets, point_offsets):
    for t in range(count):
        lo, hi = box_offsets[indices[t]], box_offsets[indices[t] + 1]
        if len(point_offsets) > 0 and point_offsets[hi] > point_offsets[lo]:
            return True
    return False


@kernel
def warp_boxes(
    indices, count, hw, pads, columns, canvas, clip, m, scale, out_hw, rule, max_aspect, work, out_cls, out_xyxy, start
):
    """Move the labels of one layer's tiles onto the output picture and drop what is no longer usable.

    Boxes without area on the canvas are dropped in every dialect (yolov5 can keep them when the warp rotates).

    Args:
        indices: (T,) int64 image of each tile; the first `count` are used.
        hw: (T, 2) float64 tile height and width in pixels.
        pads: (T, 2) float64 x, y of each tile's origin on the canvas.
        columns: (box_offsets, cls, xywhn, point_offsets, points) of the LabelTable.
        canvas: (2,) float64 height, width; boxes and polygons are clipped to it when `clip` (mosaic).
        m: (3, 3) float64 canvas pixel -> output pixel.
        scale: the scale factor in m; areas are compared with the original times scale squared.
        out_hw: (2,) float64 output height and width.
        rule: POLYGON_VISIBLE or POLYGON_INSIDE.
        max_aspect: boxes with a side ratio of this or more are dropped.
        work: (2, k, 2) float64 scratch, k >= the longest polygon + 1001.
        out_cls, out_xyxy: (n,) and (n, 4) float64, filled from row `start`; n must hold all labels of the tiles.

    Returns:
        One past the last row written.
    """
    box_offsets, cls, xywhn, point_offsets, points = columns
    polygons = _has_polygon(indices, count, box_offsets, point_offsets)
    min_area = MIN_AREA_POLYGON if polygons else MIN_AREA_BOX
    out = start
    box = np.empty(4, np.float64)
    for t in range(count):
        h, w = hw[t, 0], hw[t, 1]
        for j in range(box_offsets[indices[t]], box_offsets[indices[t] + 1]):
            cx, cy = float(xywhn[j, 0]), float(xywhn[j, 1])
            hx, hy = float(xywhn[j, 2]) / 2.0, float(xywhn[j, 3]) / 2.0
            x0, x1 = (cx - hx) * w + pads[t, 0], (cx + hx) * w + pads[t, 0]
            y0, y1 = (cy - hy) * h + pads[t, 1], (cy + hy) * h + pads[t, 1]
            if clip:
                x0, x1 = min(max(x0, 0.0), canvas[1]), min(max(x1, 0.0), canvas[1])
                y0, y1 = min(max(y0, 0.0), canvas[0]), min(max(y1, 0.0), canvas[0])
            if x1 <= x0 or y1 <= y0:
                continue
            if polygons and point_offsets[j + 1] > point_offsets[j]:
                vertices = points[point_offsets[j] : point_offsets[j + 1]]
                _polygon_bounds(vertices, hw[t], pads[t], canvas, clip, m, out_hw, rule, work[0], work[1], box)
            else:
                warped_bounds(m, x0, y0, x1, y1, box)
            box[0], box[2] = min(max(box[0], 0.0), out_hw[1]), min(max(box[2], 0.0), out_hw[1])
            box[1], box[3] = min(max(box[1], 0.0), out_hw[0]), min(max(box[3], 0.0), out_hw[0])
            w1, h1 = (x1 - x0) * scale, (y1 - y0) * scale
            if is_candidate(w1, h1, box[2] - box[0], box[3] - box[1], min_area, max_aspect):
                out_cls[out] = cls[j]
                out_xyxy[out] = box
                out += 1
    return out


@kernel
def letterbox_boxes(index, hw, ratio, pad, columns, out_cls, out_xyxy, start):
    """Place the labels of one letterboxed image; nothing is clipped or dropped.

    Args:
        index: image.
        hw: (2,) height and width of the tile before the letterbox.
        ratio: resize factor of the letterbox.
        pad: (2,) float64 x, y of the image in the output.
        columns, out_cls, out_xyxy, start: as in warp_boxes.

    Returns:
        One past the last row written.
    """
    box_offsets, cls, xywhn, _, _ = columns
    out = start
    for j in range(box_offsets[index], box_offsets[index + 1]):
        hx, hy = float(xywhn[j, 2]) / 2.0, float(xywhn[j, 3]) / 2.0
        out_cls[out] = cls[j]
        out_xyxy[out, 0] = (xywhn[j, 0] - hx) * hw[1] * ratio + pad[0]
        out_xyxy[out, 1] = (xywhn[j, 1] - hy) * hw[0] * ratio + pad[1]
        out_xyxy[out, 2] = (xywhn[j, 0] + hx) * hw[1] * ratio + pad[0]
        out_xyxy[out, 3] = (xywhn[j, 1] + hy) * hw[0] * ratio + pad[1]
        out += 1
    return out


@kernel
def finish_boxes(xyxy, start, stop, out_hw, margin, flipud, fliplr):
    """Turn rows start:stop from pixel xyxy into normalised xywh, in place, flipped as the picture was.

    Args:
        xyxy: (n, 4) float64.
        out_hw: (2,) float64 output height and width.
        margin: boxes are first clipped to [0, side - margin]; negative: not clipped (Ultralytics).
    """
    h, w = out_hw[0], out_hw[1]
    for i in range(start, stop):
        x0, y0, x1, y1 = xyxy[i, 0], xyxy[i, 1], xyxy[i, 2], xyxy[i, 3]
        if margin >= 0.0:
            x0, x1 = min(max(x0, 0.0), w - margin), min(max(x1, 0.0), w - margin)
            y0, y1 = min(max(y0, 0.0), h - margin), min(max(y1, 0.0), h - margin)
        cx, cy = (x0 + x1) / 2.0 / w, (y0 + y1) / 2.0 / h
        xyxy[i, 0] = 1.0 - cx if fliplr else cx
        xyxy[i, 1] = 1.0 - cy if flipud else cy
        xyxy[i, 2] = (x1 - x0) / w
        xyxy[i, 3] = (y1 - y0) / h


@kernel
def augment_labels(
    tiles, counts, hw, pads, columns, canvas, matrices, scales, out_hw, rule, polygons_alone, max_aspect, margin,
    flipud, fliplr, work, out_idx, out_cls, out_xywhn,
):  # fmt: skip
    """Make the labels of a whole augmented batch, in sample order.

    One call for all samples, as each return to Python may have to wait for the GIL.

    Args:
        tiles, counts, hw, pads, canvas, matrices, scales: (B, 2, ...) of an AugmentPlan: tiles, counts, label_hw,
            label_pads, canvas, matrix, scale.
        columns, out_hw, rule, max_aspect, work: as in warp_boxes.
        polygons_alone: whether polygons steer boxes of samples without mosaic too.
        margin: as in finish_boxes.
        flipud, fliplr: (B,) bool.
        out_idx, out_cls, out_xywhn: (n,), (n,) and (n, 4) float64 with room for every label of every tile.

    Returns:
        Number of rows written.
    """
    box_offsets, cls, xywhn, point_offsets, points = columns
    plain = (box_offsets, cls, xywhn, point_offsets[:0], points)
    stop = 0
    for b in range(tiles.shape[0]):
        start = stop
        for k in range(tiles.shape[1]):
            if counts[b, k] == 0:
                break
            mosaic = counts[b, k] > 1
            stop = warp_boxes(
                tiles[b, k], counts[b, k], hw[b, k], pads[b, k], columns if mosaic or polygons_alone else plain,
                canvas[b, k], mosaic, matrices[b, k], scales[b, k], out_hw, rule, max_aspect, work, out_cls, out_xywhn,
                stop,
            )  # fmt: skip
        finish_boxes(out_xywhn, start, stop, out_hw, margin, flipud[b], fliplr[b])
        for i in range(start, stop):
            out_idx[i] = b
    return stop


@kernel
def letterbox_labels(indices, hw, ratios, pads, columns, out_hw, margin, out_idx, out_cls, out_xywhn):
    """Make the labels of a whole batch without augmentation, in sample order.

    Args:
        indices: (B,) int64 images; hw: (B, 2) int64 tile sizes; ratios: (B,); pads: (B, 2) x, y.
        columns, out_hw, margin, out_idx, out_cls, out_xywhn: as in augment_labels.

    Returns:
        Number of rows written.
    """
    stop = 0
    for b in range(indices.shape[0]):
        start = stop
        stop = letterbox_boxes(indices[b], hw[b], ratios[b], pads[b], columns, out_cls, out_xywhn, start)
        finish_boxes(out_xywhn, start, stop, out_hw, margin, False, False)
        for i in range(start, stop):
            out_idx[i] = b
    return stop
