"""Sizes, places and matrices of one sample, with Python's own scalars."""

from __future__ import annotations

import math

import cv2
import numpy as np


def tile_size(h0: int, w0: int, imgsz: int, rounding: str) -> tuple[int, int]:
    """Height and width after the resize that makes the long side imgsz."""
    r = imgsz / max(h0, w0)
    if r == 1:
        return h0, w0
    if rounding == "floor":
        h, w = int(h0 * r), int(w0 * r)
    else:
        h, w = math.ceil(h0 * r), math.ceil(w0 * r)
        if rounding == "ceil_cap":
            h, w = min(h, imgsz), min(w, imgsz)
    return max(h, 1), max(w, 1)


def letterbox(h: int, w: int, out_h: int, out_w: int, scaleup: bool) -> dict:
    """Ratio, size, place (rounded) and offset (not rounded) of a picture in its letterbox."""
    r = min(out_h / h, out_w / w)
    if not scaleup:
        r = min(r, 1.0)
    new_h, new_w = max(round(h * r), 1), max(round(w * r), 1)  # round() is half to even, as NumPy's rint
    dh, dw = (out_h - new_h) / 2, (out_w - new_w) / 2
    place = {"top": round(dh - 0.1), "bottom": round(dh + 0.1), "left": round(dw - 0.1), "right": round(dw + 0.1)}
    return {"ratio": r, "size": (new_h, new_w), "offset": (dw, dh), **place}


def letterbox_image(im: np.ndarray, top: int, left: int, out_h: int, out_w: int, grey: int = 114) -> np.ndarray:
    """Place a picture on grey."""
    bottom, right = out_h - top - im.shape[0], out_w - left - im.shape[1]
    return cv2.copyMakeBorder(im, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(grey,) * 3)


def matrix(canvas, out, perspective=(0.0, 0.0), angle=0.0, scale=1.0, shear=(0.0, 0.0), translate=(0.5, 0.5)):
    """Canvas pixel -> output pixel: centre, perspective, rotation and zoom, shear, translation; sizes are h, w."""
    c, p, r, s, t = (np.eye(3) for _ in range(5))
    c[0, 2], c[1, 2] = -canvas[1] / 2, -canvas[0] / 2
    p[2, 0], p[2, 1] = perspective
    r[:2] = cv2.getRotationMatrix2D(center=(0, 0), angle=angle, scale=scale)
    s[0, 1], s[1, 0] = math.tan(math.radians(shear[0])), math.tan(math.radians(shear[1]))
    t[0, 2], t[1, 2] = translate[0] * out[1], translate[1] * out[0]
    return t @ s @ r @ p @ c


def rect_shapes(aspects: list[float], batch: int, imgsz: int, stride: int, pad: float) -> list[tuple[int, int]]:
    """Height and width of each rect batch; aspects are h / w in the order of the batches."""
    out = []
    for start in range(0, len(aspects), batch):
        low, high = min(aspects[start : start + batch]), max(aspects[start : start + batch])
        shape = (high, 1.0) if high < 1 else (1.0, 1 / low) if low > 1 else (1.0, 1.0)
        out.append(tuple(math.ceil(v * imgsz / stride + pad) * stride for v in shape))
    return out
