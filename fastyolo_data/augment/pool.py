"""The tiles in use: shared by all workers, each decoded once while it is wanted."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image

__all__ = ["PackedTile", "TilePool"]

PackedTile = npt.NDArray[np.uint32]  # (h, w), one pixel per element: b | g << 8 | r << 16


class _Slot:
    __slots__ = ("error", "memory", "pins", "ready", "tile", "wanted_until")

    def __init__(self, memory: npt.NDArray[np.uint32]) -> None:
        self.memory = memory
        self.tile: PackedTile = memory[:0].reshape(0, 0)
        self.pins = 0
        self.ready = False
        self.error: BaseException | None = None
        self.wanted_until = -1


class TilePool:
    """Cache of packed tiles that keeps those which plans want longest.

    `capacity` tiles stay; more exist only while they are pinned. When room is needed, the tile goes whose `until` is
    the smallest: with mosaic partners from recent positions that is the one whose window closed first, so no tile is
    decoded twice. Memory of evicted tiles is used again, so a running loader allocates nothing. Correctness never
    depends on what is in here: a missing tile is loaded.

    Args:
        capacity: tiles kept.
        pixels: pixels of the largest tile.
    """

    def __init__(self, capacity: int, pixels: int) -> None:
        self._capacity = capacity
        self._pixels = pixels
        self._changed = threading.Condition()
        self._slots: dict[int, _Slot] = {}
        self._by_end: list[tuple[int, int]] = []  # heap of (until, index); outdated entries are skipped when met

    def acquire(self, index: int, until: int, load: Callable[[int], U8Image]) -> PackedTile:
        """Return tile `index`, loading it unless it is here; a tile that another thread loads is waited for.

        The tile stays valid and unchanged until `release(index)`, to be called once per acquire, by any thread.

        Args:
            index: image.
            until: the last sample number that may want this tile, as far as the caller knows.
            load: image -> (h, w, 3) uint8 BGR; called without a lock.
        """
        with self._changed:
            slot = self._slots.get(index)
            mine = slot is None
            if slot is None:
                slot = self._slots[index] = _Slot(self._memory())
            slot.pins += 1
            if until > slot.wanted_until:
                slot.wanted_until = until
                self._queue(until, index)
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

    def _queue(self, until: int, index: int) -> None:
        """Note when a tile's window closes; a pool that holds the whole set evicts nothing, so it must tidy up here."""
        if len(self._by_end) > 4 * len(self._slots) + 64:
            self._by_end = [(slot.wanted_until, i) for i, slot in self._slots.items()]
            heapq.heapify(self._by_end)
        else:
            heapq.heappush(self._by_end, (until, index))

    def _memory(self) -> npt.NDArray[np.uint32]:
        """Memory for one more tile: of the tile wanted least long when the pool is full."""
        memory = None
        pinned = []
        while len(self._slots) >= self._capacity and self._by_end:
            until, index = heapq.heappop(self._by_end)
            slot = self._slots.get(index)
            if slot is None or slot.wanted_until != until:
                continue
            if slot.pins:
                pinned.append((until, index))
                continue
            del self._slots[index]
            memory = slot.memory
        for entry in pinned:
            heapq.heappush(self._by_end, entry)
        return np.empty(self._pixels, np.uint32) if memory is None else memory


def _pack(im: U8Image, memory: npt.NDArray[np.uint32]) -> PackedTile:
    h, w = im.shape[:2]
    tile = memory[: h * w].reshape(h, w)
    cv2.cvtColor(im, cv2.COLOR_BGR2BGRA, dst=tile.view(np.uint8).reshape(h, w, 4))
    return tile
