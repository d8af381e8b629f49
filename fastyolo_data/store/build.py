"""The life of a stored cache: find it, reuse it, bring it up to date, repair it, do without it.

A cache is an index and a data file in one folder. The index is replaced atomically and names its data file, so whatever
a killed process leaves behind is either complete up to an index or spoken of by nobody; the next builder, which holds
the lock, removes the latter. During a long build the index is written from time to time, so a killed build goes on
where it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastyolo_data.errors import StoreError
from fastyolo_data.lock import BuildLock
from fastyolo_data.store.base import TileStore, size_text
from fastyolo_data.store.disk import DiskStore
from fastyolo_data.store.index import Records, StoreIndex, packed, read_index, write_index
from fastyolo_data.store.memmap import MemmapBackend
from fastyolo_data.store.ram import tile_bytes
from fastyolo_data.store.stored import Container, StoredStore
from fastyolo_data.store.update import Update, Writer

__all__ = ["Forecast", "Found", "Images", "Recipe", "find_stored", "forecast", "open_stored"]

_LOG = logging.getLogger("fastyolo_data")
_SPARE = 64 << 20  # bytes that a build leaves free on the disk
_WASTE = 0.5  # share of a data file that records nobody wants may take before it is written anew


@dataclass(frozen=True)
class Images:
    """The images of a split and how to tell whether their files have changed.

    Attributes:
        disk: makes tiles from the files.
        size, mtime_ns: (n,) int64 of the files, at the label scan.
    """

    disk: DiskStore
    size: npt.NDArray[np.int64]
    mtime_ns: npt.NDArray[np.int64]

    def wanted(self, encoded: bool) -> Records:
        """Return what an index must say about each image; places and checksums are not known."""
        d, n = self.disk, len(self.disk.im_files)
        hw = np.ascontiguousarray(d.hw, np.int32)
        tile_hw = np.zeros_like(hw) if encoded else np.ascontiguousarray(d.tile_hw, np.int32)
        nbytes = self.size if encoded else tile_bytes(d.tile_hw)
        offset, crc = np.full(n, -1, np.int64), np.zeros(n, np.uint32)
        return Records(packed(d.im_files), self.size, self.mtime_ns, hw, tile_hw, offset, nbytes, crc)


@dataclass(frozen=True)
class Recipe:
    """What kind of cache, of what.

    Attributes:
        kind: "memmap" or "lmdb".
        rule: everything that decides the pixels of a tile; not asked for when encoded.
        source: names the image list, so that each has a cache of its own.
        encoded: keep the files' bytes instead of tiles (LMDB).
    """

    kind: str
    rule: Mapping[str, Any]
    source: str
    encoded: bool = False

    @property
    def full_rule(self) -> dict[str, Any]:
        """The rule as the index holds it."""
        return {
            "kind": self.kind,
            "encoded": self.encoded,
            "source": self.source,
            **({} if self.encoded else self.rule),
        }

    @property
    def stem(self) -> str:
        """First part of the names of all files of this cache."""
        digest = blake2b(dumps(self.full_rule, sort_keys=True).encode("ascii"), digest_size=8).hexdigest()
        return f"{self.kind}-{'jpeg' if self.encoded else self.rule.get('imgsz', 'tiles')}-{digest}"


class Backend(Protocol):
    """One kind of data file (see MemmapBackend)."""

    suffix: str
    appendable: bool

    def open(self, path: Path, uid: str, end: int, extra: Mapping[str, Any]) -> Container: ...
    def create(self, path: Path, uid: str, nbytes: npt.NDArray[np.int64]) -> Writer: ...
    def append(self, path: Path, uid: str, end: int, nbytes: npt.NDArray[np.int64]) -> Writer: ...


def get_backend(kind: str) -> Backend:
    """Return the backend of a kind of stored cache."""
    if kind == "memmap":
        return MemmapBackend()
    from fastyolo_data.store.lmdb import LmdbBackend

    return LmdbBackend()


@dataclass
class Found:
    """An intact cache and where each image is in it (-1: not there)."""

    folder: Path
    index: StoreIndex
    container: Container
    at: npt.NDArray[np.int64]

    @property
    def complete(self) -> bool:
        """Whether nothing has to be made, and little is kept that nobody wants."""
        return self.index.header.finished and bool((self.at >= 0).all()) and not self.wasteful

    @property
    def wasteful(self) -> bool:
        """Whether most of the data file is of no use to these images."""
        rows = np.unique(self.at[self.at >= 0])
        useful = int(self.index.records.nbytes[rows].sum())
        return self.index.header.end > useful / _WASTE + _SPARE


def open_stored(
    images: Images, recipe: Recipe, folders: Sequence[Path], *, threads: int, prefix: str = "", verbose: bool = False
) -> TileStore:
    """Return the cache of some images, made or brought up to date where needed.

    What cannot be cached (full disk, read-only folders) is a warning, and the images are read from disk.

    Args:
        images: to cache.
        recipe: how.
        folders: where a cache may live, the preferred one first.
        threads: decode in parallel.
        prefix: before every message.
        verbose: show a progress bar.
    """
    wanted = images.wanted(recipe.encoded)
    found = find_stored(wanted, recipe, folders)
    if found is not None and found.complete:
        _LOG.info("%s%s cache of images: %s, unchanged", prefix, recipe.kind, found.folder / found.index.header.data)
        return _store(images, recipe, found)
    errors = []
    for folder in dict.fromkeys(([found.folder] if found is not None else []) + list(folders)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = BuildLock(folder / f"{recipe.stem}.lock")
            with lock.held(f"{prefix}{recipe.kind} cache: waiting until it has been built by"):
                fresh = _update(images, wanted, recipe, folder, lock, Say(prefix, verbose), threads)
            return _store(images, recipe, fresh)
        except (OSError, StoreError) as error:
            errors.append(f"{folder}: {getattr(error, 'strerror', None) or error}")
    found = find_stored(wanted, recipe, folders)
    partly = "the images that are not in it are" if found is not None else "all images are"
    _LOG.warning(
        "%s%s cache cannot be written, %s read from disk (%s); free some space or pass another cache_dir",
        prefix, recipe.kind, partly, "; ".join(errors),
    )  # fmt: skip
    return images.disk if found is None else _store(images, recipe, found)


@dataclass(frozen=True)
class Say:
    """How much is told, and what is put before it."""

    prefix: str
    verbose: bool


def find_stored(wanted: Records, recipe: Recipe, folders: Sequence[Path], *, report: bool = True) -> Found | None:
    """Return the intact cache of this recipe that has most of the images; a damaged one is reported."""
    found = [f for f in (_find_in(folder, wanted, recipe, report) for folder in folders) if f is not None]
    return max(found, key=lambda f: (f.complete, int((f.at >= 0).sum())), default=None)


def _find_in(folder: Path, wanted: Records, recipe: Recipe, report: bool) -> Found | None:
    path = folder / f"{recipe.stem}.index"
    for attempt in range(3):
        try:
            index = read_index(path)
            if dict(index.header.rule) != recipe.full_rule:
                raise StoreError("it was made by another rule")
            header = index.header
            container = get_backend(recipe.kind).open(folder / header.data, header.uid, header.end, header.extra)
            return Found(folder, index, container, index.records.match(wanted))
        except FileNotFoundError:
            return None
        except StoreError as error:
            # A builder may have replaced index and data file between our two looks.
            if attempt == 2 and report:
                _LOG.warning("%s cache %s cannot be used (%s); it is built anew", recipe.kind, path, error)
    return None


def _store(images: Images, recipe: Recipe, found: Found) -> StoredStore:
    path, uid = found.folder / f"{recipe.stem}.index", found.index.header.uid

    def forget(offsets: list[int]) -> None:
        """Take damaged records out of the index, unless somebody is building just now."""
        lock = BuildLock(path.with_suffix(".lock"))
        with contextlib.suppress(OSError, StoreError):
            if lock.acquire():
                try:
                    index = read_index(path)
                    if index.header.uid == uid:
                        write_index(path, index.without(offsets))
                finally:
                    lock.release()

    at = found.at
    return StoredStore(
        recipe.kind, images.disk, found.container, found.index.records, at, encoded=recipe.encoded, on_damage=forget
    )


@dataclass(frozen=True)
class Forecast:
    """What a build would write.

    Attributes:
        images, missing: distinct images, and those that are not cached.
        need: bytes to write; free: bytes free in folder.
    """

    images: int
    missing: int
    need: int
    folder: Path
    free: int

    @property
    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.missing:,} of {self.images:,} images to write, {size_text(self.need)} "
            f"({size_text(self.free)} free in {self.folder})"
        )


def forecast(images: Images, recipe: Recipe, folders: Sequence[Path]) -> Forecast:
    """Return what open_stored would write, and where."""
    wanted = images.wanted(recipe.encoded)
    found = find_stored(wanted, recipe, folders, report=False)
    first = images.disk.first_of_each()
    missing = first if found is None else first[found.at[first] < 0]
    folder = existing = folders[0] if found is None else found.folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    need, free = int(wanted.nbytes[missing].sum()), shutil.disk_usage(existing).free
    return Forecast(len(first), len(missing), need, folder, free)


# ---- building, under the lock ----------------------------------------------------------------------------------------


def _update(
    images: Images, wanted: Records, recipe: Recipe, folder: Path, lock: BuildLock, say: Say, threads: int
) -> Found:
    """Bring the cache in `folder` up to date.

    Raises:
        OSError: no room or not allowed; what was there before is still there, and nothing else.
        StoreError: the new cache cannot be read.
    """
    found = find_stored(wanted, recipe, [folder], report=False)  # reported before we had the lock
    if found is not None and found.complete:
        return found  # another process built it while we waited
    _remove_orphans(folder, recipe.stem, found)
    backend = get_backend(recipe.kind)
    at = found.at if found is not None else np.full(len(wanted), -1, np.int64)
    first = images.disk.first_of_each()
    append = found is not None and not found.wasteful and (backend.appendable or not found.index.header.finished)
    todo = first[at[first] < 0] if append else first
    need = int(wanted.nbytes[todo].sum())
    free = shutil.disk_usage(folder).free
    plan = Forecast(len(first), int((at[first] < 0).sum()), need, folder, free)
    _LOG.info("%s%s cache of images: %s", say.prefix, recipe.kind, plan.text)
    if need + min(_SPARE, free // 8) > free:
        raise StoreError(f"{size_text(need)} needed, {size_text(free)} free")
    Update(images.disk, wanted, recipe, folder, backend, found, append, todo, lock).run(
        threads, say.prefix, say.verbose
    )
    fresh = find_stored(wanted, recipe, [folder])
    if fresh is None:
        raise StoreError("it cannot be read back after it was written")
    return fresh


def _remove_orphans(folder: Path, stem: str, found: Found | None) -> None:
    """Remove what dead builders left: the lock is ours, so nobody alive writes here."""
    keep = {f"{stem}.lock"} | ({f"{stem}.index", found.index.header.data} if found is not None else set())
    for path in folder.glob(f"{stem}.*"):
        if path.name not in keep:
            with contextlib.suppress(OSError):
                os.unlink(path)
