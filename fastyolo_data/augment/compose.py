"""Canvases for what the fused kernel cannot read from separate tiles: mosaics whose tiles cover each other.

The canvas is made in memory that a worker thread keeps, in the packed form of a tile, so the kernel renders it like a
single tile. Samples that need none of this never come here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastyolo_data.augment.pool import PackedTile
from fastyolo_data.plan import AugmentPlan

__all__ = ["CanvasMemory", "compose_canvas"]

GREY = 0x00727272  # 114 in each of b, g, r


class CanvasMemory:
    """Canvases of one worker thread; each is valid until it is asked for again."""

    def __init__(self) -> None:
        self._canvases: dict[int, PackedTile] = {}

    def canvas(self, k: int, height: int, width: int) -> PackedTile:
        """Canvas of layer k, contents undefined."""
        canvas = self._canvases.get(k)
        if canvas is None or canvas.shape != (height, width):
            canvas = self._canvases[k] = np.empty((height, width), np.uint32)
        return canvas


def compose_canvas(
    plan: AugmentPlan, row: int, k: int, tiles: Sequence[PackedTile], memory: CanvasMemory
) -> PackedTile:
    """Paste the tiles of a layer onto grey, in order; NumPy copies rows without the GIL.

    Args:
        tiles: those in use, at their final size.

    Returns:
        (height, width) uint32, owned by `memory`.
    """
    height, width = (int(v) for v in plan.canvas[row, k])
    canvas = memory.canvas(k, height, width)
    canvas.fill(GREY)
    rects, pads = plan.rects[row, k].astype(np.int64).tolist(), plan.pads[row, k].astype(np.int64).tolist()
    for tile, (x0, y0, x1, y1), (left, top) in zip(tiles, rects, pads, strict=False):
        canvas[y0:y1, x0:x1] = tile[y0 - top : y1 - top, x0 - left : x1 - left]
    return canvas
