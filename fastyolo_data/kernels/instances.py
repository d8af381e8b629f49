"""Label kernels with everything an instance has: box, polygon, keypoints; oriented boxes are polygons of four corners.

The detection path (boxes.py) makes a whole batch in one call; here each step of a sample is a kernel of its own, so
that pasting can happen on the canvas, before the warp, and on the finished picture. Boxes and keypoints are float64.
Polygons are rounded to float32 wherever the stock code stores them so, because masks truncate them to whole pixels.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64

from fastyolo_data.kernels._jit import inline, kernel
from fastyolo_data.kernels.boxes import finish_boxes
from fastyolo_data.kernels.oriented import clip_oriented, convex_hull, smallest_rectangle
from fastyolo_data.kernels.polygons import (
    MIN_AREA_BOX,
    MIN_AREA_POLYGON,
    inside_bounds,
    is_candidate,
    project,
    resample,
    visible_bounds,
    warped_bounds,
)

__all__ = ["finish_instances", "fit_oriented", "letterbox_instances", "place_instances", "warp_instances"]


@inline
def _clip(value, low, high):
    return min(max(value, low), high)


@inline
def _clip_box(box, width, height):
    box[0], box[2] = _clip(box[0], 0.0, width), _clip(box[2], 0.0, width)
    box[1], box[3] = _clip(box[1], 0.0, height), _clip(box[3], 0.0, height)


@inline
def _clip_points(points, n, width, height):
    for i in range(n):
        points[i, 0], points[i, 1] = _clip(points[i, 0], 0.0, width), _clip(points[i, 1], 0.0, height)


@inline
def _clip_keypoints(keypoints, width, height):
    """Keypoints outside become invisible and move to the border."""
    for i in range(keypoints.shape[0]):
        x, y = keypoints[i, 0], keypoints[i, 1]
        if x < 0.0 or y < 0.0 or x > width or y > height:
            keypoints[i, 2] = 0.0
        keypoints[i, 0], keypoints[i, 1] = _clip(x, 0.0, width), _clip(y, 0.0, height)


@inline
def _points_of(indices, count, box_offsets, point_offsets, total):
    """Points per polygon after resampling to `total`: more when a polygon of the layer has more already."""
    longest = 0
    if len(point_offsets) > 0:
        for t in range(count):
            for j in range(box_offsets[indices[t]], box_offsets[indices[t] + 1]):
                longest = max(longest, point_offsets[j + 1] - point_offsets[j])
    return longest + 1 if longest > total else total


@inline
def _place_polygon(vertices, hw, pad, total, work, out):
    """Resample (total > 0), scale and shift one polygon, rounding to float32 where the stock code does.

    Returns:
        Number of points written.
    """
    n = vertices.shape[0]
    for i in range(n):
        work[i, 0], work[i, 1] = vertices[i, 0], vertices[i, 1]
    if total > 0:
        n = resample(work, n, total, True, out)
    else:
        for i in range(n):
            out[i] = work[i]
    w, h, left, top = float32(hw[1]), float32(hw[0]), float32(pad[0]), float32(pad[1])
    for i in range(n):
        out[i, 0] = float64(float32(float32(float32(out[i, 0]) * w) + left))
        out[i, 1] = float64(float32(float32(float32(out[i, 1]) * h) + top))
    return n


@inline
def _scale_polygon(points, n, ratio, pad):
    """Scale and shift points[:n] in place, rounding to float32 where the stock letterbox does."""
    for i in range(n):
        points[i, 0] = float64(float32(float32(float32(points[i, 0]) * float32(ratio)) + float32(pad[0])))
        points[i, 1] = float64(float32(float32(float32(points[i, 1]) * float32(ratio)) + float32(pad[1])))


@inline
def _place_box(xywhn, hw, pad, box):
    hx, hy = float64(xywhn[2]) / 2.0, float64(xywhn[3]) / 2.0
    box[0], box[2] = (xywhn[0] - hx) * hw[1] + pad[0], (xywhn[0] + hx) * hw[1] + pad[0]
    box[1], box[3] = (xywhn[1] - hy) * hw[0] + pad[1], (xywhn[1] + hy) * hw[0] + pad[1]


@inline
def _place_keypoints(keypoints, hw, pad, out):
    for i in range(keypoints.shape[0]):
        out[i, 0] = keypoints[i, 0] * hw[1] + pad[0]
        out[i, 1] = keypoints[i, 1] * hw[0] + pad[1]
        out[i, 2] = keypoints[i, 2]


@kernel
def place_instances(
    indices, count, hw, pads, columns, canvas, clip, total, oriented, work, out_cls, out_xyxy, out_offsets, out_points,
    out_keypoints,
):  # fmt: skip
    """Place the labels of one layer's tiles on its canvas; those without area there are dropped.

    Args:
        indices: (4,) int64 image of each tile; the first `count` are used.
        hw: (4, 2) float64 tile height and width in pixels.
        pads: (4, 2) float64 x, y of each tile's origin on the canvas.
        columns: (box_offsets, cls, xywhn, point_offsets, points, keypoints) of the LabelTable.
        canvas: (2,) float64 height, width; everything is clipped to it when `clip` (mosaic).
        total: points that polygons are resampled to; 0 leaves them as they are.
        oriented: polygons are oriented boxes, which keep their direction when they are clipped.
        work: (3, k, 2) float64 scratch, k >= 2 * the longest polygon + 8.
        out_cls, out_xyxy, out_offsets, out_points, out_keypoints: as in Instances, with room for every label.

    Returns:
        Number of instances.

    Source: ultralytics 8.4.190 data/augment.py Mosaic, data/dataset.py update_labels_info; yolov5 7.0.14
    utils/segment/dataloaders.py load_mosaic.
    """
    box_offsets, cls, xywhn, point_offsets, points, keypoints = columns
    polygons = len(point_offsets) > 0
    if total > 0:
        total = _points_of(indices, count, box_offsets, point_offsets, total)
    n = stop = 0
    out_offsets[0] = 0
    for t in range(count):
        for j in range(box_offsets[indices[t]], box_offsets[indices[t] + 1]):
            box, length = out_xyxy[n], 0
            _place_box(xywhn[j], hw[t], pads[t], box)
            part = out_points[stop:]
            if polygons and point_offsets[j + 1] > point_offsets[j]:
                vertices = points[point_offsets[j] : point_offsets[j + 1]]
                length = _place_polygon(vertices, hw[t], pads[t], total, work[0], part)
            if len(keypoints) > 0:
                _place_keypoints(keypoints[j], hw[t], pads[t], out_keypoints[n])
            if clip:
                if oriented and length > 0:
                    length = clip_oriented(part, length, canvas[1], canvas[0], work, box)
                    if length == 0:
                        continue
                _clip_box(box, canvas[1], canvas[0])
                if not oriented:
                    _clip_points(part, length, canvas[1], canvas[0])
                if len(keypoints) > 0:
                    _clip_keypoints(out_keypoints[n], canvas[1], canvas[0])
            if box[2] <= box[0] or box[3] <= box[1]:
                continue
            out_cls[n] = cls[j]
            n, stop = n + 1, stop + length
            out_offsets[n] = stop
    return n


@inline
def _project_points(m, points, n):
    """Warp points[:n] in place; affine maps need no division."""
    if m[2, 0] != 0.0 or m[2, 1] != 0.0 or m[2, 2] != 1.0:
        for i in range(n):
            points[i, 0], points[i, 1] = project(m, points[i, 0], points[i, 1])
        return
    a, b, c, d, e, f = m[0, 0], m[0, 1], m[0, 2], m[1, 0], m[1, 1], m[1, 2]
    for i in range(n):
        x, y = points[i, 0], points[i, 1]
        points[i, 0], points[i, 1] = a * x + b * y + c, d * x + e * y + f


@inline
def _warp_polygon(src, m, out_hw, visible, total, oriented, work, out, box):
    """Warp one polygon, find its box, and clip it as the dialect does; returns its number of points, 0 if invisible."""
    n = src.shape[0]
    if total > 0:
        n = resample(src, n, total, False, out)
    else:
        for i in range(n):
            out[i] = src[i]
    _project_points(m, out, n)
    if not visible:
        inside_bounds(out, n, out_hw[1], out_hw[0], box)
        return n
    visible_bounds(out, n, out_hw[1], out_hw[0], box)
    if oriented:
        return clip_oriented(out, n, out_hw[1], out_hw[0], work, box)
    x0, y0, x1, y1 = box[0], box[1], box[2], box[3]
    for i in range(n):
        out[i, 0] = float64(float32(_clip(out[i, 0], x0, x1)))
        out[i, 1] = float64(float32(_clip(out[i, 1], y0, y1)))
    return n


@kernel
def warp_instances(
    cls, xyxy, offsets, points, keypoints, m, scale, out_hw, visible, total, oriented, max_aspect, work, out_cls,
    out_xyxy, out_offsets, out_points, out_keypoints,
):  # fmt: skip
    """Move instances from a canvas to the output picture and drop what is no longer usable.

    Args:
        cls, xyxy, offsets, points, keypoints: as in Instances; not modified.
        m: (3, 3) float64 canvas pixel -> output pixel; scale: the scale factor in it.
        out_hw: (2,) float64 output height and width.
        visible: a polygon's box is that of its visible part, and its points are clipped into it (Ultralytics); else
            the box is that of its points inside the picture, and its points stay (YOLOv5).
        total: points that polygons are first resampled to; 0 leaves them as they are.
        oriented, work: as in place_instances.
        max_aspect: boxes with a side ratio of this or more are dropped.
        out_cls, out_xyxy, out_offsets, out_points, out_keypoints: as in Instances, with room for every instance.

    Returns:
        Number of instances kept.

    Source: ultralytics 8.4.190 data/augment.py RandomPerspective; yolov5 7.0.14 utils/segment/augmentations.py.
    """
    min_area = MIN_AREA_POLYGON if offsets[-1] > 0 else MIN_AREA_BOX
    n = stop = 0
    out_offsets[0] = 0
    for j in range(len(cls)):
        x0, y0, x1, y1 = xyxy[j, 0], xyxy[j, 1], xyxy[j, 2], xyxy[j, 3]
        box, length = out_xyxy[n], 0
        if offsets[j + 1] > offsets[j]:
            src = points[offsets[j] : offsets[j + 1]]
            length = _warp_polygon(src, m, out_hw, visible, total, oriented, work, out_points[stop:], box)
            if length == 0:
                continue
        else:
            warped_bounds(m, x0, y0, x1, y1, box)
        _clip_box(box, out_hw[1], out_hw[0])
        w1, h1 = (x1 - x0) * scale, (y1 - y0) * scale
        if not is_candidate(w1, h1, box[2] - box[0], box[3] - box[1], min_area, max_aspect):
            continue
        for i in range(keypoints.shape[1]):
            out_keypoints[n, i, 0], out_keypoints[n, i, 1] = project(m, keypoints[j, i, 0], keypoints[j, i, 1])
            out_keypoints[n, i, 2] = keypoints[j, i, 2]
        _clip_keypoints(out_keypoints[n], out_hw[1], out_hw[0])
        out_cls[n] = cls[j]
        n, stop = n + 1, stop + length
        out_offsets[n] = stop
    return n


@kernel
def letterbox_instances(
    index, hw, ratio, pad, columns, once, total, work, out_cls, out_xyxy, out_offsets, out_points, out_keypoints
):
    """Place the labels of one letterboxed image; nothing is clipped or dropped.

    Args:
        index: image.
        hw: (2,) height and width of the tile before the letterbox.
        ratio: resize factor of the letterbox.
        pad: (2,) float64 x, y of the image in the output.
        once: whether polygons are scaled once, to the final size (YOLOv5), or first to the tile's size.
        columns, total, work, out_cls, out_xyxy, out_offsets, out_points, out_keypoints: as in place_instances.

    Source: ultralytics 8.4.190 data/augment.py LetterBox; yolov5 7.0.14 utils/segment/dataloaders.py.
    """
    box_offsets, cls, xywhn, point_offsets, points, keypoints = columns
    n = stop = 0
    size, none = np.empty(2), np.zeros(2)
    size[0], size[1] = hw[0] * ratio, hw[1] * ratio
    tile = np.empty(2)
    tile[0], tile[1] = hw[0], hw[1]
    out_offsets[0] = 0
    for j in range(box_offsets[index], box_offsets[index + 1]):
        _place_box(xywhn[j], size, pad, out_xyxy[n])
        if len(keypoints) > 0:
            _place_keypoints(keypoints[j], size, pad, out_keypoints[n])
        if len(point_offsets) > 0:
            vertices, part = points[point_offsets[j] : point_offsets[j + 1]], out_points[stop:]
            if once:
                length = _place_polygon(vertices, size, pad, total, work[0], part)
            else:
                length = _place_polygon(vertices, tile, none, total, work[0], part)
                _scale_polygon(part, length, ratio, pad)
            stop += length
        out_cls[n] = cls[j]
        n += 1
        out_offsets[n] = stop
    return n


@inline
def _flip_points(points, size, axis):
    for i in range(points.shape[0]):
        points[i, axis] = float64(float32(size - points[i, axis]))


@inline
def _flip_keypoints(keypoints, size, axis, flip_idx, work):
    """Mirror and permute the keypoints of every instance."""
    for j in range(keypoints.shape[0]):
        for i in range(keypoints.shape[1]):
            work[i, 0], work[i, 1], work[i, 2] = keypoints[j, i, 0], keypoints[j, i, 1], keypoints[j, i, 2]
            work[i, axis] = size - work[i, axis]
        for i in range(keypoints.shape[1]):
            source = flip_idx[i]
            keypoints[j, i, 0], keypoints[j, i, 1] = work[source, 0], work[source, 1]
            keypoints[j, i, 2] = work[source, 2]


@kernel
def finish_instances(xyxy, points, keypoints, out_hw, margin, flipud, fliplr, flip_points, flip_idx):
    """Flip as the picture was flipped; boxes become normalised xywh and keypoints normalised, all in place.

    Args:
        xyxy, points, keypoints: as in Instances.
        out_hw: (2,) float64 output height and width.
        margin, flipud, fliplr: as in finish_boxes.
        flip_points: whether polygons are flipped too (Ultralytics; YOLOv5 flips the finished masks).
        flip_idx: (K,) int64 keypoint that each keypoint becomes; in both directions, as in the stock code.

    Source: ultralytics 8.4.190 data/augment.py RandomFlip, Format.
    """
    finish_boxes(xyxy, 0, len(xyxy), out_hw, margin, flipud, fliplr)
    work = np.empty((keypoints.shape[1], 3), np.float64)
    if flipud:
        if flip_points:
            _flip_points(points, out_hw[0], 1)
        _flip_keypoints(keypoints, out_hw[0], 1, flip_idx, work)
    if fliplr:
        if flip_points:
            _flip_points(points, out_hw[1], 0)
        _flip_keypoints(keypoints, out_hw[1], 0, flip_idx, work)
    for j in range(keypoints.shape[0]):
        for i in range(keypoints.shape[1]):
            keypoints[j, i, 0] /= out_hw[1]
            keypoints[j, i, 1] /= out_hw[0]


@kernel
def fit_oriented(offsets, points, work, out):
    """Oriented box of every polygon.

    Args:
        offsets, points: as in Instances.
        work: as in place_instances.
        out: (n, 5) float64, receives centre x, centre y, width, height, radians; see smallest_rectangle.
    """
    for j in range(len(offsets) - 1):
        part = points[offsets[j] : offsets[j + 1]]
        size = convex_hull(part, part.shape[0], work[0], work[1])
        smallest_rectangle(work[1], size, out[j])
