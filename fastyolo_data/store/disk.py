"""Raw image files: every tile is read and decoded anew."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.store.base import path_keys

__all__ = ["DiskReader", "DiskStore"]


class Maker(Protocol):
    """Turns bytes into a tile (decode.TileMaker)."""

    def make(
        self, data: npt.NDArray[np.uint8], path: str, hw0: tuple[int, int], tile_hw: tuple[int, int], /
    ) -> U8Image: ...


class DiskStore:
    """Tiles straight from the image files.

    Args:
        im_files: path of every image.
        hw: (n, 2) original sizes; tile_hw: (n, 2) tile sizes.
        new_maker: makes the bytes-to-tile object of one reader.
    """

    name = "none"

    def __init__(
        self,
        im_files: Sequence[str],
        hw: npt.NDArray[np.integer],
        tile_hw: npt.NDArray[np.integer],
        new_maker: Callable[[], Maker],
    ) -> None:
        self.im_files = im_files
        self.hw = hw
        self.tile_hw = tile_hw
        self._new_maker = new_maker

    def reader(self) -> DiskReader:
        """Return a reader with buffers of its own."""
        return DiskReader(self, self._new_maker())

    def first_of_each(self) -> npt.NDArray[np.int64]:
        """Return the image numbers without those whose file was listed before, ascending."""
        return np.unique(self._first)

    def spread(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return (n,) values in which every repeat of a file has the value of its first listing."""
        return values[self._first]

    @functools.cached_property
    def _first(self) -> npt.NDArray[np.int64]:
        """(n,) number of the image under which each image's file is listed first."""
        keys = path_keys(self.im_files)
        if len(set(keys)) == len(keys):
            return np.arange(len(keys))
        where: dict[bytes, int] = {}
        return np.fromiter((where.setdefault(key, i) for i, key in enumerate(keys)), np.int64, len(keys))

    def close(self) -> None:
        """Nothing is held open."""


class DiskReader:
    """One thread's access to a DiskStore."""

    def __init__(self, store: DiskStore, maker: Maker) -> None:
        self._store = store
        self._maker = maker
        self._bytes = np.empty(1 << 18, np.uint8)

    def tile(self, index: int) -> U8Image:
        """Read, decode and resize image `index`; see TileReader."""
        return self.make(self.read(index), index)

    def make(self, data: npt.NDArray[np.uint8], index: int) -> U8Image:
        """Turn the bytes of image `index`'s file into its tile."""
        h0, w0 = self._store.hw[index]
        h, w = self._store.tile_hw[index]
        return self._maker.make(data, self._store.im_files[index], (int(h0), int(w0)), (int(h), int(w)))

    def read(self, index: int) -> npt.NDArray[np.uint8]:
        """Read a whole file into the reader's buffer; valid until the next call.

        Raises:
            ImageDecodeError: the file cannot be read.
        """
        path = self._store.im_files[index]
        try:
            with open(path, "rb", buffering=0) as file:
                filled = 0
                while True:
                    # One byte more than the file holds tells the end without a call of its own for the size.
                    n = file.readinto(memoryview(self._bytes)[filled:])
                    filled += n or 0
                    if filled < self._bytes.size and not n:
                        return self._bytes[:filled]
                    if filled == self._bytes.size:
                        self._bytes = np.concatenate((self._bytes, np.empty_like(self._bytes)))
        except OSError as error:
            raise ImageDecodeError(
                f"{path}: cannot be read during training ({error.strerror or error}); it was there when the labels "
                "were scanned. Restore the file, or build the loader again."
            ) from error
