"""The random numbers of a sample: which slot of its streams means what.

A sample's numbers come from the streams of (seed, epoch, image index, repeat), see `streams`. Slot k always means the
same thing, so switching one augmentation off leaves all other draws as they were.

A *layer* is a picture before the colour step, with the role that its number says: 0 the sample's own, 1 its mixup
partner, 2 its cutmix partner, and 3 to 5 the pictures from which objects are copied into layers 0 to 2. Most runs plan
the first two only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastyolo_data.plan.order import EpochOrder
from fastyolo_data.plan.streams import MORE, SAMPLE, Streams

__all__ = ["ROLES", "draw_batch", "layer_slots", "more_slots"]

F64 = npt.NDArray[np.float64]

ROLES = 6

# Layers 0 and 1 take LAYER slots each.
GATE, CENTRE, PARTNER, PERSPECTIVE, ANGLE, SCALE, SHEAR, TRANSLATE, PLACES = 0, 1, 3, 6, 8, 9, 10, 12, 14
LAYER = 18
MIX_GATE, MIX_INDEX, HSV, FLIPUD, FLIPLR, BGR = (2 * LAYER + k for k in (0, 1, 2, 5, 6, 7))
BASE = 2 * LAYER + 8

# What came later has a stream of its own, so that the numbers above stay what they were. MORE_LAYER slots per layer:
# which kind of mosaic, the partners that only nine pictures need, and the key of what is pasted.
NINE, PARTNER9, PASTE = 0, 1, 6
MORE_LAYER = 7
# Then layers 2 to 5 as above, their images, gates, and the three areas of cutmix (size, x, y) with the choice of one.
OTHERS = BASE + ROLES * MORE_LAYER
HEADS = OTHERS + (ROLES - 2) * LAYER
CUT_GATE, COPY_GATE, AREAS, AREA_PICK = (HEADS + ROLES - 2 + k for k in (0, 1, 4, 13))
SLOTS = AREA_PICK + 1


def draw_batch(
    order: EpochOrder, start: int, stop: int, streams: Streams, beta: float | None, more: bool
) -> tuple[F64, F64]:
    """Draw for the samples at positions start:stop.

    Args:
        beta: both parameters of the mixup ratio's Beta distribution; None draws none.
        more: whether the later slots are needed; else they stay 0.

    Returns:
        Uniform numbers (B, SLOTS) and mixup ratios (B,), 1 where none is drawn.
    """
    u, ratio = np.zeros((stop - start, SLOTS)), np.ones(stop - start)
    for row, position in enumerate(range(start, stop)):
        key, repeat = int(order.mine[position]), int(order.repeat[position])
        rng = streams.at(SAMPLE, key, repeat)
        rng.random(out=u[row, :BASE])
        if beta is not None:
            ratio[row] = rng.beta(beta, beta)
        if more:
            streams.at(MORE, key, repeat).random(out=u[row, BASE:])
    return u, ratio


def layer_slots(u: F64, roles: int) -> F64:
    """The LAYER slots of the first layers: (B, roles, LAYER)."""
    first = u[:, : 2 * LAYER].reshape(len(u), 2, LAYER)
    if roles == 2:
        return first
    return np.concatenate((first, u[:, OTHERS:HEADS].reshape(len(u), ROLES - 2, LAYER)), 1)


def more_slots(u: F64, roles: int) -> F64:
    """The MORE_LAYER slots of the first layers: (B, roles, MORE_LAYER)."""
    return u[:, BASE:OTHERS].reshape(len(u), ROLES, MORE_LAYER)[:, :roles]
