"""One build of a stored cache: decode what is missing, take over what is there, commit, or undo."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from fastyolo_data.errors import ImageDecodeError, StoreError
from fastyolo_data.lock import BuildLock
from fastyolo_data.store.disk import DiskStore
from fastyolo_data.store.fill import run_parallel
from fastyolo_data.store.index import Header, Records, StoreIndex, write_index
from fastyolo_data.store.ram import report_broken

if TYPE_CHECKING:
    from fastyolo_data.store.build import Backend, Found, Recipe

__all__ = ["Update", "Writer"]

_LOG = logging.getLogger("fastyolo_data")
CHECKPOINT = 30.0  # seconds of work that a killed build loses at most
_TOUCH = 5.0  # seconds between two signs of life


class Writer(Protocol):
    """A data file being written."""

    extra: Mapping[str, Any]

    def end(self, records: Records) -> int:
        """Return how long the data file must be at least for these records of this build."""
        ...

    def put(self, k: int, data: npt.NDArray[np.uint8]) -> int:
        """Write record k of this build; return its place. Called by several threads at once."""
        ...

    def sync(self) -> None:
        """Wait until everything that was put is on the disk; called while nobody puts, or by a thread of its own."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


class Update:
    """Writes the records of images `todo` behind those that are kept, or into a new data file.

    Args:
        disk: makes tiles.
        wanted: what the index must say about every image.
        recipe, folder, backend: of the cache.
        found: the cache as it is, or None.
        append: add to found's data file; else make a new one and copy what is still good.
        todo: image numbers, no file twice.
        lock: held by the caller.
    """

    def __init__(
        self, disk: DiskStore, wanted: Records, recipe: Recipe, folder: Path, backend: Backend, found: Found | None,
        append: bool, todo: npt.NDArray[np.int64], lock: BuildLock,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._recipe = recipe
        self._index_path = folder / f"{recipe.stem}.index"
        self._backend = backend
        self._found = found
        self._append = append and found is not None
        self._todo = todo
        self._lock = lock
        self._new = wanted.take(todo)
        self._done = np.zeros(len(todo), bool)
        self._broken: list[str] = []
        self._mutex = threading.Lock()
        if self._append:
            self._uid, self._data = found.index.header.uid, folder / found.index.header.data
        else:
            self._uid = uuid.uuid4().hex
            self._data = folder / f"{recipe.stem}.{self._uid[:8]}{backend.suffix}"
        self._temp = self._data.with_name(self._data.name + ".tmp")
        self._kept = self._keep(found)

    def _keep(self, found: Found | None) -> Records:
        """Return the rows of the old index that stay as they are."""
        if not self._append:
            return self._new.take(np.empty(0, np.int64))
        return found.index.records.take(np.unique(found.at[found.at >= 0]))

    def run(self, threads: int, prefix: str, verbose: bool) -> None:
        """Do it.

        Raises:
            OSError, StoreError: it failed, and everything is as it was before.
        """
        try:
            writer = self._writer()
            try:
                self._fill(writer, threads, f"{prefix}Caching images ({self._recipe.kind})", verbose)
                writer.sync()
            finally:
                writer.close()
            self._commit(writer, finished=True)
        except BaseException:
            self._undo()
            raise
        if self._found is not None and not self._append:
            with contextlib.suppress(OSError):  # Windows refuses while another process reads it
                os.unlink(self._data.with_name(self._found.index.header.data))
        report_broken(self._broken, prefix)

    def _writer(self) -> Writer:
        if self._append:
            return self._backend.append(self._data, self._uid, self._found.index.header.end, self._new.nbytes)
        return self._backend.create(self._temp, self._uid, self._new.nbytes)

    # ---- filling -----------------------------------------------------------------------------------------------------

    def _fill(self, writer: Writer, threads: int, title: str, verbose: bool) -> None:
        touched = saved = time.monotonic()
        with tqdm(total=len(self._todo), desc=title, unit="img", disable=not verbose) as bar:

            def tick(done: int) -> bool:
                nonlocal touched, saved
                bar.update(done - bar.n)
                now = time.monotonic()
                if now - touched > _TOUCH:
                    touched = now
                    self._lock.touch()
                # Windows cannot rename an open file.
                if now - saved > CHECKPOINT and done < len(self._todo) and os.name != "nt":
                    self._checkpoint(writer)
                    # A large index on a slow disk must not become the main work.
                    saved = time.monotonic() + 10 * (time.monotonic() - now)
                return False

            if len(self._todo):
                run_parallel(len(self._todo), threads, lambda: self._new_work(writer), tick)

    def _new_work(self, writer: Writer) -> Callable[[int], None]:
        reader = self._disk.reader()
        old = self._found.container.reader() if self._found is not None and not self._append else None

        def work(k: int) -> None:
            image = int(self._todo[k])
            data = None
            if old is not None and self._found.at[image] >= 0:
                row = int(self._found.at[image])
                data = self._copy(old, row)
                if data is None and self._found.index.records.offset[row] < 0:
                    self._done[k] = True  # known to be broken
                    return
            if data is None:
                try:
                    data = reader.read(image) if self._recipe.encoded else reader.tile(image)
                    if self._recipe.encoded:
                        reader.make(data, image)  # a broken file must not get in
                except ImageDecodeError as error:
                    with self._mutex:
                        self._broken.append(str(error))
                    self._done[k] = True
                    return
            self._new.nbytes[k] = data.size
            self._new.crc[k] = zlib.crc32(data)
            self._new.offset[k] = writer.put(k, data)
            self._done[k] = True

        return work

    def _copy(self, old: Any, row: int) -> npt.NDArray[np.uint8] | None:
        """Return a record of the old data file, or None when it is damaged."""
        records = self._found.index.records
        if records.offset[row] < 0:
            return None
        with contextlib.suppress(StoreError):
            data = old.read(int(records.offset[row]), int(records.nbytes[row]))
            if zlib.crc32(data) == records.crc[row]:
                return data
        return None

    # ---- committing --------------------------------------------------------------------------------------------------

    def _checkpoint(self, writer: Writer) -> None:
        """Make what is done so far survive a kill."""
        done = self._done.copy()
        writer.sync()
        self._commit(writer, finished=False, done=done)

    def _commit(self, writer: Writer, *, finished: bool, done: npt.NDArray[np.bool_] | None = None) -> None:
        if self._temp.exists():
            os.replace(self._temp, self._data)
        new = self._new if done is None else self._new.take(done)
        extra = dict(writer.extra) if finished else {}
        header = Header(self._recipe.full_rule, self._data.name, self._uid, writer.end(new), finished, extra)
        write_index(self._index_path, StoreIndex(header, self._kept.plus(new)))
        _sync_folder(self._data.parent)

    def _undo(self) -> None:
        """Remove what this build wrote; the cache is as it was found."""
        with contextlib.suppress(OSError):
            if self._append:
                os.truncate(self._data, self._found.index.header.end)
            else:
                self._temp.unlink(missing_ok=True)
                self._data.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            if self._found is None:
                self._index_path.unlink(missing_ok=True)
            else:
                write_index(self._index_path, self._found.index)


def _sync_folder(folder: Path) -> None:
    """Make renames survive a power cut; not possible on every system."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
