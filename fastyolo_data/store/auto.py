"""cache="auto": numbers in, decision out."""

from __future__ import annotations

from dataclasses import dataclass

from fastyolo_data.store.base import size_text
from fastyolo_data.store.ram import budget

__all__ = ["Decision", "Numbers", "decide"]

MIN_SAVED = 0.15e-3  # seconds per tile below which a cache is not worth its memory
COPY_RATE = 8e9  # bytes per second that a cached tile is taken over with
DISK_RATE = 0.5e9  # bytes per second that a disk is trusted to read with, when the cache exceeds the memory
RAM_SHARE = 0.5  # share of the free memory that a RAM cache may take unasked
PAGES_SHARE = 0.8  # share of the free memory that the pages of a mapped file may fill
SPARE_DISK = 1.2  # free disk space, as a multiple of the cache


@dataclass(frozen=True)
class Numbers:
    """What was measured.

    Attributes:
        images: distinct images of the split.
        decode: seconds of one thread to make a tile from its file.
        bytes: of all tiles.
        memory: bytes that this process may still take; limit: what sets that number.
        disk: bytes free where a cache file would go.
        threads: that make tiles at the same time.
        ranks: processes on this machine that read the same images.
        stored: a complete cache file is there already.
    """

    images: int
    decode: float
    bytes: int
    memory: int
    limit: str
    disk: int
    threads: int
    ranks: int = 1
    stored: bool = False


@dataclass(frozen=True)
class Decision:
    """The cache to use ("none", "ram" or "memmap") and one sentence that says why."""

    cache: str
    reason: str


def decide(n: Numbers) -> Decision:
    """Choose the cache that saves most time without crowding memory or disk."""
    each = n.bytes / max(1, n.images)
    saved = n.decode - each / COPY_RATE
    facts = (
        f"{n.images:,} images, {n.decode * 1e3:.1f} ms to decode one, {size_text(n.bytes)} as tiles, "
        f"{size_text(n.memory)} memory ({n.limit}) and {size_text(n.disk)} disk free"
    )
    if saved < MIN_SAVED:
        return Decision("none", f"{facts}: decoding is so cheap that caching would not help")
    if n.stored and n.bytes <= PAGES_SHARE * n.memory:
        return Decision("memmap", f"{facts}: a cache file of these images is there already")
    # Several ranks would each hold a RAM cache; a mapped file is there once for all of them.
    fits_disk = n.bytes * SPARE_DISK <= n.disk
    if n.bytes * n.ranks <= RAM_SHARE * budget(n.memory) and not (n.ranks > 1 and fits_disk):
        return Decision("ram", f"{facts}: the tiles fit into memory")
    if n.bytes <= PAGES_SHARE * n.memory and fits_disk:
        why = "the ranks share its pages" if n.ranks > 1 else "too large for arrays, its pages can be given back"
        return Decision("memmap", f"{facts}: a mapped file, {why}")
    if not fits_disk and n.bytes <= PAGES_SHARE * n.memory:
        return Decision("none", f"{facts}: too large for memory and disk")
    if each / DISK_RATE < n.decode / max(1, n.threads) and fits_disk:
        return Decision("memmap", f"{facts}: larger than memory, but reading tiles is still faster than decoding")
    return Decision("none", f"{facts}: larger than memory, and reading tiles from disk would not beat decoding")
