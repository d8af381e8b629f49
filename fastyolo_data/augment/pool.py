"""The tiles in use: shared by all workers, each decoded once while it is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image

__all__ = ["PackedTile", "TilePool"]

PackedTile = npt.NDArray[np.uint32]  # (h, w), one pixel per element: b | g << 8 | r << 16


class _Slot:
    __slots__ = ("error", "memory", "pins", "ready", "tile")

    def __init__(self, memory: npt.NDArray[np.uint32]) -> None:
        self.memory = memory
        self.tile: PackedTile = memory[:0].reshape(0, 0)
        self.pins = 0
        self.ready = False
        self.error: BaseException | None = None


class TilePool:
    """First-in-first-out cache of packed tiles.

    `capacity` tiles stay; more exist only while they are pinned. Memory of evicted tiles is used again, so a running
    loader allocates nothing. Correctness never depends on what is in here: a missing tile is loaded.

    Args:
        capacity: tiles kept.
        pixels: pixels of the largest tile.
    """

    def __init__(self, capacity: int, pixels: int) -> None:
        self._capacity = capacity
        self._pixels = pixels
        self._changed = threading.Condition()
        self._slots: dict[int, _Slot] = {}

    def acquire(self, index: int, load: Callable[[int], U8Image]) -> PackedTile:
        """Return tile `index`, loading it unless it is here; a tile that another thread loads is waited for.

        The tile stays valid and unchanged until `release(index)`. Must be called once per acquire, by any thread.
        """
        with self._changed:
            slot = self._slots.get(index)
            mine = slot is None
            if slot is None:
                slot = self._slots[index] = _Slot(self._memory())
            slot.pins += 1
            if not mine:
                while not slot.ready:
                    self._changed.wait(1.0)  # the loading thread always ends by setting ready
                if slot.error is not None:
                    slot.pins -= 1
                    raise slot.error
                return slot.tile
        try:
            slot.tile = _pack(load(index), slot.memory)
            return slot.tile
        except BaseException as error:
            slot.error = error
            with self._changed:
                del self._slots[index]
            raise
        finally:
            with self._changed:
                slot.ready = True
                self._changed.notify_all()

    def release(self, index: int) -> None:
        """Give a tile back."""
        with self._changed:
            self._slots[index].pins -= 1

    def _memory(self) -> npt.NDArray[np.uint32]:
        """Memory for one more tile: of the oldest tile that nobody uses when the pool is full."""
        if len(self._slots) >= self._capacity:
            for index, slot in self._slots.items():
                if slot.pins == 0:
                    del self._slots[index]
                    return slot.memory
        return np.empty(self._pixels, np.uint32)


def _pack(im: U8Image, memory: npt.NDArray[np.uint32]) -> PackedTile:
    h, w = im.shape[:2]
    tile = memory[: h * w].reshape(h, w)
    cv2.cvtColor(im, cv2.COLOR_BGR2BGRA, dst=tile.view(np.uint8).reshape(h, w, 4))
    return tile
