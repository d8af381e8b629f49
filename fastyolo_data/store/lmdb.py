"""Records in an LMDB file: tiles, or the image files' own bytes, in one file instead of millions.

Keys are numbers, so no file name can trouble them. The file is written once and only read afterwards, so readers use
neither locks nor read-ahead. Environments survive neither fork nor pickling: each process opens its own when it reads.

LMDB follows the page numbers it finds in its tree, so a flipped bit there could make it read anywhere. The pages of the
tree (about 1 in 100 records) therefore have a checksum that is tested before the file is opened; those that hold
records are tested record by record, as in every backend.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import struct
import threading
import weakref
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastyolo_data.errors import ConfigError, StoreError
from fastyolo_data.store.index import Records

if TYPE_CHECKING:
    import lmdb

__all__ = ["LmdbBackend", "LmdbFile", "LmdbWriter"]

_KEY = struct.Struct(">Q")
_BATCH = 32 << 20  # bytes per transaction
_PAGE_HEADER = struct.Struct("<QHHI")  # number, padding, flags, pages of an overflow run
_OVERFLOW = 0x04
_SLACK = 16 << 20


def _lmdb() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise ConfigError("cache='lmdb' needs the package lmdb: pip install lmdb") from error
    return lmdb


class LmdbBackend:
    """Makes and opens LMDB files."""

    suffix = ".lmdb"
    appendable = False  # readers hold no locks, so a finished file must never change

    def open(self, path: Path, uid: str, end: int, extra: Mapping[str, Any]) -> LmdbFile:
        """Check a file; it is opened by the process that reads it, when it does.

        Raises:
            StoreError: it is missing, too short, or its tree is damaged.
        """
        return LmdbFile(path, end, extra)

    def create(self, path: Path, uid: str, nbytes: npt.NDArray[np.int64]) -> LmdbWriter:
        """Create a file."""
        return LmdbWriter(path, int(nbytes.sum()))

    def append(self, path: Path, uid: str, end: int, nbytes: npt.NDArray[np.int64]) -> LmdbWriter:
        """Go on with the file of a killed build."""
        return LmdbWriter(path, end + int(nbytes.sum()))


class LmdbFile:
    """A file to read from; see LmdbBackend.open."""

    def __init__(self, path: Path, end: int, extra: Mapping[str, Any]) -> None:
        _lmdb()
        self.path = path
        try:
            size = path.stat().st_size
            if size < end:
                raise StoreError(f"{path}: it has {size} bytes, expected {end}")
            if extra and _tree_crc(path, extra["psize"], extra["tree"]) != extra["crc"]:
                raise StoreError(f"{path}: its tree is damaged")
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error

    def reader(self) -> LmdbReader:
        """Return a reader for the calling thread."""
        return LmdbReader(self.path)


class LmdbReader:
    """Records as views of LMDB's mapping."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = -1
        self._env: lmdb.Environment | None = None
        self._txn: Any = None

    def read(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return a view; see RecordReader."""
        try:
            if self._pid != os.getpid():
                self._txn = None
                self._env = _environment(os.fspath(self._path))
                self._txn = self._env.begin(buffers=True)
                self._pid = os.getpid()
            data = self._txn.get(_KEY.pack(offset))
        except _lmdb().Error as error:
            raise StoreError(str(error)) from error
        if data is None or len(data) != nbytes:
            found = "is missing" if data is None else f"has {len(data)} bytes, expected {nbytes}"
            raise StoreError(f"record {offset} {found}")
        return np.asarray(_View(np.frombuffer(data, np.uint8), self._txn))


class _View:
    """Keeps the transaction, and with it the mapping, for as long as an array looks into it; LMDB's buffers do not."""

    def __init__(self, data: npt.NDArray[np.uint8], txn: Any) -> None:
        self.__array_interface__ = data.__array_interface__
        self._txn = txn


class _Open:
    """The environments of this process: LMDB must not open a file twice in one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.environments: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


_open = _Open()


def _forked() -> None:
    """Close what the parent had open: LMDB counts it as open here too, and only the mapping came along."""
    global _open
    for environment in list(_open.environments.values()):
        with contextlib.suppress(Exception):
            environment.close()
    _open = _Open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _environment(path: str) -> Any:
    """Return this process's environment of a file; it is closed when no reader has it any more."""
    lmdb, key = _lmdb(), os.path.realpath(path)
    with _open.lock:
        environment = _open.environments.get(key)
        if environment is None:
            options = {"subdir": False, "readonly": True, "lock": False, "readahead": False, "create": False}
            environment = _open.environments[key] = lmdb.open(path, **options)
        return environment


class LmdbWriter:
    """Writes records in transactions of some megabytes; `put` may be called by several threads at once."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self._lmdb = _lmdb()
        self._path = path
        # Without metasync a power cut can lose the last transactions, but the file stays sound.
        self._env = self._open(nbytes + nbytes // 50 + _SLACK)
        self._lock = threading.Lock()
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._size = 0
        self.extra: dict[str, Any] = {}
        with self._env.begin() as txn, txn.cursor() as cursor:
            self._first = _KEY.unpack(cursor.key())[0] + 1 if cursor.last() else 0

    def _open(self, map_size: int) -> Any:
        map_size = -(-map_size // mmap.PAGESIZE) * mmap.PAGESIZE
        options = {"subdir": False, "lock": False, "metasync": False, "meminit": False, "map_size": map_size}
        try:
            return self._lmdb.open(os.fspath(self._path), **options)
        except self._lmdb.Error as error:
            raise StoreError(str(error)) from error

    def put(self, k: int, data: npt.NDArray[np.uint8]) -> int:
        """Write record k; return its key.

        Raises:
            StoreError: the disk is full.
        """
        key = self._first + k
        with self._lock:
            self._pending.append((_KEY.pack(key), data.tobytes()))
            self._pending_bytes += data.nbytes
            if self._pending_bytes >= _BATCH:
                self._flush()
        return key

    def _flush(self) -> None:
        """Commit what is pending, in a larger map if it does not fit."""
        while self._pending:
            try:
                with self._env.begin(write=True) as txn:
                    for key, data in self._pending:
                        txn.put(key, data)
                self._pending, self._pending_bytes = [], 0
            except self._lmdb.MapFullError:
                self._env.set_mapsize(self._env.info()["map_size"] * 2)
            except self._lmdb.Error as error:
                if shutil.disk_usage(self._file().parent).free < self._pending_bytes:  # LMDB calls it an I/O error
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
                raise StoreError(str(error)) from error

    def end(self, records: Records) -> int:
        """Return the length of the file."""
        return self._size

    def sync(self) -> None:
        """Wait until everything that was put is on the disk."""
        with self._lock:
            self._flush()
            try:
                self._env.sync(True)
            except self._lmdb.Error as error:
                raise StoreError(str(error)) from error
            self._size = self._file().stat().st_size

    def close(self) -> None:
        """Close the file, cut it to the pages in use (Windows gives it the size of the map), and describe its tree."""
        last, psize = self._env.info()["last_pgno"], self._env.stat()["psize"]
        overflow = self._env.stat()["overflow_pages"]
        self._env.close()
        path, used = self._file(), (last + 1) * psize
        if path.stat().st_size > used:
            os.truncate(path, used)
        self._size = path.stat().st_size
        tree = _tree(path, psize, overflow)
        if tree is not None:
            self.extra = {"psize": psize, "tree": tree, "crc": _tree_crc(path, psize, tree)}

    def _file(self) -> Path:
        """The file's present name: a checkpoint has taken the suffix off."""
        return self._path if self._path.exists() else self._path.with_name(self._path.name.removesuffix(".tmp"))


def _tree(path: Path, psize: int, overflow: int) -> list[list[int]] | None:
    """Return the pages that hold no records as [first, count] ranges; None for a file layout that is not known."""
    ranges: list[list[int]] = []
    seen = page = 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        pages = len(data) // psize
        while page < pages:
            _, _, flags, count = _PAGE_HEADER.unpack_from(data, page * psize)
            if flags == _OVERFLOW and 0 < count <= pages - page:
                seen, page = seen + count, page + count
                continue
            if ranges and sum(ranges[-1]) == page:
                ranges[-1][1] += 1
            else:
                ranges.append([page, 1])
            page += 1
    return ranges if seen >= overflow else None


def _tree_crc(path: Path, psize: int, tree: list[list[int]]) -> int:
    crc = 0
    with open(path, "rb", buffering=0) as file:
        for first, count in tree:
            file.seek(first * psize)
            crc = zlib.crc32(file.read(count * psize), crc)
    return crc
