"""The tiles of a data set: which store they come from, when it is opened, and when it is given back."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.config import LoaderConfig
from fastyolo_data.datatypes import DataSpec, LabelTable, U8Image
from fastyolo_data.decode import Decoder, TileMaker
from fastyolo_data.errors import ConfigError, ImageDecodeError
from fastyolo_data.hyp import Dialect
from fastyolo_data.kernels import jpeg
from fastyolo_data.labels import cache_folders
from fastyolo_data.machine import memory_available
from fastyolo_data.store import (
    DiskStore,
    Images,
    Memory,
    Numbers,
    Recipe,
    TileStore,
    decide,
    fill_ram,
    find_stored,
    forecast,
    open_stored,
    tile_bytes,
)

__all__ = ["PAYLOAD_VARIABLE", "Tiles"]

_LOG = logging.getLogger("fastyolo_data")
PAYLOAD_VARIABLE = "FASTYOLO_LMDB_PAYLOAD"  # what cache="lmdb" keeps: "tiles" (default) or "jpeg", the files' bytes
_TRIAL = 8  # tiles that are timed for cache="auto"


class Tiles:
    """Opens the store that config.cache names when it is first needed, and closes it with its last user.

    Args:
        table: images.
        tile_hw: (n, 2) size of every tile.
        spec: where the data set lies.
        config: options.
        dialect: rules.
    """

    def __init__(
        self,
        table: LabelTable,
        tile_hw: npt.NDArray[np.integer],
        spec: DataSpec,
        config: LoaderConfig,
        dialect: Dialect,
    ) -> None:
        self._table = table
        self._tile_hw = tile_hw
        self._spec = spec
        self._config = config
        self._area = dialect.area_when_shrinking and not config.augment
        self._rounding = dialect.rounding
        # Scaled decoding moves pixels by more than the fast numerics promise (docs/decisions/002), so it is asked for.
        # Validation pictures are never decoded scaled, so that metrics do not move.
        asked = os.environ.get("FASTYOLO_SCALED_DECODE") == "1"
        self._scaled = asked and config.augment and config.numerics != "exact"
        self._lock = threading.Lock()
        self._store: TileStore | None = None
        self._users = 0
        self._given_back = False

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_store", "_users")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process nothing is open yet."""
        self.__dict__.update(state, _lock=threading.Lock(), _store=None, _users=0)

    def acquire(self) -> TileStore:
        """Return the store, opening it if need be; every call wants one `release`."""
        with self._lock:
            if self._store is None:
                self._store = self._open(self._config.cache)
            self._users += 1
            return self._store

    def release(self) -> None:
        """Give the store back; the last user closes it. Readers that are left read the image files from then on."""
        with self._lock:
            self._users -= 1
            if self._users <= 0 and self._store is not None:
                self._store.close()
                self._store, self._users, self._given_back = None, 0, True

    def peek(self) -> TileStore:
        """Return a store for single samples: the open one, or one that the user named.

        A cache is not built for single samples if "auto" would have to choose it, or after the loaders that used it are
        closed.
        """
        with self._lock:
            if self._store is None and self._config.cache != "auto" and not self._given_back:
                self._store = self._open(self._config.cache)
            return self.disk(self._scaled) if self._store is None else self._store

    def image(self, i: int) -> U8Image:
        """Return image i at training size, decoded at full size first; the caller's own."""
        reduced = self._scaled and max(self._table.hw[i]) >= 2 * max(self._tile_hw[i])
        return (self.disk(False) if reduced else self.peek()).reader().tile(i).copy()

    def disk(self, scaled: bool) -> DiskStore:
        """Return the store that decodes the image files."""
        api, area = jpeg.load(), self._area
        return DiskStore(
            self._table.im_files,
            self._table.hw,
            self._tile_hw,
            lambda: TileMaker(Decoder(api), area_when_shrinking=area, scaled=scaled),
        )

    def images(self) -> Images:
        """Return the images as a stored cache sees them."""
        return Images(self.disk(self._scaled), self._table.file_size, self._table.mtime_ns)

    def recipe(self, kind: str) -> Recipe:
        """Return what identifies a stored cache of these images.

        Args:
            kind: "memmap" or "lmdb".
        """
        rule: dict[str, Any] = {
            "imgsz": self._config.imgsz,
            "rounding": self._rounding,
            "area": self._area,
            "scaled": self._scaled,
            "opencv": int(cv2.__version__.split(".")[0]),
        }
        key = [[str(s) for s in self._spec.sources], str(self._spec.root), self._config.fraction]
        source = hashlib.blake2b(json.dumps(key).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        return Recipe(kind, rule, source, encoded=kind == "lmdb" and lmdb_payload() == "jpeg")

    def folders(self) -> list[Path]:
        """Return the folders that a stored cache may live in, the preferred one first."""
        return cache_folders(self._spec, self._config.cache_dir, "tiles")

    def forecast(self, kind: str) -> str:
        """Say what making a stored cache would write."""
        return forecast(self.images(), self.recipe(kind), self.folders()).text

    # ---- opening -----------------------------------------------------------------------------------------------------

    def _open(self, cache: str) -> TileStore:
        c = self._config
        prefix, threads = c.prefix, c.workers or 1
        if cache == "auto":
            cache = self._choose(prefix)
        if cache == "ram":
            memory = Memory(lambda: memory_available()[0], memory_available()[1], self._ranks())
            return fill_ram(self.disk(self._scaled), memory, threads=threads, prefix=prefix, verbose=c.verbose)
        if cache in ("memmap", "lmdb"):
            return open_stored(
                self.images(), self.recipe(cache), self.folders(), threads=threads, prefix=prefix, verbose=c.verbose
            )
        return self.disk(self._scaled)

    def _ranks(self) -> int:
        """Processes of this training on this machine."""
        if self._config.world_size == 1:
            return 1
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        return int(local) if local.isdigit() and int(local) else self._config.world_size

    def _choose(self, prefix: str) -> str:
        """Decide what "auto" means here, and say why."""
        images, recipe, folders = self.images(), self.recipe("memmap"), self.folders()
        first = images.disk.first_of_each()
        available, limit = memory_available()
        stored = find_stored(images.wanted(False), recipe, folders, report=False)
        numbers = Numbers(
            images=len(first),
            decode=_decode_seconds(images.disk, first),
            bytes=int(tile_bytes(self._tile_hw)[first].sum()),
            memory=available,
            limit=limit,
            disk=max(_free(folder) for folder in folders),
            threads=self._config.workers or 1,
            ranks=self._ranks(),
            stored=stored is not None and stored.complete,
        )
        decision = decide(numbers)
        _LOG.info("%scache='auto' is %r: %s", prefix, decision.cache, decision.reason)
        return decision.cache


def lmdb_payload() -> str:
    """Return what cache="lmdb" keeps: "tiles" or "jpeg".

    Raises:
        ConfigError: the environment variable has another value.
    """
    value = os.environ.get(PAYLOAD_VARIABLE) or "tiles"
    if value not in ("tiles", "jpeg"):
        raise ConfigError(f"{PAYLOAD_VARIABLE}={value!r}: expected 'tiles' or 'jpeg' (the bytes of the image files)")
    return value


def _decode_seconds(disk: DiskStore, first: npt.NDArray[np.int64]) -> float:
    """Return the median seconds to make a tile, over images from the whole split."""
    reader, seconds = disk.reader(), []
    for i in first[np.linspace(0, len(first) - 1, _TRIAL + 1).astype(int)]:
        began = time.perf_counter()
        try:
            reader.tile(int(i))
        except ImageDecodeError:
            continue
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:] or seconds or [0.0])


def _free(folder: Path) -> int:
    """Return the bytes free in a folder that may not exist yet; 0 where nothing can be written."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free if os.access(folder, os.W_OK) else 0
    except OSError:
        return 0
