"""What every image store offers: the tile of image i, the same from each backend."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from fastyolo_data.datatypes import PackedStrings, U8Image

__all__ = ["TileReader", "TileStore", "path_keys", "size_text"]


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


def path_keys(paths: Sequence[str]) -> list[bytes]:
    """Return something hashable for each path, without a Python string for each: 100,000 in 20 ms."""
    packed = paths if isinstance(paths, PackedStrings) else PackedStrings.pack(paths)
    blob, offsets = packed.blob.tobytes(), packed.offsets.tolist()
    return [blob[lo:hi] for lo, hi in itertools.pairwise(offsets)]
