"""The stock sequence of OpenCV calls, step by step: slower than the fused kernel, equal to the dialect.

Sources: ultralytics 8.4.190 data/augment.py (Mosaic, RandomPerspective, MixUp, RandomHSV, RandomFlip, Format);
yolov5 7.0 utils/augmentations.py and utils/dataloaders.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from fastyolo_data.datatypes import U8Image
from fastyolo_data.plan import AugmentPlan

__all__ = ["finish_exact", "mix_pictures", "warp_exact"]

GREY = (114, 114, 114, 114)


def mix_pictures(a: U8Image, b: U8Image, ratio: float) -> U8Image:
    """Mixup: ratio parts of a and the rest of b, cut off to whole levels."""
    return (a * ratio + b * (1 - ratio)).astype(np.uint8)


def finish_exact(im: U8Image, plan: AugmentPlan, row: int, additive_hue: bool) -> U8Image:
    """Colour step, flips and channel order.

    Args:
        im: (H, W, 3) uint8 BGR, the warped and mixed picture; only read.
        additive_hue: hue formula of the dialect.

    Returns:
        (3, H, W) uint8, perhaps a view of im.
    """
    if plan.hsv_active:
        im = _hsv(im, plan.hsv[row], additive_hue)
    if plan.flipud[row]:
        im = np.flipud(im)
    if plan.fliplr[row]:
        im = np.fliplr(im)
    chw = im.transpose(2, 0, 1)
    return chw if plan.bgr[row] else chw[::-1]


def warp_exact(plan: AugmentPlan, row: int, k: int, tiles: Sequence[U8Image]) -> U8Image:
    """Canvas, paste and warp of layer k.

    Args:
        tiles: (h, w, 3) uint8 BGR, those of the layer, or its finished canvas; only read.

    Returns:
        (H, W, 3) uint8 BGR, a new array.
    """
    height, width = (int(v) for v in plan.canvas[row, k])
    if len(tiles) == 1 and tiles[0].shape[:2] == (height, width):
        canvas = tiles[0]
    else:
        canvas = np.full((height, width, 3), 114, np.uint8)
        for tile, rect, pad in zip(tiles, plan.rects[row, k], plan.pads[row, k], strict=False):
            (x0, y0, x1, y1), (left, top) = rect.astype(int), pad.astype(int)
            canvas[y0:y1, x0:x1] = tile[y0 - top : y1 - top, x0 - left : x1 - left]
    h, w = plan.out_hw
    m = plan.matrix[row, k]
    if plan.projective:
        return cv2.warpPerspective(canvas, m, dsize=(w, h), borderValue=GREY)
    return cv2.warpAffine(canvas, m[:2], dsize=(w, h), borderValue=GREY)


def _hsv(im: U8Image, gains: np.ndarray, additive_hue: bool) -> U8Image:
    x = np.arange(256, dtype=np.float64)
    hue = (x + gains[0] * 180) % 180 if additive_hue else (x * (gains[0] + 1)) % 180
    table = np.stack((hue, np.clip(x * (gains[1] + 1), 0, 255), np.clip(x * (gains[2] + 1), 0, 255)), -1)
    shifted = cv2.LUT(cv2.cvtColor(im, cv2.COLOR_BGR2HSV), table.astype(np.uint8)[None])
    return cv2.cvtColor(shifted, cv2.COLOR_HSV2BGR)
