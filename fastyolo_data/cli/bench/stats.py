"""Numbers about repeated measurements, and the order in which they are made."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["interleave", "median_mad"]

T = TypeVar("T")


def median_mad(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the median absolute deviation from it; (nan, nan) for no values."""
    if not values:
        return float("nan"), float("nan")
    middle = statistics.median(values)
    return middle, statistics.median(abs(v - middle) for v in values)


def interleave(items: Sequence[T], passes: int) -> list[T]:
    """Return each item `passes` times, in the order AB BA AB BA …: a slow drift of the machine then hits all alike."""
    order: list[T] = []
    for k in range(passes):
        order.extend(items if k % 2 == 0 else reversed(items))
    return order
