"""What kernels/warp.py computes, pixel by pixel in float64, and OpenCV's colour chain."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

GREY = 114.0


def pack(im: np.ndarray) -> np.ndarray:
    """(h, w, 3) uint8 BGR -> (h, w) uint32, b | g << 8 | r << 16; the unused byte holds rubbish on purpose."""
    b, g, r = (im[..., c].astype(np.uint32) for c in range(3))
    return np.ascontiguousarray(b | (g << 8) | (r << 16) | np.uint32(0xA5000000))


def place_mosaic(sizes: Sequence[tuple[int, int]], yc: int, xc: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Rects and origins of four tiles that meet at (xc, yc) on a canvas of 2s x 2s."""
    rects, pads = np.zeros((4, 4)), np.zeros((4, 2))
    for t, (h, w) in enumerate(sizes):
        left = xc - w if t in (0, 2) else xc
        top = yc - h if t in (0, 1) else yc
        pads[t] = left, top
        rects[t] = max(left, 0), max(top, 0), min(left + w, 2 * s), min(top + h, 2 * s)
    return rects, pads


def canvas_positions(inverse: np.ndarray, h: int, w: int) -> tuple[np.ndarray, np.ndarray]:
    """Canvas x and y of every output pixel, (h, w) each; not finite where the denominator is 0."""
    y, x = np.mgrid[:h, :w].astype(np.float64)
    n, m, d = (inverse[k, 0] * x + inverse[k, 1] * y + inverse[k, 2] for k in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        return n / d, m / d


def bilinear(tile: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(k, 3) float64 samples of a tile at positions clamped to it."""
    h, w = tile.shape[:2]
    x, y = np.clip(x, 0, w - 1), np.clip(y, 0, h - 1)
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    x1, y1 = np.minimum(x0 + 1, w - 1), np.minimum(y0 + 1, h - 1)
    wx, wy = (x - x0)[:, None], (y - y0)[:, None]
    t = tile.astype(np.float64)
    upper = t[y0, x0] * (1 - wx) + t[y0, x1] * wx
    lower = t[y1, x0] * (1 - wx) + t[y1, x1] * wx
    return upper * (1 - wy) + lower * wy


def layer(tiles: Sequence[np.ndarray], rects: np.ndarray, pads: np.ndarray, inverse: np.ndarray, hw: tuple[int, int]):
    """One layer, (h, w, 3) float64 BGR: every pixel from the tile that its canvas position rounds into, else grey."""
    x, y = canvas_positions(inverse, *hw)
    out = np.full((*hw, 3), GREY)
    for tile, (x0, y0, x1, y1), (left, top) in zip(tiles, rects, pads, strict=False):
        inside = (x >= x0 - 0.5) & (x < x1 - 0.5) & (y >= y0 - 0.5) & (y < y1 - 0.5)
        out[inside] = bilinear(tile, x[inside] - left, y[inside] - top)
    return out


def ambiguous(rects: np.ndarray, inverse: np.ndarray, hw: tuple[int, int], eps: float = 1e-6) -> np.ndarray:
    """(h, w) bool: pixels whose tile is decided by the last bits of a float, as they lie on an edge between tiles."""
    x, y = canvas_positions(inverse, *hw)
    close = np.zeros(hw, bool)
    for x0, y0, x1, y1 in rects:
        close |= (np.abs(x - x0 + 0.5) < eps) | (np.abs(x - x1 + 0.5) < eps)
        close |= (np.abs(y - y0 + 0.5) < eps) | (np.abs(y - y1 + 0.5) < eps)
    return close


def mix(a: np.ndarray, b: np.ndarray, ratio: float) -> np.ndarray:
    """MixUp of two uint8 pictures: float64, fraction cut off."""
    return (a * ratio + b * (1 - ratio)).astype(np.uint8)


def hsv(im: np.ndarray, gains: Sequence[float], additive: bool) -> np.ndarray:
    """Hue, saturation and value jitter of a uint8 BGR picture through OpenCV's 8-bit HSV and look-up tables."""
    x = np.arange(256, dtype=np.float64)
    hue = (x + gains[0] * 180) % 180 if additive else (x * (1 + gains[0])) % 180
    sat = np.clip(x * (1 + gains[1]), 0, 255)
    val = np.clip(x * (1 + gains[2]), 0, 255)
    h, s, v = cv2.split(cv2.cvtColor(im, cv2.COLOR_BGR2HSV))
    tables = [t.astype(np.uint8) for t in (hue, sat, val)]
    shifted = cv2.merge([cv2.LUT(c, t) for c, t in zip((h, s, v), tables, strict=True)])
    return cv2.cvtColor(shifted, cv2.COLOR_HSV2BGR)


def finish(im: np.ndarray, flipud: bool, fliplr: bool, bgr: bool) -> np.ndarray:
    """Flips, channel order, channels first."""
    im = np.flipud(im) if flipud else im
    im = np.fliplr(im) if fliplr else im
    return (im if bgr else im[..., ::-1]).transpose(2, 0, 1)


def place_mosaic9(sizes, yc: int, xc: int, s: int) -> tuple[list[list[int]], list[list[int]]]:
    """Visible x0 y0 x1 y1 and origin of nine tiles in a window at (yc, xc) of their common canvas of side 3 s."""
    (h0, w0), rects, pads = sizes[0], [], []
    hp = wp = 0
    for i, (h, w) in enumerate(sizes):
        x, y = [
            (0, 0), (0, -h), (wp, -h), (w0, 0), (w0, hp), (w0 - w, h0), (w0 - wp - w, h0), (-w, h0 - h),
            (-w, h0 - hp - h),
        ][i]  # fmt: skip
        x, y = x + s - xc, y + s - yc
        rects.append([min(max(v, 0), 2 * s) for v in (x, y, x + w, y + h)])
        pads.append([x, y])
        hp, wp = h, w
    return rects, pads
