"""The index of a stored cache: which source file has its record where, and what the record must look like.

Layout of the file: magic, version, CRC-32 of everything behind them, sizes; a JSON header; the columns. No pickle. The
index is the only truth about a data file: bytes that no index speaks of do not exist.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import PackedStrings
from fastyolo_data.errors import StoreError
from fastyolo_data.store.base import path_keys

__all__ = ["Header", "Records", "StoreIndex", "read_index", "write_index"]

_MAGIC = b"FASTYOLO-TILES\n\0"
_VERSION = 1  # raise it whenever decoding or resizing gives other pixels, or the layout changes
_HEAD = struct.Struct("<16sIIQQ")  # magic, version, crc of the rest, bytes of the rest, bytes of the JSON header
_COLUMNS = {
    "size": "<i8", "mtime_ns": "<i8", "hw": "<i4", "tile_hw": "<i4", "offset": "<i8", "nbytes": "<i8", "crc": "<u4",
}  # fmt: skip


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
    columns = {"blob": r.paths.blob, "offsets": r.paths.offsets.astype("<i8")}
    columns |= {name: np.ascontiguousarray(getattr(r, name), dtype) for name, dtype in _COLUMNS.items()}
    header = json.dumps({**vars(index.header), "n": len(r), "blob": len(r.paths.blob)}).encode("ascii")
    crc, size = zlib.crc32(header), len(header)
    parts = [memoryview(c.reshape(-1).view(np.uint8)) for c in columns.values()]
    for part in parts:
        crc, size = zlib.crc32(part, crc), size + part.nbytes
    temp = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temp, "wb") as file:
            file.write(_HEAD.pack(_MAGIC, _VERSION, crc, size, len(header)) + header)
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


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
    if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it is no index of fastyolo_data")
    _, version, crc, size, header_size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"it has version {version}, expected {_VERSION}")
    if len(data) != _HEAD.size + size:
        raise ValueError(f"it has {len(data)} bytes, expected {_HEAD.size + size}")
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != crc:
        raise ValueError("its checksum is wrong")
    header = json.loads(data[_HEAD.size : _HEAD.size + header_size])
    n, blob_size = header.pop("n"), header.pop("blob")
    at = _HEAD.size + header_size

    def column(dtype: str, count: int) -> npt.NDArray[Any]:
        nonlocal at
        found = np.frombuffer(data, dtype, count, at)
        at += found.nbytes
        return found

    paths = PackedStrings(column("|u1", blob_size), column("<i8", n + 1))
    columns = [
        column(t, n * (1 + k.endswith("hw"))).reshape((n, 2) if k.endswith("hw") else n) for k, t in _COLUMNS.items()
    ]
    return StoreIndex(Header(**header), Records(paths, *columns))


def packed(paths: Sequence[str]) -> PackedStrings:
    """Return paths as PackedStrings, without copying if they are that already."""
    return paths if isinstance(paths, PackedStrings) else PackedStrings.pack(paths)
