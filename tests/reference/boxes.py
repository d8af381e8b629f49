"""What kernels/boxes.py computes, one box at a time in NumPy."""

from __future__ import annotations

import cv2
import numpy as np


def project(m: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(k, 2) points through a 3 x 3 matrix."""
    homogeneous = np.concatenate((points, np.ones((len(points), 1))), 1) @ m.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return homogeneous[:, :2] / homogeneous[:, 2:]


def bounds(points: np.ndarray) -> np.ndarray:
    """x0 y0 x1 y1 of points, zeros when there is none."""
    return np.r_[points.min(0), points.max(0)] if len(points) else np.zeros(4)


def box_after_warp(m: np.ndarray, xyxy: np.ndarray) -> np.ndarray:
    """Bounds of the four projected corners."""
    x0, y0, x1, y1 = xyxy
    return bounds(project(m, np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])))


def resample(points: np.ndarray, n: int, keep_vertices: bool) -> np.ndarray:
    """n points along a closed polygon, evenly spread by vertex number; with keep_vertices the vertices are among them.

    A polygon that has n points or more once it is closed stays as it is under keep_vertices.
    """
    closed = np.concatenate((points, points[:1]))
    at = np.arange(len(closed), dtype=np.float64)
    if not keep_vertices:
        where = np.linspace(0, len(points), n)
    elif len(closed) < n:
        where = np.sort(np.concatenate((at, np.linspace(0, len(points), n - len(closed)))))
    else:
        where = at
    return np.stack([np.interp(where, at, closed[:, k]) for k in range(2)], 1)


def visible_bounds(points: np.ndarray, h: float, w: float, samples: int | None = None) -> np.ndarray:
    """Bounds of polygon and picture's intersection, by walking every edge in small steps, and the picture's corners."""
    samples = samples or max(21, 20000 // len(points))
    edges = np.linspace(points, np.roll(points, -1, 0), samples).reshape(-1, 2)
    seen = [edges[(edges >= 0).all(1) & (edges <= (w, h)).all(1)]]
    contour = points.astype(np.float32).reshape(-1, 1, 2)
    corners = [(0.0, 0.0), (w, 0.0), (0.0, h), (w, h)]
    seen.append(np.array([c for c in corners if cv2.pointPolygonTest(contour, c, False) >= 0]).reshape(-1, 2))
    return bounds(np.concatenate(seen))


def inside_bounds(points: np.ndarray, h: float, w: float) -> np.ndarray:
    """Bounds of the points that lie in the picture."""
    return bounds(points[(points >= 0).all(1) & (points <= (w, h)).all(1)])


def polygon_after_warp(m, points, hw, pad, canvas, clip, out_hw, visible: bool) -> np.ndarray:
    """Box of one normalised polygon in the output: the order of clipping and resampling differs between dialects."""
    pixels = points * (hw[1], hw[0]) + pad
    if not visible:
        pixels = np.clip(pixels, 0, (canvas[1], canvas[0])) if clip else pixels
        return inside_bounds(project(m, resample(pixels, 1000, False)), *out_hw)
    outside = (pixels < 0).any() or (pixels > (canvas[1], canvas[0])).any()
    if clip and outside:
        pixels = np.clip(resample(pixels, 1000, True), 0, (canvas[1], canvas[0]))
    return visible_bounds(project(m, pixels), *out_hw)


def is_candidate(before: np.ndarray, after: np.ndarray, scale: float, min_area: float, max_aspect: float) -> bool:
    """Whether a box is still usable after the warp."""
    w1, h1 = (before[2] - before[0]) * scale, (before[3] - before[1]) * scale
    w2, h2 = after[2] - after[0], after[3] - after[1]
    if not (w2 > 2 and h2 > 2):
        return False
    return bool(w2 * h2 / (w1 * h1 + 1e-16) > min_area and max(w2 / h2, h2 / w2) < max_aspect)


def warp_labels(tiles, canvas, clip, m, scale, out_hw, visible, max_aspect):
    """Labels of one layer on the output picture.

    Args:
        tiles: per tile (hw, pad, cls (n,), xywhn (n, 4), polygons: list of (k, 2) or None).

    Returns:
        cls list, (k, 4) xyxy.
    """
    has_polygons = any(p is not None and len(p) for t in tiles for p in t[4])
    min_area = 0.01 if has_polygons else 0.1
    kept_cls, kept = [], []
    for hw, pad, cls, xywhn, polygons in tiles:
        for c, (x, y, w, h), points in zip(cls, xywhn.astype(np.float64), polygons, strict=True):
            before = np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2]) * (hw[1], hw[0], hw[1], hw[0])
            before += (pad[0], pad[1], pad[0], pad[1])
            if clip:
                before = np.clip(before, 0, (canvas[1], canvas[0], canvas[1], canvas[0]))
            if before[2] <= before[0] or before[3] <= before[1]:
                continue
            if points is not None and len(points):
                after = polygon_after_warp(m, points.astype(np.float64), hw, pad, canvas, clip, out_hw, visible)
            else:
                after = box_after_warp(m, before)
            after = np.clip(after, 0, (out_hw[1], out_hw[0], out_hw[1], out_hw[0]))
            if is_candidate(before, after, scale, min_area, max_aspect):
                kept_cls.append(float(c))
                kept.append(after)
    return kept_cls, np.array(kept).reshape(-1, 4)


def finish(xyxy: np.ndarray, hw, margin: float, flipud: bool, fliplr: bool) -> np.ndarray:
    """Pixel xyxy -> normalised xywh of the flipped picture."""
    h, w = hw
    if margin >= 0:
        xyxy = np.clip(xyxy, 0, (w - margin, h - margin, w - margin, h - margin))
    x0, y0, x1, y1 = xyxy.T
    if fliplr:
        x0, x1 = w - x1, w - x0
    if flipud:
        y0, y1 = h - y1, h - y0
    return np.stack(((x0 + x1) / 2 / w, (y0 + y1) / 2 / h, (x1 - x0) / w, (y1 - y0) / h), 1)
