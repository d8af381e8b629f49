"""Mask kernels: polygons to pixels exactly as OpenCV's fillPoly, shrunk as OpenCV's resize does it.

fillPoly on whole-pixel vertices sets (a) the pixels of every edge, drawn as an 8-connected line, and (b) on each row
the pixels between consecutive pairs of edge crossings. One call makes all masks of a sample: cv2 would return to
Python, and so ask for the GIL, two times per instance, and would zero and shrink the whole picture each time.

Source of the rules: OpenCV 5.0.0 modules/imgproc/src/drawing.cpp (fillPoly, clipLine, LineIterator), own words.
"""

from __future__ import annotations

import numpy as np
from numba import int64

from fastyolo_data.kernels._jit import inline, kernel

__all__ = ["draw_masks", "merge_masks", "stack_masks"]

ONE = 1 << 16  # fixed-point one of edge crossings
LIMIT = 1 << 31


@inline
def _divide(a, b):
    """Integer division that rounds toward zero, as C does."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


@inline
def _outside(x, y, right, bottom):
    return (1 if x < 0 else 0) + (2 if x > right else 0) + (4 if y < 0 else 0) + (8 if y > bottom else 0)


@inline
def _clip_line(line, right, bottom):
    """Move the ends of a line (x0, y0, x1, y1) to the border; returns whether any of it is inside."""
    c1, c2 = _outside(line[0], line[1], right, bottom), _outside(line[2], line[3], right, bottom)
    for axis in (1, 0):
        if (c1 & c2) != 0 or (c1 | c2) == 0:
            break
        low, high = (4, 8) if axis == 1 else (1, 2)
        end = bottom if axis == 1 else right
        other = 1 - axis
        if c1 & (low | high):
            a = 0 if c1 & low else end
            line[other] += _divide((a - line[axis]) * (line[2 + other] - line[other]), line[2 + axis] - line[axis])
            line[axis] = a
            c1 = _outside(line[0], line[1], right, bottom) & (3 if axis == 1 else 0)
        if c2 & (low | high):
            a = 0 if c2 & low else end
            line[2 + other] += _divide(
                (a - line[2 + axis]) * (line[2 + other] - line[other]), line[2 + axis] - line[axis]
            )
            line[2 + axis] = a
            c2 = _outside(line[2], line[3], right, bottom) & (3 if axis == 1 else 0)
    return (c1 | c2) == 0


@inline
def _draw_line(mask, line, right, bottom):
    """Set the pixels of an 8-connected line, from left to right; `line` is changed when it leaves the picture."""
    if not _clip_line(line, right, bottom):
        return
    x, y, x1, y1 = line[0], line[1], line[2], line[3]
    if x1 < x:
        x, y, x1, y1 = x1, y1, x, y
    dx, dy = x1 - x, y1 - y
    step = 1 if dy >= 0 else -1
    dy = abs(dy)
    steep = dy > dx
    if steep:
        dx, dy = dy, dx
    err = dx - 2 * dy
    for _ in range(dx + 1):
        mask[y, x] = 1
        aside = err < 0
        err += 2 * dx - 2 * dy if aside else -2 * dy
        if steep:
            y += step
            x += 1 if aside else 0
        else:
            x += 1
            y += step if aside else 0


@inline
def _draw_outline(mask, vertices, n, line):
    right, bottom = mask.shape[1] - 1, mask.shape[0] - 1
    px, py = vertices[n - 1, 0], vertices[n - 1, 1]
    for i in range(n):
        x, y = vertices[i, 0], vertices[i, 1]
        if abs(x - px) <= 1 and abs(y - py) <= 1:  # neighbours: the line is its two ends
            if 0 <= x <= right and 0 <= y <= bottom:
                mask[y, x] = 1
        else:
            line[0], line[1], line[2], line[3] = px, py, x, y
            _draw_line(mask, line, right, bottom)
        px, py = x, y


@inline
def _truncate(points, out):
    """Pixel coordinates to whole numbers, toward zero; what no int32 holds becomes the least one.

    Repeated pixels are left out: an edge of no length adds nothing, and resampled polygons have many.

    Returns:
        Number of vertices; least and greatest x and y: x0, y0, x1, y1.
    """
    n = 0
    x0 = y0 = int64(1) << 32
    x1 = y1 = -(int64(1) << 32)
    for i in range(points.shape[0]):
        fx, fy = points[i, 0], points[i, 1]
        x = int64(fx) if abs(fx) < LIMIT else -LIMIT
        y = int64(fy) if abs(fy) < LIMIT else -LIMIT
        if n and x == out[n - 1, 0] and y == out[n - 1, 1]:
            continue
        out[n, 0], out[n, 1] = x, y
        n += 1
        x0, x1 = min(x0, x), max(x1, x)
        y0, y1 = min(y0, y), max(y1, y)
    return n, x0, y0, x1, y1


@inline
def _crossing(ax, ay, bx, by, line, right, bottom):
    """Fixed-point x of an edge on its upper row, and its step per row.

    An edge that leaves the picture is taken from the whole pixels where it meets the border; where those lie on one
    row, with the x of these and the y of its own ends.
    """
    if by - ay == 1:
        slope, upper = (bx - ax) * ONE, ax
    elif ay - by == 1:
        slope, upper = (ax - bx) * ONE, bx
    else:
        slope = _divide((bx - ax) * ONE, by - ay)
        upper = ax if ay < by else bx
    if (_outside(ax, ay, right, bottom) | _outside(bx, by, right, bottom)) == 0:
        return upper * ONE, slope
    line[0], line[1], line[2], line[3] = ax, ay, bx, by
    _clip_line(line, right, bottom)
    if line[1] == line[3]:
        line[1], line[3] = ay, by
    slope = _divide((line[2] - line[0]) * ONE, line[3] - line[1])
    if ay < by:
        return line[0] * ONE + (ay - line[1]) * slope, slope
    return line[2] * ONE + (by - line[3]) * slope, slope


@inline
def _count_crossings(vertices, n, y0, y1, first):
    """first[r] = number of edge crossings on the rows before y0 + r, for rows y0..y1."""
    rows = y1 - y0 + 1
    for r in range(rows + 1):
        first[r] = 0
    b = vertices[n - 1, 1]
    for i in range(n):
        a, b = b, vertices[i, 1]
        low, high = max(min(a, b), y0), min(max(a, b), y1 + 1)
        if low < high:  # differences, summed up below
            first[low - y0 + 1] += 1
            if high - y0 + 1 <= rows:
                first[high - y0 + 1] -= 1
    running = 0
    for r in range(1, rows + 1):
        running += first[r]
        first[r] = first[r - 1] + running
    return first[rows]


@inline
def _fill(mask, vertices, n, y0, y1, line, first, place, crossings):
    """Set the pixels between pairs of edge crossings on rows y0..y1."""
    right, bottom = mask.shape[1] - 1, mask.shape[0] - 1
    _count_crossings(vertices, n, y0, y1, first)
    for r in range(y1 - y0 + 1):
        place[r] = first[r]
    bx, by = vertices[n - 1, 0], vertices[n - 1, 1]
    for i in range(n):
        ax, ay = bx, by
        bx, by = vertices[i, 0], vertices[i, 1]
        y, stop = min(ay, by), max(ay, by)
        if y == stop or stop <= y0 or y > y1:
            continue
        x, slope = _crossing(ax, ay, bx, by, line, right, bottom)
        x += (max(y, y0) - y) * slope
        for r in range(max(y - y0, 0), min(stop, y1 + 1) - y0):
            k = place[r]
            while k > first[r] and crossings[k - 1] > x:  # insert sorted: a row has few crossings
                crossings[k] = crossings[k - 1]
                k -= 1
            crossings[k] = x
            place[r] += 1
            x += slope
    for r in range(y1 - y0 + 1):
        for k in range(first[r], first[r + 1] - 1, 2):
            low, high = (crossings[k] + ONE - 1) >> 16, crossings[k + 1] >> 16
            if low <= right and high >= 0:
                mask[y0 + r, max(low, 0) : min(high, right) + 1] = 1


@inline
def _shrink(full, ratio, cell, pool):
    """Store the cells that a drawn polygon touches, 1 where at least two of a cell's four centre pixels are set.

    That is what OpenCV's bilinear resize by an even ratio gives for pixels of 0 and 1; ratio 1 copies.

    Returns:
        Number of cells that are set.
    """
    area = 0
    at = cell[4]
    low, high = max(ratio // 2 - 1, 0), ratio // 2
    for y in range(cell[1], cell[3]):
        top, bottom = full[y * ratio + low], full[y * ratio + high]
        for x in range(cell[0], cell[2]):
            left, right = x * ratio + low, x * ratio + high
            value = 1 if int64(top[left]) + top[right] + bottom[left] + bottom[right] >= 2 else 0
            pool[at] = value
            area += value
            at += 1
    return area


@kernel
def draw_masks(offsets, points, ratio, full, vertices, rows, crossings, pool, cells, areas):
    """Draw every instance's polygon and shrink it.

    Args:
        offsets, points: as in Instances.
        ratio: 1, or an even number that divides both sides of the picture.
        full: (h, w) uint8 scratch of the picture's size, all 0 before and after.
        vertices: (k, 2) int64 scratch, k >= the longest polygon; rows: (2, h + 2) int64 scratch.
        crossings: (k * h,) int64 scratch.
        pool: (n * cells of the picture,) uint8, receives the masks: of each instance the part that it touches.
        cells: (n, 5) int64, receives x0, y0, x1, y1 (exclusive) of that part, and where it begins in the pool.
        areas: (n,) int64, receives the cells set.
    """
    height, width = full.shape
    line = np.empty(4, np.int64)
    used = 0
    for j in range(len(offsets) - 1):
        areas[j] = 0
        cells[j] = 0
        n, x0, y0, x1, y1 = _truncate(points[offsets[j] : offsets[j + 1]], vertices)
        x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, width - 1), min(y1, height - 1)
        if n == 0 or x0 > x1 or y0 > y1:
            continue
        _draw_outline(full, vertices, n, line)
        _fill(full, vertices, n, y0, y1, line, rows[0], rows[1], crossings)
        cells[j, 0], cells[j, 1], cells[j, 4] = x0 // ratio, y0 // ratio, used
        cells[j, 2], cells[j, 3] = x1 // ratio + 1, y1 // ratio + 1
        areas[j] = _shrink(full, ratio, cells[j], pool)
        used += (cells[j, 2] - cells[j, 0]) * (cells[j, 3] - cells[j, 1])
        full[y0 : y1 + 1, x0 : x1 + 1] = 0


@kernel
def merge_masks(order, cls, pool, cells, out, classes):
    """One picture of instance numbers from 1 on, in the given order; later ones cover earlier ones.

    Args:
        order: (n,) int64 instances, largest first; cls: (n,) float64.
        pool, cells: from draw_masks.
        out: (h, w) uint8 or int32, zeros, receives the numbers.
        classes: (h, w) float32, or (0, 0) when not wanted; receives the class of the instance on top. Where there is
            none it holds the last instance's class, as in the stock code, whose loss masks these pixels out.

    Source: ultralytics 8.4.190 data/utils.py polygons2masks_overlap, data/augment.py Format.
    """
    if classes.shape[0] > 0:
        classes[:] = cls[order[-1]]
    for k in range(len(order)):
        x0, y0, x1, y1, at = cells[order[k]]
        for y in range(y0, y1):
            for x in range(x0, x1):
                if pool[at] != 0:
                    out[y, x] = k + 1
                    if classes.shape[0] > 0:
                        classes[y, x] = cls[order[k]]
                at += 1


@kernel
def stack_masks(cls, areas, pool, cells, out, least, classes):
    """One picture per instance.

    Args:
        cls, areas, pool, cells: as in merge_masks and draw_masks.
        out: (n, h, w) uint8, zeros, receives the masks.
        least: (h, w) int64 scratch, larger than any area.
        classes: (h, w) float32 zeros, or (0, 0) when not wanted; receives the class of the smallest instance there.

    Source: ultralytics 8.4.190 data/utils.py polygons2masks, data/augment.py Format.
    """
    for j in range(len(cls)):
        x0, y0, x1, y1, at = cells[j]
        for y in range(y0, y1):
            for x in range(x0, x1):
                out[j, y, x] = pool[at]
                if pool[at] != 0 and classes.shape[0] > 0 and areas[j] < least[y, x]:
                    least[y, x] = areas[j]
                    classes[y, x] = cls[j]
                at += 1
