"""The index of a stored cache: which source file has its record where, and what the record must look like.

The index is a sealed file, and the only truth about a data file: bytes that no index speaks of do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import PackedStrings
from fastyolo_data.errors import StoreError
from fastyolo_data.sealed import read_sealed, write_sealed
from fastyolo_data.store.base import path_keys

__all__ = ["Header", "Records", "StoreIndex", "read_index", "write_index"]

_MAGIC = b"FASTYOLO-TILES\n\0"
_VERSION = 1  # raise it whenever decoding or resizing gives other pixels, or the layout changes
_COLUMNS = {
    "size": "<i8", "mtime_ns": "<i8", "hw": "<i4", "tile_hw": "<i4", "offset": "<i8", "nbytes": "<i8", "crc": "<u4",
}  # fmt: skip
_ARRAYS = {"blob": "|u1", "offsets": "<i8", **_COLUMNS}  # the paths, then the columns


@dataclass(frozen=True)
class Records:
    """Columns, one row per source file.

    Attributes:
        paths: source files, no repeats.
        size, mtime_ns: (n,) int64, the file when it was cached.
        hw, tile_hw: (n, 2) int32, its picture and its tile.
        offset: (n,) int64 place in the data file; -1: the file is broken and was not cached.
        nbytes: (n,) int64; crc: (n,) uint32, CRC-32 of the record.
    """

    paths: PackedStrings
    size: npt.NDArray[np.int64]
    mtime_ns: npt.NDArray[np.int64]
    hw: npt.NDArray[np.int32]
    tile_hw: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]
    crc: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, idx: npt.NDArray[Any]) -> Records:
        """Return the rows at idx (numbers or a mask)."""
        idx = np.flatnonzero(idx) if idx.dtype == bool else idx
        return Records(self.paths.take(idx), *(getattr(self, name)[idx] for name in _COLUMNS))

    def plus(self, other: Records) -> Records:
        """Return these rows, then the other's."""
        paths = PackedStrings(
            np.concatenate((self.paths.blob, other.paths.blob)),
            np.concatenate((self.paths.offsets, other.paths.offsets[1:] + self.paths.offsets[-1])),
        )
        return Records(paths, *(np.concatenate((getattr(self, k), getattr(other, k))) for k in _COLUMNS))

    def match(self, wanted: Records) -> npt.NDArray[np.int64]:
        """Return for each wanted file the row that has it, unchanged and with the same tile size; -1: none.

        Args:
            wanted: offset, nbytes and crc are not looked at; paths may repeat.
        """
        if np.array_equal(self.paths.offsets, wanted.paths.offsets) and np.array_equal(
            self.paths.blob, wanted.paths.blob
        ):
            at = np.arange(len(self))
        else:
            where = {key: i for i, key in enumerate(path_keys(self.paths))}
            at = np.fromiter((where.get(key, -1) for key in path_keys(wanted.paths)), np.int64, len(wanted))
        known = np.flatnonzero(at >= 0)
        rows = at[known]
        same = (self.size[rows] == wanted.size[known]) & (self.mtime_ns[rows] == wanted.mtime_ns[known])
        same &= (self.hw[rows] == wanted.hw[known]).all(1) & (self.tile_hw[rows] == wanted.tile_hw[known]).all(1)
        at[known[~same]] = -1
        return at


@dataclass(frozen=True)
class Header:
    """What holds for all records.

    Attributes:
        rule: everything that decides the bytes of a record (imgsz, rounding, interpolation, ...).
        data: name of the data file, in the index's folder.
        uid: 32 hex digits that the data file carries as well.
        end: bytes of the data file that records may lie in.
        finished: False while a build is under way (or was killed).
        extra: what the backend wants to remember.
    """

    rule: Mapping[str, Any]
    data: str
    uid: str
    end: int
    finished: bool
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreIndex:
    """An index file in memory."""

    header: Header
    records: Records

    def without(self, offsets: Sequence[int]) -> StoreIndex:
        """Return the index without the records at some offsets."""
        return replace(self, records=self.records.take(~np.isin(self.records.offset, offsets)))


def write_index(path: Path, index: StoreIndex) -> None:
    """Write an index under a temporary name, flush it to the disk, and rename it.

    Raises:
        OSError: the disk is full or may not be written to; no temporary file is left.
    """
    r = index.records
    found = (r.paths.blob, r.paths.offsets, r.size, r.mtime_ns, r.hw, r.tile_hw, r.offset, r.nbytes, r.crc)
    columns = {k: np.ascontiguousarray(a, t) for (k, t), a in zip(_ARRAYS.items(), found, strict=True)}
    write_sealed(path, _MAGIC, _VERSION, vars(index.header), columns)


def read_index(path: Path) -> StoreIndex:
    """Read an index.

    Raises:
        FileNotFoundError: there is none.
        StoreError: it is damaged, or of another version.
    """
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: {error}") from error


def _decode(data: bytes) -> StoreIndex:
    header, c = read_sealed(data, _MAGIC, _VERSION, _ARRAYS)
    paths = PackedStrings(c.pop("blob"), c.pop("offsets"))
    return StoreIndex(Header(**header), Records(paths, **c))


def packed(paths: Sequence[str]) -> PackedStrings:
    """Return paths as PackedStrings, without copying if they are that already."""
    return paths if isinstance(paths, PackedStrings) else PackedStrings.pack(paths)
