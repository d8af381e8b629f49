"""What every image store offers: the tile of image i, the same from each backend."""

from __future__ import annotations

from typing import Protocol

from fastyolo_data.datatypes import U8Image

__all__ = ["TileReader", "TileStore", "size_text"]


class TileReader(Protocol):
    """One thread's access to a store."""

    def tile(self, index: int) -> U8Image:
        """Return tile `index`, (h, w, 3) uint8 BGR, valid until the next call; the caller must not write to it.

        Raises:
            ImageDecodeError: the source file is broken or was changed.
            StoreError: the store is damaged.
        """
        ...


class TileStore(Protocol):
    """All tiles of one split."""

    name: str

    def reader(self) -> TileReader:
        """Return a new reader for the calling thread; readers are never shared between threads."""
        ...

    def close(self) -> None:
        """Free what the store holds; readers must not be used afterwards."""
        ...


def size_text(nbytes: float) -> str:
    """Return a number of bytes as people read it, such as "1.25 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"
