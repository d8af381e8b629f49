"""A data file of uint8 tiles, one after the other, mapped into memory: pages are shared by all processes."""

from __future__ import annotations

import errno
import mmap
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastyolo_data.errors import StoreError
from fastyolo_data.store.index import Records

__all__ = ["MappedFile", "MemmapBackend", "MemmapWriter"]

_MAGIC = b"FASTYOLO-DATA\n\0\0"
HEAD = 64  # bytes before the first record: magic, uid, zeros
_PAGE = mmap.PAGESIZE


def _head(uid: str) -> bytes:
    return (_MAGIC + bytes.fromhex(uid)).ljust(HEAD, b"\0")


class MemmapBackend:
    """Makes and opens data files."""

    suffix = ".tiles"
    appendable = True  # records are only added behind the others, so readers of an older index are not disturbed

    def open(self, path: Path, uid: str, end: int, extra: object) -> MappedFile:
        """Open a data file for reading.

        Raises:
            StoreError: it is missing, too short, or another one.
        """
        return MappedFile(path, uid, end)

    def create(self, path: Path, uid: str, nbytes: npt.NDArray[np.int64]) -> MemmapWriter:
        """Create a data file with room for records of these sizes.

        Raises:
            OSError: no room, or not allowed.
        """
        return MemmapWriter(path, uid, 0, nbytes)

    def append(self, path: Path, uid: str, end: int, nbytes: npt.NDArray[np.int64]) -> MemmapWriter:
        """Open a data file to add records behind `end`; what a killed build left there is cut off."""
        return MemmapWriter(path, uid, end, nbytes)


class MappedFile:
    """An open data file; see MemmapBackend.open."""

    def __init__(self, path: Path, uid: str, end: int) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        weakref.finalize(self, os.close, self._fd)
        size = os.fstat(self._fd).st_size
        if size < end:
            raise StoreError(f"{path}: it has {size} bytes, expected {end}")
        if os.read(self._fd, HEAD) != _head(uid):
            raise StoreError(f"{path}: its first bytes are not those of the index's data file")
        self.mapping: mmap.mmap | None = None
        try:
            self.mapping = mmap.mmap(self._fd, end, access=mmap.ACCESS_READ)
        except (OSError, ValueError, OverflowError):  # some network file systems, ulimit -v, 32 bit
            return
        if hasattr(mmap, "MADV_RANDOM"):
            self.mapping.madvise(mmap.MADV_RANDOM)

    def reader(self) -> MapReader | PreadReader:
        """Return a reader for the calling thread."""
        return PreadReader(self, self._fd) if self.mapping is None else MapReader(self.mapping)


class MapReader:
    """Records as views of the mapping."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._bytes = np.frombuffer(mapping, np.uint8)
        self._advise = getattr(mmap, "MADV_WILLNEED", None)

    def read(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return a view; see RecordReader."""
        if not HEAD <= offset <= offset + nbytes <= self._bytes.size:
            raise StoreError(f"its place, {offset} to {offset + nbytes}, is outside the file")
        if self._advise is not None:
            # With MADV_RANDOM alone every page would be a disk request of its own; this asks for the record at once.
            start = offset // _PAGE * _PAGE
            self._mapping.madvise(self._advise, start, offset + nbytes - start)
        return self._bytes[offset : offset + nbytes]


class PreadReader:
    """Records read into a buffer, where mapping is refused."""

    def __init__(self, owner: MappedFile, fd: int) -> None:
        self._owner = owner  # closes fd when nobody needs it any more
        self._fd = fd
        self._buffer = np.empty(0, np.uint8)

    def read(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return the reader's buffer; see RecordReader."""
        if self._buffer.size < nbytes:
            self._buffer = np.empty(nbytes, np.uint8)
        view, filled = memoryview(self._buffer), 0
        while filled < nbytes:
            try:
                n = _pread(self._fd, view[filled:nbytes], offset + filled)
            except OSError as error:
                raise StoreError(f"it cannot be read: {error.strerror}") from error
            if not n:
                raise StoreError("the file ends before it")
            filled += n
        record = self._buffer[:nbytes]
        record.flags.writeable = False
        return record


class MemmapWriter:
    """Writes records; `put` may be called by several threads at once.

    Attributes:
        offsets: place of each record.
    """

    def __init__(self, path: Path, uid: str, end: int, nbytes: npt.NDArray[np.int64]) -> None:
        self._start = end or HEAD
        self.offsets = self._start + np.cumsum(nbytes) - nbytes
        self.extra: dict[str, object] = {}
        flags = os.O_RDWR | getattr(os, "O_BINARY", 0) | (0 if end else os.O_CREAT | os.O_EXCL)
        self._fd = os.open(path, flags, 0o644)
        try:
            if end:
                os.ftruncate(self._fd, end)
            _reserve(self._fd, end, self._start + int(nbytes.sum()))
            if not end:
                _pwrite(self._fd, memoryview(_head(uid)), 0)
        except BaseException:
            if end:
                os.ftruncate(self._fd, end)
            os.close(self._fd)
            raise

    def put(self, k: int, data: npt.NDArray[np.uint8]) -> int:
        """Write record k at its place and return that.

        Raises:
            OSError: the disk is full.
        """
        offset = int(self.offsets[k])
        _pwrite(self._fd, memoryview(data.reshape(-1)), offset)
        return offset

    def end(self, records: Records) -> int:
        """Return the end of the last of these records."""
        ends = np.where(records.offset >= 0, records.offset + records.nbytes, 0)
        return max(self._start, int(ends.max(initial=0)))

    def sync(self) -> None:
        """Wait until everything that was put is on the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)


def _reserve(fd: int, start: int, end: int) -> None:
    """Take the disk space now, so that a full disk shows before the work and never as a SIGBUS."""
    if end <= start:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, start, end - start)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
    os.ftruncate(fd, end)


_SEEK = threading.Lock()  # for systems without pread and pwrite (Windows)


def _pwrite(fd: int, data: memoryview, offset: int) -> None:
    while data.nbytes:
        if hasattr(os, "pwrite"):
            n = os.pwrite(fd, data, offset)
        else:
            with _SEEK:
                os.lseek(fd, offset, os.SEEK_SET)
                n = os.write(fd, data[: 1 << 30])
        data, offset = data[n:], offset + n


def _pread(fd: int, out: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(fd, [out], offset)
    with _SEEK:
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, out.nbytes)
    out[: len(data)] = data
    return len(data)
