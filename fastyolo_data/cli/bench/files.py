"""What a folder takes on the disk, and how to get its files out of the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["disk_usage", "drop_page_cache"]


def disk_usage(folder: Path) -> int:
    """Return the bytes that the files below a folder take, hard links counted once."""
    seen: dict[tuple[int, int], int] = {}
    for path in _files(folder):
        found = os.stat(path)
        blocks = getattr(found, "st_blocks", None)
        seen[found.st_dev, found.st_ino] = found.st_size if blocks is None else 512 * blocks
    return sum(seen.values())


def drop_page_cache(folder: Path) -> None:
    """Have the system forget the contents of the files below a folder; needs no privileges.

    Pages that some process has mapped stay, so nobody may be using the files. Does nothing where the system has no
    posix_fadvise.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for path in _files(folder):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)  # only pages that are on the disk can be dropped
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _files(folder: Path) -> Iterator[str]:
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path):
                yield path
