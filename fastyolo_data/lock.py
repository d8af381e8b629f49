"""One builder at a time: a file lock that the system takes back when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from fastyolo_data.errors import StoreError

__all__ = ["BuildLock"]

_LOG = logging.getLogger("fastyolo_data")
_POLL = 0.1
_REPEAT = 60.0  # seconds between two messages of a waiting process
_GIVE_UP = 600.0  # seconds without a sign of life from the holder


class BuildLock:
    """An advisory lock on a small file that stays where it is.

    The holder writes its process number into the file and touches it while it works, so those who wait can tell who
    it is, and give up on a holder that hangs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    @contextlib.contextmanager
    def held(self, message: str) -> Iterator[bool]:
        """Hold the lock.

        Args:
            message: logged once when another process holds it, before "process N on HOST".

        Yields:
            Whether it had to be waited for.

        Raises:
            StoreError: the holder shows no sign of life.
            OSError: the folder cannot be written to, or its file system has no locks.
        """
        waited = not self.acquire()
        if waited:
            self._wait(message)
        try:
            yield waited
        finally:
            self.release()

    def acquire(self) -> bool:
        """Take the lock if it is free; return whether that worked."""
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if not _try_lock(fd):
                    os.close(fd)
                    return False
                if _same_file(fd, self.path):
                    break
            except OSError:
                os.close(fd)
                raise
            os.close(fd)  # `fastyolo cache clean` removed the file between our open and our lock
        self._fd = fd
        os.ftruncate(fd, 0)
        os.write(fd, f"process {os.getpid()} on {socket.gethostname()}".encode())
        return True

    def touch(self) -> None:
        """Show that the holder is alive."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def release(self) -> None:
        """Give the lock back; the file stays."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)

    def _wait(self, message: str) -> None:
        seen, changed, said = None, time.monotonic(), -_REPEAT
        while not self.acquire():
            now = time.monotonic()
            if now - said >= _REPEAT:
                _LOG.info("%s %s", message, self._holder())
                said = now
            with contextlib.suppress(OSError):
                stamp = self.path.stat().st_mtime_ns
                if stamp != seen:
                    seen, changed = stamp, now
            if now - changed > _GIVE_UP:
                raise StoreError(f"{self.path}: its holder, {self._holder()}, shows no sign of life; end that process")
            time.sleep(_POLL)

    def _holder(self) -> str:
        try:
            return self.path.read_text(errors="replace") or "another process"
        except OSError:
            return "another process"


def _try_lock(fd: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return _try_lock_windows(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
            return False
        raise


def _try_lock_windows(fd: int) -> bool:
    import msvcrt

    try:
        # One byte far behind the text: locked bytes cannot be read by others on Windows.
        os.lseek(fd, 1 << 20, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        return True
    except OSError:
        return False
    finally:
        os.lseek(fd, 0, os.SEEK_SET)


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
