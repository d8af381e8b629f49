"""The random numbers of a sample: which slot of its streams means what.

A sample's numbers come from the streams of (seed, epoch, image index, repeat), see `streams`. Slot k always means the
same thing, so switching one augmentation off leaves all other draws as they were.

A *layer* is a picture before the colour step, with the role that its number says: 0 the sample's own, 1 its mixup
partner, 2 its cutmix partner, 3 to 5 the pictures from which objects are copied into layers 0 to 2, and from SOURCES on
the mosaics from which paste_in takes objects. Most runs plan the first two only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastyolo_data.plan.order import EpochOrder
from fastyolo_data.plan.streams import MORE, SAMPLE, Streams

__all__ = ["ROLES", "SOURCES", "draw_batch", "layer_slots", "more_slots", "paste_order"]

F64 = npt.NDArray[np.float64]

SOURCES = 6
ROLES = SOURCES + 8

# Layers 0 and 1 take LAYER slots each.
GATE, CENTRE, PARTNER, PERSPECTIVE, ANGLE, SCALE, SHEAR, TRANSLATE, PLACES = 0, 1, 3, 6, 8, 9, 10, 12, 14
LAYER = 18
MIX_GATE, MIX_INDEX, HSV, FLIPUD, FLIPLR, BGR = (2 * LAYER + k for k in (0, 1, 2, 5, 6, 7))
BASE = 2 * LAYER + 8

# What came later has a stream of its own, so that the numbers above stay what they were. MORE_LAYER slots per layer:
# which kind of mosaic, the partners that only nine pictures need, and the key of what is pasted.
NINE, PARTNER9, PASTE = 0, 1, 6
MORE_LAYER = 7
# Then the other layers as above, their images, gates, the three areas of cutmix (size, x, y) with the choice of one,
# and the places of paste_in (SPOT slots each: gate, height, width, x, y, choice of an object).
OTHERS = BASE + ROLES * MORE_LAYER
HEADS = OTHERS + (ROLES - 2) * LAYER
CUT_GATE, COPY_GATE, AREAS, AREA_PICK = (HEADS + ROLES - 2 + k for k in (0, 1, 4, 13))
PASTE_IN = AREA_PICK + 1
SPOTS = PASTE_IN + 1
SPOT = 6
SPOT_SCALES = (0.75,) * 2 + (0.5,) * 4 + (0.25,) * 4 + (0.125,) * 4 + (0.0625,) * 6  # of the picture's side
SLOTS = SPOTS + len(SPOT_SCALES) * SPOT

_STEP, _MIX1, _MIX2 = (np.uint64(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


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
    return np.concatenate((first, u[:, OTHERS : OTHERS + (roles - 2) * LAYER].reshape(len(u), -1, LAYER)), 1)


def more_slots(u: F64, roles: int) -> F64:
    """The MORE_LAYER slots of the first layers: (B, roles, MORE_LAYER)."""
    return u[:, BASE:OTHERS].reshape(len(u), ROLES, MORE_LAYER)[:, :roles]


def paste_order(key: np.uint64, n: int) -> npt.NDArray[np.int64]:
    """A random order of range(n), for draws among candidates whose number the plan cannot know.

    By the numbers that SplitMix64 makes of a key and a counter.

    Source: G. Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    z = np.uint64(key) + np.arange(1, n + 1, dtype=np.uint64) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable")
