"""Looking after stored caches from outside a training: list, verify, remove."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastyolo_data.errors import StoreError
from fastyolo_data.lock import BuildLock
from fastyolo_data.store.build import get_backend
from fastyolo_data.store.fill import run_parallel
from fastyolo_data.store.index import StoreIndex, read_index, write_index

__all__ = ["StoredCache", "list_stored", "remove_stored", "stale_images", "verify_stored"]

_SUFFIXES = (".index", ".lock", ".tiles", ".lmdb", ".tmp")


@dataclass(frozen=True)
class StoredCache:
    """One cache in a folder.

    Attributes:
        folder, stem: where, and the first part of its files' names.
        index: what it holds; None when the index is missing or damaged.
        problem: why it cannot be used; empty when it can.
        nbytes: of all its files.
    """

    folder: Path
    stem: str
    index: StoreIndex | None
    problem: str
    nbytes: int

    @property
    def rule(self) -> dict[str, Any]:
        """The rule of its tiles; empty when unknown."""
        return dict(self.index.header.rule) if self.index is not None else {}


def list_stored(folder: Path) -> list[StoredCache]:
    """Return the caches in a folder, usable or not."""
    stems: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.name.startswith(("memmap-", "lmdb-")) and path.name.endswith(_SUFFIXES):
                stem = path.name.split(".", 1)[0]
                stems[stem] = stems.get(stem, 0) + path.stat().st_size
    return [_look_at(folder, stem, nbytes) for stem, nbytes in stems.items()]


def _look_at(folder: Path, stem: str, nbytes: int) -> StoredCache:
    try:
        index = read_index(folder / f"{stem}.index")
    except FileNotFoundError:
        return StoredCache(folder, stem, None, "no index: never finished, or removed", nbytes)
    except StoreError as error:
        return StoredCache(folder, stem, None, str(error), nbytes)
    problem = "" if index.header.finished else "its build was interrupted; the next start goes on with it"
    try:
        _open(folder, index)
    except StoreError as error:
        problem = str(error)
    return StoredCache(folder, stem, index, problem, nbytes)


def _open(folder: Path, index: StoreIndex) -> Any:
    header = index.header
    kind = str(header.rule.get("kind"))
    return get_backend(kind).open(folder / header.data, header.uid, header.end, header.extra)


def stale_images(cache: StoredCache) -> int:
    """Return how many source files have changed or gone since they were cached."""
    if cache.index is None:
        return 0
    records, stale = cache.index.records, 0
    for path, size, mtime in zip(records.paths, records.size.tolist(), records.mtime_ns.tolist(), strict=True):
        try:
            found = os.stat(path)
            stale += (found.st_size, found.st_mtime_ns) != (size, mtime)
        except OSError:
            stale += 1
    return stale


def verify_stored(cache: StoredCache, *, threads: int, tick: Callable[[int], bool]) -> list[str]:
    """Read every record, compare it with its checksum, and make the index forget those that fail.

    Args:
        cache: a usable one.
        threads: read in parallel.
        tick: called with the number of records done, see run_parallel.

    Returns:
        Source files whose records are damaged; the next start makes these anew.

    Raises:
        StoreError: the cache cannot be opened.
        OSError: the index cannot be written.
    """
    if cache.index is None:
        raise StoreError(f"{cache.folder / cache.stem}: {cache.problem}")
    container, records = _open(cache.folder, cache.index), cache.index.records
    rows = np.flatnonzero(records.offset >= 0)
    bad: list[int] = []
    lock = threading.Lock()

    def new_work() -> Callable[[int], None]:
        reader = container.reader()

        def work(k: int) -> None:
            row = int(rows[k])
            try:
                data = reader.read(int(records.offset[row]), int(records.nbytes[row]))
                if zlib.crc32(data) == records.crc[row]:
                    return
            except StoreError:
                pass
            with lock:
                bad.append(row)

        return work

    if len(rows):
        run_parallel(len(rows), threads, new_work, tick)
    if bad:
        _forget(cache, sorted(bad))
    return [records.paths[row] for row in sorted(bad)]


def _forget(cache: StoredCache, rows: list[int]) -> None:
    path = cache.folder / f"{cache.stem}.index"
    with BuildLock(path.with_suffix(".lock")).held(f"{path}: waiting until it has been built by"):
        index = read_index(path)
        if cache.index is not None and index.header.uid == cache.index.header.uid:
            write_index(path, index.without(cache.index.records.offset[rows].tolist()))


def remove_stored(cache: StoredCache) -> int:
    """Remove all files of a cache; return their bytes.

    Raises:
        StoreError: a process is building it just now.
        OSError: not allowed.
    """
    lock = BuildLock(cache.folder / f"{cache.stem}.lock")
    if not lock.acquire():
        raise StoreError(f"{cache.folder / cache.stem}: being built just now")
    removed = 0
    try:
        # The index first: a data file that no index names is an orphan, an index without its data file is a riddle.
        for path in sorted(cache.folder.glob(f"{cache.stem}.*"), key=lambda p: p.suffix != ".index"):
            if path.name != f"{cache.stem}.lock":
                removed += path.stat().st_size
                path.unlink()
        lock.path.unlink()
    finally:
        lock.release()
    return removed
