"""Counter-based random numbers: a stream for every (seed, epoch, key), reachable in any order.

Philox 4x64 (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is keyed by seed and epoch;
the counter holds the sample's identity. So a sample's numbers do not depend on who draws them, when, or what was drawn
before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["MORE", "ORDER", "QUAD", "SAMPLE", "Streams"]

_MASK = (1 << 64) - 1
SAMPLE, ORDER, MORE, QUAD = 0, 1, 2, 3  # purposes; part of the counter, so their numbers never meet


class Streams:
    """The random streams of one (seed, epoch). Not shared between threads.

    Args:
        seed: any integer.
        epoch: epoch number >= 0.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed & _MASK, epoch & _MASK], np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def at(self, purpose: int, key: int = 0, repeat: int = 0) -> np.random.Generator:
        """Return the generator, placed at the start of the stream of (purpose, key, repeat).

        The same object is returned every time: use it before the next call.
        """
        counter = self._state["state"]["counter"]
        counter[:] = (0, repeat, key, purpose)
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._bits.state = self._state
        return self._generator

    def permutation(self, n: int) -> npt.NDArray[np.int64]:
        """A random order of range(n)."""
        return self.at(ORDER).permutation(n)

    def choices(self, weights: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.int64]:
        """n draws with replacement, index i with a probability proportional to weights[i]."""
        edges = np.cumsum(weights)
        picks = np.searchsorted(edges, self.at(ORDER).random(n) * edges[-1], side="right")
        return np.minimum(picks, len(weights) - 1)
