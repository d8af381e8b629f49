"""Fused image kernels: tiles -> mosaic -> warp -> mixup -> HSV -> flip -> CHW, one pass, no canvas.

A tile here is (h, w) uint32, one pixel per element in OpenCV's BGRA byte order (b | g << 8 | r << 16): one load fetches
all channels of a pixel, and two channels are interpolated per multiplication. A *layer* is the picture before the
colour step: one tile, or up to four tiles of a mosaic, warped onto the output. A sample has one layer, or two (mixup).

Every output pixel is sampled from exactly one tile, the one its position rounds to, with coordinates clamped to that
tile; positions outside every tile are grey 114. This differs from warping a real canvas only within one source pixel
of a tile's edge. Weights have 8 bits, intermediate values are rounded once, so results are within 1 level of a
float bilinear interpolation on photos, 2 on noise of full contrast (tests/kernels/test_warp.py).

The loops are split so that LLVM vectorises each: gathers alone (scalar loads, no arithmetic), blends on contiguous
rows, and the colour step on contiguous rows. Indices are uint32: signed ones bring a wrap-around test that stops the
vectoriser. Measured on Zen 4, 640 x 640: vertical blend 0.06 ms, gathers 0.25 ms, colour step 0.5 ms, a sample 1.0 ms.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, uint8, uint32

from fastyolo_data.kernels._jit import inline, kernel

__all__ = ["HUE_ADDITIVE", "HUE_MULTIPLICATIVE", "HUE_OFF", "make_scratch", "render_sample"]

GREY = 0x00727272  # 114 in each of b, g, r
EVEN = 0x00FF00FF  # fields b and r; shifted by 8: g and the unused byte
ODD = 0xFF00FF00
ROUND = 0x00800080

HUE_OFF, HUE_ADDITIVE, HUE_MULTIPLICATIVE = 0, 1, 2

# Rows of the scratch array (rows, width) uint32 that one worker thread owns.
ROW_P, ROW_Q, ROW_F, ROW_P2, ROW_Q2, ROW_F2, ROW_V, ROW_X, ROW_A, ROW_B, ROW_C, ROW_D, ROW_WX, ROW_WY = range(14)
SCRATCH_ROWS = 14 + 16  # and four column tables (index, weight) per layer for the axis-aligned case
ROW_TABLES = 14


def make_scratch(width: int, tile_side: int) -> np.ndarray:
    """Allocate the row buffers of one worker thread.

    Args:
        width: output width in pixels.
        tile_side: longest tile side in pixels.

    Returns:
        (30, n) uint32; contents undefined, owned by the caller, not to be shared between threads.
    """
    return np.empty((SCRATCH_ROWS, max(width, tile_side) + 1), np.uint32)


@inline
def _lerp_pair(p, q, w):
    """Blend two 8-bit fields (mask EVEN) of p and q into 8.8 fixed point, plus a half for rounding.

    numba widens uint32 arithmetic to 64 bits; the casts after every step keep it in 32-bit lanes, twice as many a time.
    The difference may wrap around: its product is right modulo 2**32, and so is the sum.
    """
    delta = uint32(uint32(q - p) * w)
    return uint32(uint32(uint32(p << uint32(8)) + delta) + uint32(ROUND))


@inline
def _lerp2(p, q, w):
    """Blend two packed pixels, weight w / 256 for q, rounded to 8 bits per channel."""
    m = uint32(EVEN)
    e = uint32(8)
    even = _lerp_pair(uint32(p & m), uint32(q & m), w)
    odd = _lerp_pair(uint32(uint32(p >> e) & m), uint32(uint32(q >> e) & m), w)
    return uint32(uint32(uint32(even >> e) & m) | uint32(odd & uint32(ODD)))


@inline
def _blend_rows(a, b, w, out):
    """out[i] = a[i] + (b[i] - a[i]) * w / 256 over whole rows of packed pixels."""
    w = uint32(w)
    for i in range(out.shape[0]):
        out[i] = _lerp2(a[i], b[i], w)


@inline
def _gather(src, idx, step, out):
    """out[i] = src[idx[i] + step]."""
    step = uint32(step)
    for i in range(out.shape[0]):
        out[i] = src[idx[i] + step]


@inline
def _copy(src, out):
    for i in range(out.shape[0]):  # numba's slice assignment tests for overlap and broadcasting every time
        out[i] = src[i]


@inline
def _bilinear_row(a, b, c, d, wx, wy, out):
    """Blend four gathered neighbours: a b above, c d below."""
    for i in range(out.shape[0]):
        out[i] = _lerp2(_lerp2(a[i], b[i], wx[i]), _lerp2(c[i], d[i], wx[i]), wy[i])


@inline
def _split(value, limit):
    """Split a coordinate into a cell index in [0, limit - 2] and a weight 0..256, clamped to the tile."""
    if limit < 2 or value <= 0.0:
        return int64(0), int64(0)
    if value >= limit - 1:
        return int64(limit - 2), int64(256)
    cell = int64(value)
    return cell, int64((value - cell) * 256.0 + 0.5)


@inline
def _column_table(scale, offset, x0, x1, pad, tile_w, flip, idx, wgt):
    """Fill index and weight of the output columns whose canvas position rounds into [x0, x1).

    Column X (after the flip) samples canvas position scale * X + offset.

    Returns:
        First and one-past-last output column covered; idx and wgt are defined between them.
    """
    width = idx.shape[0]
    lo, hi = int64(width), int64(0)
    for i in range(width):
        column = width - 1 - i if flip else i
        pos = scale * column + offset
        if x0 - 0.5 <= pos < x1 - 0.5:
            cell, weight = _split(pos - pad, tile_w)
            idx[i] = uint32(cell)
            wgt[i] = uint32(weight)
            lo = min(lo, i)
            hi = max(hi, i + 1)
    return lo, hi


@inline
def _aligned_row(tiles, rects, pads, count, inv, y, spans, scratch, tables, p, q, f):
    """Fill one output row of an axis-aligned layer with pairs of neighbours and their weights."""
    pos = inv[1, 1] * y + inv[1, 2]
    covered = 0
    for t in range(count):
        if rects[t, 1] - 0.5 <= pos < rects[t, 3] - 0.5:
            covered += max(spans[t, 1] - spans[t, 0], 0)
    if covered < p.shape[0]:  # tiles do not overlap
        for i in range(p.shape[0]):
            p[i] = uint32(GREY)
            q[i] = uint32(GREY)
            f[i] = uint32(0)
    blended = scratch[ROW_V]
    for t in range(count):
        lo, hi, first, last = spans[t]
        if lo >= hi or not rects[t, 1] - 0.5 <= pos < rects[t, 3] - 0.5:
            continue
        tile = tiles[t]
        h, w = tile.shape
        row, weight = _split(pos - pads[t, 1], h)
        below = min(row + 1, h - 1)
        idx = scratch[tables + 2 * t, lo:hi]
        _blend_rows(tile[row, first:last], tile[below, first:last], weight, blended[first:last])
        _gather(blended, idx, 0, p[lo:hi])
        _gather(blended, idx, 1 if w > 1 else 0, q[lo:hi])
        _copy(scratch[tables + 2 * t + 1, lo:hi], f[lo:hi])


@inline
def _clip_span(slope, value, strict, lo, hi):
    """Narrow the columns [lo, hi) to those where slope * X + value >= 0, or > 0 when strict."""
    if slope > 0.0:
        edge = -value / slope
        lo = max(lo, np.floor(edge) + 1.0 if strict else np.ceil(edge))
    elif slope < 0.0:
        edge = value / -slope
        hi = min(hi, np.ceil(edge) if strict else np.floor(edge) + 1.0)
    elif value < 0.0 or (strict and value == 0.0):
        hi = lo
    return lo, hi


@inline
def _tile_span(rect, inv, y, side, width):
    """Columns of row y whose canvas position lies in rect, as a half-open range.

    With N = n0 X + n1 and D = d0 X + d1 > 0, x >= b means N - b D >= 0: linear in X, also under perspective. side = -1
    looks at the columns where D < 0, beyond the horizon: OpenCV draws there as well, and the labels follow it.
    The upper edge of a tile uses the same numbers as the lower edge of its neighbour, so no column falls between them.
    """
    lo, hi = 0.0, float(width)
    d0, d1 = side * inv[2, 0], side * (inv[2, 1] * y + inv[2, 2])
    # Further from 0 than float32 errs, or _coordinates could meet 0 / 0 and gather from anywhere.
    least = 1e-6 * (abs(d0) * width + abs(d1)) + 1e-30
    lo, hi = _clip_span(d0, d1 - least, False, lo, hi)
    for axis in range(2):
        n0, n1 = side * inv[axis, 0], side * (inv[axis, 1] * y + inv[axis, 2])
        low, high = rect[axis] - 0.5, rect[axis + 2] - 0.5
        lo, hi = _clip_span(n0 - low * d0, n1 - low * d1, False, lo, hi)
        lo, hi = _clip_span(high * d0 - n0, high * d1 - n1, True, lo, hi)
    return int64(lo), int64(max(lo, hi))


@inline
def _coordinates(inv, y, lo, pad, h, w, idx, wx, wy):
    """Cell index (flat) and weights of the columns lo, lo + 1, ... of row y inside one tile of at least 2 x 2.

    Numerators and denominator of the projective map are linear in the column. Their values at lo are computed in
    float64, the steps in float32: 1e-4 pixel for affine maps, a fortieth of a weight's resolution. Near a horizon the
    error grows with 1 / D, where neighbouring output pixels lie far apart on the canvas anyway.
    """
    right, bottom = float32(w - 1) - float32(1e-3), float32(h - 1) - float32(1e-3)
    zero, one, full, half = float32(0.0), float32(1.0), float32(256.0), float32(0.5)
    start = inv[2, 0] * lo + inv[2, 1] * y + inv[2, 2]
    n1 = float32(inv[0, 0] * lo + inv[0, 1] * y + inv[0, 2] - pad[0] * start)
    m1 = float32(inv[1, 0] * lo + inv[1, 1] * y + inv[1, 2] - pad[1] * start)
    n0, m0 = float32(inv[0, 0] - pad[0] * inv[2, 0]), float32(inv[1, 0] - pad[1] * inv[2, 0])
    d0, d1 = float32(inv[2, 0]), float32(start)
    stride = int32(w)
    for i in range(idx.shape[0]):
        k = float32(int32(i))
        z = one / (d0 * k + d1)
        x = min(max((n0 * k + n1) * z, zero), right)
        v = min(max((m0 * k + m1) * z, zero), bottom)
        cx = int32(x)
        cy = int32(v)
        idx[i] = uint32(int32(int32(cy * stride) + cx))
        wx[i] = uint32(int32((x - float32(cx)) * full + half))
        wy[i] = uint32(int32((v - float32(cy)) * full + half))


@inline
def _thin_span(tile, inv, y, lo, pad, out):
    """Sample a tile that is one pixel wide or high, so that it has no cells of 2 x 2."""
    h, w = tile.shape
    for i in range(out.shape[0]):
        column = lo + i
        z = 1.0 / (inv[2, 0] * column + inv[2, 1] * y + inv[2, 2])
        cx, wx = _split((inv[0, 0] * column + inv[0, 1] * y + inv[0, 2]) * z - pad[0], w)
        cy, wy = _split((inv[1, 0] * column + inv[1, 1] * y + inv[1, 2]) * z - pad[1], h)
        weight = uint32(wx if h < 2 else wy)
        out[i] = _lerp2(tile[cy, cx], tile[min(cy + 1, h - 1), min(cx + 1, w - 1)], weight)


@inline
def _projective_span(tile, inv, y, lo, pad, scratch, out):
    """Sample a tile of at least 2 x 2 at the columns lo, lo + 1, ... of row y."""
    h, w = tile.shape
    n = out.shape[0]
    idx, wx, wy = scratch[ROW_X, :n], scratch[ROW_WX, :n], scratch[ROW_WY, :n]
    _coordinates(inv, y, lo, pad, h, w, idx, wx, wy)
    flat = tile.reshape(h * w)
    a, b, c, d = scratch[ROW_A, :n], scratch[ROW_B, :n], scratch[ROW_C, :n], scratch[ROW_D, :n]
    _gather(flat, idx, 0, a)
    _gather(flat, idx, 1, b)
    _gather(flat, idx, w, c)
    _gather(flat, idx, w + 1, d)
    _bilinear_row(a, b, c, d, wx, wy, out)


@inline
def _projective_row(tiles, rects, pads, count, inv, y, scratch, p, q, f):
    """Fill one output row of a rotated, sheared or perspective layer; interpolation is done here, so p = q."""
    for i in range(p.shape[0]):
        p[i] = uint32(GREY)
        f[i] = uint32(0)
    sides = 1 if inv[2, 0] == 0.0 and inv[2, 1] == 0.0 else 2
    for t in range(count):
        tile = tiles[t]
        thin = tile.shape[0] < 2 or tile.shape[1] < 2
        for k in range(sides):
            lo, hi = _tile_span(rects[t], inv, y, 1.0 - 2.0 * k, p.shape[0])
            if lo >= hi:
                continue
            if thin:
                _thin_span(tile, inv, y, lo, pads[t], p[lo:hi])
            else:
                _projective_span(tile, inv, y, lo, pads[t], scratch, p[lo:hi])
    for i in range(p.shape[0]):
        q[i] = p[i]


@inline
def _reverse(row):
    n = row.shape[0]
    for i in range(n // 2):
        row[i], row[n - 1 - i] = row[n - 1 - i], row[i]


@inline
def _mix_rows(p, q, f, p2, q2, f2, ratio):
    """p = floor(a * ratio + b * (1 - ratio)) per channel, of the two layers rounded to 8 bits; q = p, f = 0."""
    r = float32(ratio)
    s = float32(1.0 - ratio)
    e = uint32(255)
    for i in range(p.shape[0]):
        a = _lerp2(p[i], q[i], f[i])
        b = _lerp2(p2[i], q2[i], f2[i])
        c0 = uint32(int32(float32(int32(a & e)) * r + float32(int32(b & e)) * s))
        c1 = uint32(int32(float32(int32((a >> uint32(8)) & e)) * r + float32(int32((b >> uint32(8)) & e)) * s))
        c2 = uint32(int32(float32(int32((a >> uint32(16)) & e)) * r + float32(int32((b >> uint32(16)) & e)) * s))
        p[i] = c0 | (c1 << uint32(8)) | (c2 << uint32(16))
        q[i] = p[i]
        f[i] = uint32(0)


@inline
def _plain_row(p, q, f, first, second, third):
    """Write a row without a colour step: third = b, second = g, first = r."""
    for i in range(first.shape[0]):
        v = _lerp2(p[i], q[i], f[i])
        third[i] = uint8(v & uint32(255))
        second[i] = uint8((v >> uint32(8)) & uint32(255))
        first[i] = uint8((v >> uint32(16)) & uint32(255))


# contract: multiply-add in one instruction; the others let min/max become single instructions. All values are finite.
@kernel(fastmath=frozenset({"contract", "nnan", "ninf", "nsz"}))
def _hsv_row(p, q, f, hue_mul, hue_add, sat, val, red, green, blue):
    """Interpolate a row horizontally and shift its hue, saturation and value, rounding where OpenCV rounds.

    The stock chain holds the picture as bytes after the warp, as H (0..179), S, V bytes before and after its table
    look-ups (which cut fractions off), and as bytes at the end. Doing the same keeps saturated pictures within a level
    or two of it; smooth arithmetic would be up to c / 60 away, as H has steps of 2 degrees.

    H' = floor(hue_mul * H + hue_add) on the circle of 180, for hue_mul in [0, 2] and hue_add in [0, 180) with the other
    neutral; S' and V' are floor(gain * x), at most 255.

    Source: the hexcone model of A. R. Smith, "Color gamut transform pairs", SIGGRAPH 1978, with OpenCV's 8-bit scales;
    RGB from H as red = |H - 90| - 30, green = 60 - |H - 60|, blue = 60 - |H - 120|, each clipped to [0, 30].
    """
    byte, half, circle, step = float32(255.0), float32(0.5), float32(180.0), float32(30.0)
    zero, one, sixty = float32(0.0), float32(1.0), float32(60.0)
    low_byte = uint32(255)
    for i in range(red.shape[0]):
        pixel = _lerp2(p[i], q[i], f[i])
        b = float32(int32(pixel & low_byte))
        g = float32(int32(uint32(pixel >> uint32(8)) & low_byte))
        r = float32(int32(uint32(pixel >> uint32(16)) & low_byte))
        v = max(r, max(g, b))
        c = v - min(r, min(g, b))
        cc, vv = max(c, one), max(v, one)
        d = one / (cc * vv)  # one division serves 1 / c and 1 / v
        num, off = r - g, float32(120.5)
        if v == g:
            num, off = b - r, float32(60.5)
        if v == r:
            num, off = g - b, half
        h = np.floor(num * step * (d * vv) + off)
        if h < zero:
            h = h + circle
        h = h * hue_mul + hue_add
        if h >= circle:
            h = h - circle
        h = np.floor(h)
        s2 = min(np.floor(np.floor(c * byte * (d * cc) + half) * sat), byte)
        v2 = min(np.floor(v * val), byte)
        c2 = v2 * s2 * float32(1.0 / (255.0 * 30.0))
        low = v2 + half - c2 * step
        red[i] = uint8(int32(low + c2 * max(zero, min(step, abs(h - float32(90.0)) - step))))
        green[i] = uint8(int32(low + c2 * max(zero, min(step, sixty - abs(h - sixty)))))
        blue[i] = uint8(int32(low + c2 * max(zero, min(step, sixty - abs(h - float32(120.0))))))


@inline
def _is_aligned(inv):
    return inv[0, 1] == 0.0 and inv[1, 0] == 0.0 and inv[2, 0] == 0.0 and inv[2, 1] == 0.0 and inv[2, 2] == 1.0


@inline
def _layer_tables(tiles, rects, pads, count, inv, fliplr, width, spans, scratch, tables):
    for t in range(count):
        idx, wgt = scratch[tables + 2 * t, :width], scratch[tables + 2 * t + 1, :width]
        x0, x1 = rects[t, 0], rects[t, 2]
        lo, hi = _column_table(inv[0, 0], inv[0, 2], x0, x1, pads[t, 0], tiles[t].shape[1], fliplr, idx, wgt)
        spans[t, 0] = lo
        spans[t, 1] = hi
        if lo < hi:
            low, high = min(idx[lo], idx[hi - 1]), max(idx[lo], idx[hi - 1])  # a flip reverses the table
            spans[t, 2] = int64(low)
            spans[t, 3] = min(int64(high) + 2, tiles[t].shape[1])


@inline
def _layer_row(tiles, rects, pads, count, inv, aligned, y, fliplr, spans, scratch, tables, p, q, f):
    if aligned:
        _aligned_row(tiles, rects, pads, count, inv, y, spans, scratch, tables, p, q, f)
    else:
        _projective_row(tiles, rects, pads, count, inv, y, scratch, p, q, f)
        if fliplr:
            _reverse(p)
            _reverse(q)


@kernel
def render_sample(dst, tiles, tiles2, rects, pads, counts, inv, ratio, hue_mode, gains, flipud, fliplr, bgr, scratch):
    """Render one augmented sample into its place in the batch.

    Args:
        dst: (3, H, W) uint8, fully overwritten; RGB planes, or BGR planes when `bgr`.
        tiles, tiles2: tuples of 4 (h, w) uint32 packed tiles of the first and second layer; unused entries are ignored.
        rects: (2, 4, 4) float64 x0 y0 x1 y1 of each tile's visible part on the layer's canvas, integers.
        pads: (2, 4, 2) float64 x, y of each tile's origin on the canvas.
        counts: (2,) int64 tiles per layer; counts[1] = 0 means no mixup.
        inv: (2, 3, 3) float64, output pixel -> canvas pixel.
        ratio: weight of the first layer under mixup.
        hue_mode: HUE_OFF, HUE_ADDITIVE (Ultralytics) or HUE_MULTIPLICATIVE (YOLOv5/7/9).
        gains: (3,) float64 signed gains of hue, saturation and value, already multiplied by their hyper-parameters.
        flipud, fliplr: flip the finished picture.
        scratch: from make_scratch, owned by the calling thread.
    """
    height, width = dst.shape[1], dst.shape[2]
    p, q, f = scratch[ROW_P, :width], scratch[ROW_Q, :width], scratch[ROW_F, :width]
    p2, q2, f2 = scratch[ROW_P2, :width], scratch[ROW_Q2, :width], scratch[ROW_F2, :width]
    spans = np.zeros((2, 4, 4), np.int64)  # per tile: output columns lo, hi; source columns first, last
    aligned, aligned2 = _is_aligned(inv[0]), _is_aligned(inv[1])
    if aligned:
        _layer_tables(tiles, rects[0], pads[0], counts[0], inv[0], fliplr, width, spans[0], scratch, ROW_TABLES)
    if aligned2:
        _layer_tables(tiles2, rects[1], pads[1], counts[1], inv[1], fliplr, width, spans[1], scratch, ROW_TABLES + 8)
    hue_add, hue_mul = float32(0.0), float32(1.0)
    if hue_mode == HUE_ADDITIVE:
        hue_add = float32((gains[0] * 180.0) % 180.0)
    elif hue_mode == HUE_MULTIPLICATIVE:
        hue_mul = float32(1.0 + gains[0])
    sat, val = float32(max(1.0 + gains[1], 0.0)), float32(max(1.0 + gains[2], 0.0))
    first, third = (2, 0) if bgr else (0, 2)
    for row in range(height):
        y = height - 1 - row if flipud else row
        _layer_row(
            tiles, rects[0], pads[0], counts[0], inv[0], aligned, y, fliplr, spans[0], scratch, ROW_TABLES, p, q, f
        )
        if counts[1] > 0:
            _layer_row(
                tiles2, rects[1], pads[1], counts[1], inv[1], aligned2, y, fliplr, spans[1], scratch, ROW_TABLES + 8,
                p2, q2, f2,
            )  # fmt: skip
            _mix_rows(p, q, f, p2, q2, f2, ratio)
        if hue_mode == HUE_OFF:
            _plain_row(p, q, f, dst[first, row], dst[1, row], dst[third, row])
        else:
            _hsv_row(p, q, f, hue_mul, hue_add, sat, val, dst[first, row], dst[1, row], dst[third, row])
