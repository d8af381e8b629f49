"""All tiles in memory: one arena for the whole split, filled once by several threads, read-only afterwards.

One allocation, because Linux allows a process 65,530 mappings and a mapping per image would end there. No file is
touched for an image that is in the arena.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.store.base import size_text
from fastyolo_data.store.disk import DiskReader, DiskStore
from fastyolo_data.store.fill import run_parallel

__all__ = ["Memory", "RamStore", "budget", "fill_ram", "tile_bytes"]

_LOG = logging.getLogger("fastyolo_data")
_RESERVE = 256 << 20  # bytes left for the program itself; a tenth of what is available if that is more
_LOW = 96 << 20  # filling stops when less is left: somebody else took the memory meanwhile


@dataclass(frozen=True)
class Memory:
    """Memory that this process may still take.

    Attributes:
        available: asks anew, in bytes.
        limit: what sets that number, for messages: "MemAvailable", "cgroup limit", ...
        sharers: processes on this machine that fill a cache at the same time (ranks).
    """

    available: Callable[[], int]
    limit: str = "MemAvailable"
    sharers: int = 1


class RamStore:
    """Tiles in one array.

    Args:
        disk: where tiles that are not here come from.
        arena: (total,) uint8; becomes read-only.
        offsets: (n,) int64 start of each tile in the arena, -1 where it is not cached.
    """

    name = "ram"

    def __init__(self, disk: DiskStore, arena: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        arena.flags.writeable = False
        self.disk = disk
        self.arena: npt.NDArray[np.uint8] | None = arena
        self.offsets = offsets

    def reader(self) -> RamReader:
        """Return a reader; it holds no memory of its own unless it must decode."""
        return RamReader(self)

    def holds(self, index: int) -> bool:
        """Whether the tile comes from memory."""
        return self.arena is not None and self.offsets[index] >= 0

    def close(self) -> None:
        """Free the arena as soon as no reader looks at it; tiles come from disk then."""
        self.arena = None


class RamReader:
    """One thread's access to a RamStore."""

    def __init__(self, store: RamStore) -> None:
        self._store = store
        self._disk: DiskReader | None = None

    def tile(self, index: int) -> U8Image:
        """Return a read-only view of the arena; see TileReader."""
        arena, start = self._store.arena, int(self._store.offsets[index])
        if arena is not None and start >= 0:
            h, w = (int(v) for v in self._store.disk.tile_hw[index])
            return arena[start : start + h * w * 3].reshape(h, w, 3)
        if self._disk is None:
            self._disk = self._store.disk.reader()
        return self._disk.tile(index)


def tile_bytes(tile_hw: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the (n,) bytes of every tile."""
    return tile_hw.astype(np.int64).prod(1) * 3


def budget(available: int, sharers: int = 1) -> int:
    """Return how many bytes of the available ones a cache may take."""
    return max(0, available - max(_RESERVE, available // 10)) // max(1, sharers)


def fill_ram(disk: DiskStore, memory: Memory, *, threads: int, prefix: str = "", verbose: bool = False) -> RamStore:
    """Decode every image, or as many as fit, into memory.

    A broken image stays out and is left to the disk path, which raises and names it when it is used.

    Args:
        disk: makes the tiles.
        memory: what may be taken.
        threads: decode in parallel.
        prefix: before every message, for example "train: ".
        verbose: show a progress bar.
    """
    first = disk.first_of_each()
    sizes = tile_bytes(disk.tile_hw)[first]
    need, available = int(sizes.sum()), memory.available()
    room = budget(available, memory.sharers)
    fit = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
    arena, fit = _allocate(sizes, fit)
    among = f" ({memory.limit}" + (f", shared by {memory.sharers} ranks)" if memory.sharers > 1 else ")")
    text = f"{prefix}RAM cache of images: {size_text(need)} needed, {size_text(available)} available{among}"
    if fit < len(first):
        text += f"; {fit:,} of {len(first):,} images fit, the rest is read from disk. Try cache='memmap'"
        _LOG.warning("%s", text)
    else:
        _LOG.info("%s", text)
    starts = np.cumsum(sizes[:fit]) - sizes[:fit]
    cached = _fill(disk, memory, arena, first[:fit], starts, threads, prefix, verbose)
    offsets = np.full(len(disk.im_files), -1, np.int64)
    offsets[first[:fit]] = np.where(cached, starts, -1)
    return RamStore(disk, arena, disk.spread(offsets))


def _allocate(sizes: npt.NDArray[np.int64], fit: int) -> tuple[npt.NDArray[np.uint8], int]:
    """Return an arena for the first `fit` tiles, or for fewer when the system refuses that much."""
    while True:
        try:
            return np.empty(int(sizes[:fit].sum()), np.uint8), fit
        except MemoryError:
            refused = size_text(sizes[:fit].sum())
            _LOG.warning("the system refused %s for the RAM cache (ulimit -v?); trying half", refused)
            fit //= 2


def _fill(
    disk: DiskStore, memory: Memory, arena: npt.NDArray[np.uint8], images: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64], threads: int, prefix: str, verbose: bool,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Write the tiles of `images` to their starts; return which ones arrived."""
    cached = np.zeros(len(images), bool)
    broken: list[str] = []
    lock, full = threading.Lock(), threading.Event()

    def new_work() -> Callable[[int], None]:
        reader = disk.reader()

        def work(k: int) -> None:
            try:
                tile = reader.tile(int(images[k]))
            except ImageDecodeError as error:
                with lock:
                    broken.append(str(error))
                return
            except MemoryError:
                full.set()
                return
            start = int(starts[k])
            arena[start : start + tile.size] = tile.reshape(-1)
            cached[k] = True

        return work

    with tqdm(total=len(images), desc=f"{prefix}Caching images (ram)", unit="img", disable=not verbose) as bar:

        def tick(done: int) -> bool:
            bar.update(done - bar.n)
            return done < len(images) and (full.is_set() or memory.available() < _LOW)

        done = run_parallel(len(images), threads, new_work, tick) if len(images) else 0
    if done < len(images) or full.is_set():
        _LOG.warning(
            "%sRAM cache stopped after %s of %s images: memory is nearly used up; the rest is read from disk",
            prefix, f"{done:,}", f"{len(images):,}",
        )  # fmt: skip
    report_broken(broken, prefix)
    return cached


def report_broken(broken: list[str], prefix: str) -> None:
    """Name the images that could not be cached, at most three of them."""
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        _LOG.warning("%s%d images are not cached: %s%s", prefix, len(broken), "; ".join(broken[:3]), more)
