"""Sizes and places: tile size, letterbox, mosaic layout, warp matrix. Everything for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.hyp import Dialect

__all__ = [
    "Letterbox",
    "cut_areas",
    "invert",
    "letterbox",
    "mosaic9_layout",
    "mosaic_layout",
    "paste_spots",
    "tile_shape",
    "warp_matrix",
]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

SPOT_SKIP = 0.2  # share of the places that paste_in leaves alone


def tile_shape(hw: npt.ArrayLike, imgsz: int, dialect: Dialect) -> I64:
    """Size of an image after the resize that makes its long side imgsz.

    Args:
        hw: (..., 2) original height and width.

    Returns:
        (..., 2) int64 height and width, at least 1.

    Source: load_image of ultralytics 8.4.190 (data/base.py), yolov5 7.0.14 and yolov9 (utils/dataloaders.py).
    """
    hw = np.asarray(hw, np.int64)
    ratio = imgsz / hw.max(-1, keepdims=True)
    scaled = hw * ratio
    if dialect.rounding == "floor":
        out = scaled.astype(np.int64)
    else:
        out = np.ceil(scaled).astype(np.int64)
        if dialect.rounding == "ceil_cap":
            out = np.minimum(out, imgsz)
    return np.where(ratio == 1, hw, np.maximum(out, 1))


@dataclass(frozen=True)
class Letterbox:
    """Places of B pictures in their letterboxes.

    Attributes:
        ratio: (B,) resize factor.
        new_hw: (B, 2) int64 size after the resize.
        top, left: (B,) int64 place of the picture.
        pad: (B, 2) float64 x, y offset that the labels use.
    """

    ratio: F64
    new_hw: I64
    top: I64
    left: I64
    pad: F64


def letterbox(hw: I64, out_hw: I64, scaleup: bool, float_pads: bool) -> Letterbox:
    """Fit pictures of size hw (B, 2) centred into out_hw (B, 2).

    Source: LetterBox of ultralytics 8.4.190 (data/augment.py), letterbox of yolov5 7.0 (utils/augmentations.py).
    """
    ratio = (out_hw / hw).min(-1)
    if not scaleup:
        ratio = np.minimum(ratio, 1.0)
    new_hw = np.maximum(np.rint(hw * ratio[:, None]), 1).astype(np.int64)
    slack = (out_hw - new_hw) / 2
    place = np.rint(slack - 0.1).astype(np.int64)
    pad = slack[:, ::-1] if float_pads else place[:, ::-1].astype(np.float64)
    return Letterbox(ratio, new_hw, place[:, 0], place[:, 1], np.ascontiguousarray(pad))


def mosaic_layout(tile_hw: I64, centre: I64, imgsz: int) -> tuple[F64, F64]:
    """Place four tiles around a centre: top left, top right, bottom left, bottom right.

    Args:
        tile_hw: (..., 4, 2) tile sizes.
        centre: (..., 2) y, x on a canvas of twice imgsz.

    Returns:
        rects (..., 4, 4) visible x0 y0 x1 y1 on the canvas, and pads (..., 4, 2) x, y of each tile's origin.
    """
    h, w = tile_hw[..., 0], tile_hw[..., 1]
    yc, xc = centre[..., 0, None], centre[..., 1, None]
    x0 = xc - w * np.array([1, 0, 1, 0])
    y0 = yc - h * np.array([1, 1, 0, 0])
    rects = np.stack(
        (np.maximum(x0, 0), np.maximum(y0, 0), np.minimum(x0 + w, 2 * imgsz), np.minimum(y0 + h, 2 * imgsz)), -1
    )
    return rects.astype(np.float64), np.stack((x0, y0), -1).astype(np.float64)


def mosaic9_layout(tile_hw: I64, offset: I64, imgsz: int) -> tuple[F64, F64]:
    """Place nine tiles in a spiral on a canvas of three times imgsz and look at a window of twice imgsz.

    The first tile lies in the middle, with its corner at imgsz; each other one touches it or the one before, clockwise
    from above. Tiles overlap where sizes differ: the later one covers.

    Args:
        tile_hw: (..., 9, 2) tile sizes, at most imgsz.
        offset: (..., 2) y, x of the window.

    Returns:
        rects (..., 9, 4) x0 y0 x1 y1 in the window, empty where a tile lies outside; pads (..., 9, 2) x, y of origins.

    Source: load_mosaic9 of yolov7 (utils/datasets.py).
    """
    h, w = np.moveaxis(tile_hw[..., 0], -1, 0), np.moveaxis(tile_hw[..., 1], -1, 0)
    zero = np.zeros_like(h[0])
    x0 = np.stack((zero, zero, w[1], w[0], w[0], w[0] - w[5], w[0] - w[5] - w[6], -w[7], -w[8]), -1)
    y0 = np.stack((zero, -h[1], -h[2], zero, h[3], h[0], h[0], h[0] - h[7], h[0] - h[7] - h[8]), -1)
    x0, y0 = x0 + imgsz - offset[..., 1, None], y0 + imgsz - offset[..., 0, None]
    edges = np.stack((x0, y0, x0 + tile_hw[..., 1], y0 + tile_hw[..., 0]), -1)
    return np.clip(edges, 0, 2 * imgsz).astype(np.float64), np.stack((x0, y0), -1).astype(np.float64)


def cut_areas(u: F64, out_hw: tuple[int, int]) -> I64:
    """Rectangles of random size and place.

    Args:
        u: (..., 3) uniform numbers: share of the picture that stays, x and y of the middle.

    Returns:
        (..., 4) int64 x0 y0 x1 y1, clipped to the picture.

    Source: CutMix of ultralytics 8.4.190 (data/augment.py); Beta(1, 1) is uniform.
    """
    size = np.array(out_hw[::-1])
    half = (size * np.sqrt(1.0 - u[..., :1])).astype(np.int64) // 2
    middle = (u[..., 1:] * size).astype(np.int64)
    return np.concatenate((np.maximum(middle - half, 0), np.minimum(middle + half, size)), -1)


def paste_spots(u: F64, scales: tuple[float, ...], out_hw: tuple[int, int]) -> I64:
    """Random boxes on a picture, one for each scale; one in five is empty.

    Args:
        u: (B, n, 5) uniform numbers: gate, height, width, x and y of the middle.
        scales: n largest shares of the picture's sides.

    Returns:
        (B, n, 4) int64 x0 y0 x1 y1, clipped to the picture.

    Source: pastein of yolov7 (utils/datasets.py).
    """
    hw = np.array(out_hw)
    size = 1 + (u[..., 1:3] * (np.array(scales)[:, None] * hw).astype(np.int64)).astype(np.int64)
    low = np.maximum((u[..., 4:2:-1] * (hw + 1)).astype(np.int64) - size // 2, 0)
    high = np.minimum(low + size, hw)
    boxes = np.concatenate((low[..., ::-1], high[..., ::-1]), -1)
    return np.where(u[..., :1] < SPOT_SKIP, 0, boxes)


def warp_matrix(
    canvas: F64, out_hw: F64, perspective: F64, angle: F64, scale: F64, shear: F64, translate: F64, dialect: Dialect
) -> F64:
    """Compose M = T S R P C, canvas pixel -> output pixel, for B layers.

    Args:
        canvas, out_hw: (B, 2) height, width.
        perspective: (B, 2) coefficients of x and y.
        angle, scale: (B,) degrees (counter-clockwise) and factor.
        shear: (B, 2) degrees in x and y.
        translate: (B, 2) x, y place of the canvas centre, as a fraction of the output.

    Returns:
        (B, 3, 3) float64, rounded as the dialect computes it.

    Source: ultralytics 8.4.190 data/augment.py RandomPerspective; yolov5 7.0 utils/augmentations.py.
    """
    dtype = np.float32 if dialect.float32_matrix else np.float64
    c, p, r, s, t = (np.tile(np.eye(3, dtype=dtype), (len(canvas), 1, 1)) for _ in range(5))
    c[:, 0, 2], c[:, 1, 2] = -canvas[:, 1] / 2, -canvas[:, 0] / 2
    p[:, 2, :2] = perspective
    alpha, beta = scale * np.cos(np.radians(angle)), scale * np.sin(np.radians(angle))
    r[:, 0, 0], r[:, 0, 1], r[:, 1, 0], r[:, 1, 1] = alpha, beta, -beta, alpha
    s[:, 0, 1], s[:, 1, 0] = np.tan(np.radians(shear[:, 0])), np.tan(np.radians(shear[:, 1]))
    t[:, 0, 2], t[:, 1, 2] = translate[:, 0] * out_hw[:, 1], translate[:, 1] * out_hw[:, 0]
    return (t @ s @ r @ p @ c).astype(np.float64)


def invert(m: F64) -> F64:
    """Invert (B, 3, 3) warp matrices; exact zeros of affine ones stay exact, and their corner is exactly 1.

    Perspective ones are not normalised: the corner is 0 when the horizon meets the first pixel, and where the third
    coordinate is positive the picture is in front of the viewer.
    """
    inv = np.linalg.inv(m)
    affine = (m[:, 2, 0] == 0) & (m[:, 2, 1] == 0)
    inv[affine] /= inv[affine, 2:, 2:]
    inv[affine, 2, :2] = 0.0
    inv[affine & (m[:, 0, 1] == 0), 0, 1] = 0.0
    inv[affine & (m[:, 1, 0] == 0), 1, 0] = 0.0
    return inv
