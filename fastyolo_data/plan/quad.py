"""Which quads of a batch are one picture enlarged, and which four pictures side by side (`--quad` of YOLOv5/7/9)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastyolo_data.plan.order import EpochOrder
from fastyolo_data.plan.streams import QUAD, Streams

__all__ = ["plan_quads"]

ENLARGED = 0.5  # share of quads; collate_fn4 of yolov5 7.0 utils/dataloaders.py


def plan_quads(order: EpochOrder, seed: int, epoch: int, start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Draw the kind of every quad of the samples at positions start:stop.

    Returns:
        ((stop - start) // 4,) True where the quad's first picture is enlarged, False where its four are tiled.
    """
    streams = Streams(seed, epoch)
    heads = range(start, start + (stop - start) // 4 * 4, 4)
    draws = [streams.at(QUAD, int(order.mine[p]), int(order.repeat[p])).random() for p in heads]
    return np.array(draws) < ENLARGED
