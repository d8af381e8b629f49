"""Helpers for oriented boxes: hull, visible part, smallest enclosing rectangle."""

from __future__ import annotations

import math

import numpy as np

from fastyolo_data.kernels._jit import inline

__all__ = ["clip_oriented", "convex_hull", "smallest_rectangle"]


@inline
def _cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


@inline
def convex_hull(points, n, ordered, out):
    """Convex hull of points[:n] by a scan from left to right and back; returns its number of corners.

    Args:
        points: (k, 2) float64; ordered: (k, 2) scratch; out: (2 k, 2) float64, receives the corners in order.
    """
    for i in range(n):
        x, y = points[i, 0], points[i, 1]
        j = i
        while j > 0 and (ordered[j - 1, 0] > x or (ordered[j - 1, 0] == x and ordered[j - 1, 1] > y)):
            ordered[j, 0], ordered[j, 1] = ordered[j - 1, 0], ordered[j - 1, 1]
            j -= 1
        ordered[j, 0], ordered[j, 1] = x, y
    size = 0
    for half in range(2):
        first = size
        for i in range(n):
            p = ordered[i] if half == 0 else ordered[n - 1 - i]
            while size >= first + 2 and _cross(out[size - 2], out[size - 1], p) <= 0.0:
                size -= 1
            out[size, 0], out[size, 1] = p[0], p[1]
            size += 1
        size -= 1  # the last point is the first one of the way back
    return max(size, 1)


@inline
def smallest_rectangle(hull, n, out):
    """Rectangle of least area around a convex polygon; one of its sides lies along an edge.

    Args:
        out: (5,) float64, receives centre x, centre y, width >= height, angle of the width in [-pi/4, 3 pi/4) radians.

    Source of the representation: ultralytics 8.4.190 utils/ops.py, xyxyxyxy2xywhr. Of a square's two equal answers it
    takes one, OpenCV perhaps the other.
    """
    least = np.inf
    out[0], out[1], out[2], out[3], out[4] = hull[0, 0], hull[0, 1], 0.0, 0.0, 0.0
    for i in range(n):
        dx, dy = hull[(i + 1) % n, 0] - hull[i, 0], hull[(i + 1) % n, 1] - hull[i, 1]
        length = math.hypot(dx, dy)
        if length == 0.0:
            continue
        c, s = dx / length, dy / length
        u0, v0, u1, v1 = _extent(hull, n, c, s)
        if (u1 - u0) * (v1 - v0) < least:
            least = (u1 - u0) * (v1 - v0)
            u, v = (u0 + u1) / 2.0, (v0 + v1) / 2.0
            out[0], out[1] = u * c - v * s, u * s + v * c
            out[2], out[3], out[4] = u1 - u0, v1 - v0, math.atan2(s, c)
    if out[2] < out[3]:
        out[2], out[3] = out[3], out[2]
        out[4] += math.pi / 2
    while out[4] >= 3 * math.pi / 4:
        out[4] -= math.pi
    while out[4] < -math.pi / 4:
        out[4] += math.pi


@inline
def _extent(points, n, c, s):
    """Bounds of points[:n] along the direction (c, s) and across it."""
    u0 = v0 = np.inf
    u1 = v1 = -np.inf
    for i in range(n):
        u, v = points[i, 0] * c + points[i, 1] * s, points[i, 1] * c - points[i, 0] * s
        u0, u1 = min(u0, u), max(u1, u)
        v0, v1 = min(v0, v), max(v1, v)
    return u0, v0, u1, v1


@inline
def _cut(src, n, axis, bound, sign, out):
    """Part of a convex polygon where sign * coordinate <= sign * bound; returns its number of corners."""
    size = 0
    for i in range(n):
        a, b = src[i], src[(i + 1) % n]
        da, db = sign * (bound - a[axis]), sign * (bound - b[axis])
        if da >= 0.0:
            out[size, 0], out[size, 1] = a[0], a[1]
            size += 1
        if (da > 0.0 and db < 0.0) or (da < 0.0 and db > 0.0):
            t = da / (da - db)
            out[size, 0], out[size, 1] = a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t
            size += 1
    return size


@inline
def clip_oriented(points, n, width, height, work, box):
    """Replace a polygon that crosses the picture's border by the rectangle around its visible part, in its direction.

    Args:
        points: (k, 2) float64, changed in place.
        work: (3, m, 2) float64 scratch, m >= 2 n + 8.
        box: (4,) float64, receives the axis-parallel bounds of the visible part; untouched without a crossing.

    Returns:
        Number of points: n when the polygon is inside, 4 when it was cut, 0 when nothing is visible.

    Source: ultralytics 8.4.190 utils/instance.py, Instances.clip with preserve_obb.
    """
    x0, y0, x1, y1 = _extent(points, n, 1.0, 0.0)
    if x0 >= 0.0 and y0 >= 0.0 and x1 <= width and y1 <= height:
        return n
    hull, part = work[1], work[2]
    size = convex_hull(points, n, work[0], hull)
    whole = np.empty(5, np.float64)
    smallest_rectangle(hull, size, whole)
    size = _cut(hull, size, 0, width, 1.0, part)
    size = _cut(part, size, 1, height, 1.0, hull)
    size = _cut(hull, size, 0, 0.0, -1.0, part)
    size = _cut(part, size, 1, 0.0, -1.0, hull)
    area = 0.0
    for i in range(1, size - 1):
        area += _cross(hull[0], hull[i], hull[i + 1])
    if abs(area) <= 0.0:
        return 0
    box[0], box[1], box[2], box[3] = _extent(hull, size, 1.0, 0.0)
    c, s = math.cos(whole[4]), math.sin(whole[4])
    u0, v0, u1, v1 = _extent(hull, size, c, s)
    for i in range(4):
        u, v = (u1 if i < 2 else u0), (v1 if i in (0, 3) else v0)
        points[i, 0], points[i, 1] = u * c - v * s, u * s + v * c
    return 4
