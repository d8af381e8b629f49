"""Canvases for what the fused kernel cannot read from separate tiles: tiles that cover each other, pasted objects.

The canvas is made in memory that a worker thread keeps, in the packed form of a tile, so the kernel renders it like a
single tile. Samples that need none of this never come here.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from fastyolo_data.augment.pasting import CanvasPastes
from fastyolo_data.augment.pool import PackedTile
from fastyolo_data.plan import AugmentPlan

__all__ = ["CanvasMemory", "compose_canvas"]

GREY = 0x00727272  # 114 in each of b, g, r


class CanvasMemory:
    """Canvases of one worker thread; each is valid until it is asked for again."""

    def __init__(self) -> None:
        self._memory: dict[int, np.ndarray] = {}

    def canvas(self, k: int, height: int, width: int) -> PackedTile:
        """Canvas of layer k, contents undefined."""
        memory = self._memory.get(k)
        if memory is None or memory.size < height * width:
            memory = self._memory[k] = np.empty(height * width, np.uint32)
        return memory[: height * width].reshape(height, width)


def compose_canvas(
    plan: AugmentPlan,
    row: int,
    k: int,
    tiles: Sequence[PackedTile],
    pastes: CanvasPastes | None,
    memory: CanvasMemory,
) -> PackedTile:
    """Put the tiles of a layer onto grey, in order, and paste objects; NumPy copies rows without the GIL.

    Args:
        tiles: those in use, at their final size.
        pastes: None pastes nothing.

    Returns:
        (height, width) uint32, owned by `memory`.
    """
    height, width = (int(v) for v in plan.canvas[row, k])
    canvas = memory.canvas(k, height, width)
    canvas.fill(GREY)
    rects, pads = plan.rects[row, k].astype(np.int64).tolist(), plan.pads[row, k].astype(np.int64).tolist()
    for tile, (x0, y0, x1, y1), (left, top) in zip(tiles, rects, pads, strict=False):
        canvas[y0:y1, x0:x1] = tile[y0 - top : y1 - top, x0 - left : x1 - left]
    if pastes is not None:
        _paste(canvas, pastes)
    return canvas


def _paste(canvas: PackedTile, pastes: CanvasPastes) -> None:
    """Paste mirror images of objects, all of them from the canvas as it was before.

    Only the surroundings of each object are touched: the filled outlines equal those on a mask of the whole canvas.
    """
    height, width = canvas.shape
    found = []
    for polygon in pastes.polygons:
        x0, y0 = np.maximum(polygon.min(0), 0).tolist()
        x1, y1 = np.minimum(polygon.max(0) + 1, (width, height)).tolist()
        if x0 >= x1 or y0 >= y1:
            continue
        mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
        cv2.drawContours(mask, [polygon], -1, 1, cv2.FILLED, offset=(-x0, -y0))
        here, there = canvas[y0:y1, x0:x1], canvas[y0:y1, width - x1 : width - x0]
        if pastes.mirrored:
            found.append((here, there[:, ::-1].copy(), mask.view(bool)))
        else:
            found.append((there, here[:, ::-1].copy(), mask.view(bool)[:, ::-1]))
    for place, pixels, mask in found:
        np.copyto(place, pixels, where=mask)
