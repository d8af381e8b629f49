"""Helpers of boxes.py and instances.py: projected points, resampled polygons, bounds, which boxes survive a warp."""

from __future__ import annotations

import numpy as np

from fastyolo_data.kernels._jit import inline

__all__ = [
    "MIN_AREA_BOX",
    "MIN_AREA_POLYGON",
    "RESAMPLE",
    "bounds",
    "inside_bounds",
    "is_candidate",
    "project",
    "resample",
    "visible_bounds",
    "warped_bounds",
]

RESAMPLE = 1000  # points per polygon in all stock code
MIN_SIDE = 2.0  # pixels; smaller boxes are dropped after the warp
MIN_AREA_BOX = 0.1  # kept share of a box's area
MIN_AREA_POLYGON = 0.01  # the same where the sample has polygons


@inline
def project(m, x, y):
    """Image of a point under a (3, 3) matrix."""
    z = m[2, 0] * x + m[2, 1] * y + m[2, 2]
    return (m[0, 0] * x + m[0, 1] * y + m[0, 2]) / z, (m[1, 0] * x + m[1, 1] * y + m[1, 2]) / z


@inline
def warped_bounds(m, x0, y0, x1, y1, out):
    """Bounds of the four projected corners."""
    ax, ay = project(m, x0, y0)
    bx, by = project(m, x1, y1)
    cx, cy = project(m, x0, y1)
    dx, dy = project(m, x1, y0)
    out[0] = min(min(ax, bx), min(cx, dx))
    out[1] = min(min(ay, by), min(cy, dy))
    out[2] = max(max(ax, bx), max(cx, dx))
    out[3] = max(max(ay, by), max(cy, dy))


@inline
def resample(src, count, total, keep_vertices, out):
    """Spread `total` points evenly (by vertex number) along the closed polygon src[:count].

    With keep_vertices the vertices stay and the rest is spread between them, which leaves polygons of more points than
    that as they are.

    Returns:
        Number of points written.

    Source: ultralytics 8.4.190 utils/ops.py and yolov5 7.0 utils/general.py, resample_segments.
    """
    spread = total
    if keep_vertices:
        if count + 1 >= total:
            for i in range(count):
                out[i] = src[i]
            return count
        spread = total - (count + 1)
    step = count / (spread - 1) if spread > 1 else 0.0
    n = i = 0
    for cell in range(count):
        following = cell + 1 if cell + 1 < count else 0
        ax, ay = src[cell, 0], src[cell, 1]
        dx, dy = src[following, 0] - ax, src[following, 1] - ay
        if keep_vertices:
            out[n, 0], out[n, 1] = ax, ay
            n += 1
        t = i * step
        while i < spread and (t < cell + 1 or cell == count - 1):
            t = float(count) if i == spread - 1 and spread > 1 else t
            out[n, 0], out[n, 1] = ax + dx * (t - cell), ay + dy * (t - cell)
            n += 1
            i += 1
            t = i * step
    if keep_vertices:
        out[n, 0], out[n, 1] = src[0, 0], src[0, 1]
        n += 1
    return n


@inline
def _contains(points, n, x, y):
    """Whether a polygon contains a point or has it on its edge (even-odd rule, as OpenCV's pointPolygonTest)."""
    inside = False
    for i in range(n):
        ax, ay = points[i, 0], points[i, 1]
        bx, by = points[(i + 1) % n, 0], points[(i + 1) % n, 1]
        cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        if cross == 0.0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
            return True
        if (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
            inside = not inside
    return inside


@inline
def _grow(out, x, y):
    out[0], out[1] = min(out[0], x), min(out[1], y)
    out[2], out[3] = max(out[2], x), max(out[3], y)


@inline
def _cross_border(ax, ay, bx, by, width, height, out):
    """Grow `out` by the points where the edge a-b meets the border of the picture."""
    dx, dy = bx - ax, by - ay
    for k in range(4):
        vertical = k < 2
        delta = dx if vertical else dy
        if delta == 0.0:
            continue
        bound = (k % 2) * (width if vertical else height)
        t = (bound - (ax if vertical else ay)) / delta
        if 0.0 <= t <= 1.0:
            other = ay + t * dy if vertical else ax + t * dx
            if 0.0 <= other <= (height if vertical else width):
                _grow(out, bound if vertical else other, other if vertical else bound)


@inline
def bounds(points, n):
    """Least x, least y, greatest x, greatest y of points[:n]."""
    x0 = y0 = np.inf
    x1 = y1 = -np.inf
    for i in range(n):
        x, y = points[i, 0], points[i, 1]
        x0, y0, x1, y1 = min(x0, x), min(y0, y), max(x1, x), max(y1, y)
    return x0, y0, x1, y1


@inline
def visible_bounds(points, n, width, height, out):
    """Bounds of polygon and picture's intersection; zeros when nothing is visible.

    Source: ultralytics 8.4.190 utils/ops.py, segment2box.
    """
    x0, y0, x1, y1 = bounds(points, n)
    if x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height:
        out[0], out[1], out[2], out[3] = x0, y0, x1, y1
        return
    out[0], out[1], out[2], out[3] = np.inf, np.inf, -np.inf, -np.inf
    if not (x1 < 0 or y1 < 0 or x0 > width or y0 > height):
        bx, by = points[n - 1, 0], points[n - 1, 1]
        for i in range(n):
            ax, ay = bx, by
            bx, by = points[i, 0], points[i, 1]
            if 0 <= bx <= width and 0 <= by <= height:
                _grow(out, bx, by)
            # An edge inside the picture, or on one side of it, crosses nothing.
            inside = min(ax, bx) >= 0 and max(ax, bx) <= width and min(ay, by) >= 0 and max(ay, by) <= height
            beside = max(ax, bx) < 0 or min(ax, bx) > width or max(ay, by) < 0 or min(ay, by) > height
            if not (inside or beside):
                _cross_border(ax, ay, bx, by, width, height, out)
        for k in range(4):
            cx, cy = (k % 2) * width, (k // 2) * height
            if _contains(points, n, cx, cy):
                _grow(out, cx, cy)
    if out[0] > out[2]:
        out[0], out[1], out[2], out[3] = 0.0, 0.0, 0.0, 0.0


@inline
def inside_bounds(points, n, width, height, out):
    """Bounds of the points inside the picture; zeros when there is none.

    Source: yolov5 7.0 utils/general.py, segment2box.
    """
    out[0], out[1], out[2], out[3] = np.inf, np.inf, -np.inf, -np.inf
    for i in range(n):
        x, y = points[i, 0], points[i, 1]
        if 0 <= x <= width and 0 <= y <= height:
            _grow(out, x, y)
    if out[0] > out[2]:
        out[0], out[1], out[2], out[3] = 0.0, 0.0, 0.0, 0.0


@inline
def is_candidate(w1, h1, w2, h2, min_area, max_aspect):
    """Source: box_candidates of ultralytics 8.4.190 (data/augment.py) and yolov5 7.0 (utils/augmentations.py)."""
    if w2 <= MIN_SIDE or h2 <= MIN_SIDE:
        return False
    return w2 * h2 / (w1 * h1 + 1e-16) > min_area and max(w2 / h2, h2 / w2) < max_aspect
