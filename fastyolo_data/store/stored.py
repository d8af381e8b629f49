"""Reading a cache that is kept in a file: the part that all such backends have in common.

Every record is checked against its checksum the first time this process uses it. A record that fails is never handed
out: its image is read from disk instead, and the index forgets the record, so that the next start makes it anew.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import StoreError
from fastyolo_data.store.disk import DiskReader, DiskStore
from fastyolo_data.store.index import Records

__all__ = ["Container", "RecordReader", "StoredStore"]

_LOG = logging.getLogger("fastyolo_data")
_NAMED = 5  # damaged records that get a message each


class RecordReader(Protocol):
    """One thread's access to the records of a data file."""

    def read(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return (nbytes,) uint8, read-only, valid until the next call.

        Raises:
            StoreError: there is no such record, or it cannot be read.
        """
        ...


class Container(Protocol):
    """An open data file."""

    def reader(self) -> RecordReader:
        """Return a new reader for the calling thread."""
        ...


class StoredStore:
    """Tiles, or encoded images, from a data file.

    Args:
        name: of the backend.
        disk: where images come from that are not in the file.
        container: the open data file.
        records: of the index.
        at: (n,) int64 row of each image, -1: none.
        encoded: records are the image files' bytes, not tiles.
        on_damage: called with the offsets of all records that have turned out to be damaged so far; after each of the
            first, and then less and less often.
    """

    def __init__(
        self, name: str, disk: DiskStore, container: Container, records: Records, at: npt.NDArray[np.int64],
        *, encoded: bool, on_damage: Callable[[list[int]], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.disk = disk
        self.container: Container | None = container
        self.encoded = encoded
        self.offsets = np.where(at >= 0, records.offset[at], -1) if len(records) else np.full(len(at), -1)
        self.nbytes = records.nbytes[at] if len(records) else np.zeros(len(at), np.int64)
        self.crc = records.crc[at] if len(records) else np.zeros(len(at), np.uint32)
        self.verified = np.zeros(len(at), bool)
        self.complete = bool((at >= 0).all())  # every image is in the index, if only as a broken one
        self._on_damage = on_damage
        self._damaged: list[int] = []
        self._lock = threading.Lock()

    def reader(self) -> StoredReader:
        """Return a reader; the data file is opened when the first tile is asked for."""
        return StoredReader(self)

    def holds(self, index: int) -> bool:
        """Whether the tile comes from the data file."""
        return self.container is not None and self.offsets[index] >= 0

    def close(self) -> None:
        """Let go of the data file; tiles come from the image files then."""
        self.container = None

    def drop(self, index: int, reason: str) -> None:
        """Stop using a damaged record."""
        with self._lock:
            offset = int(self.offsets[index])
            if offset < 0:
                return
            self.offsets[self.offsets == offset] = -1
            self._damaged.append(offset)
            damaged = list(self._damaged)
            number = len(damaged)
        if number <= _NAMED:
            last = "; further ones are not named" if number == _NAMED else ""
            _LOG.warning(
                "%s cache: the record of %s is damaged (%s); the image file is read instead, and the next start "
                "repairs the cache%s", self.name, self.disk.im_files[index], reason, last,
            )  # fmt: skip
        # The index is written anew each time, so not once for each of the thousands on a failing disk.
        if number <= _NAMED or number.bit_count() == 1:
            self._on_damage(damaged)


class StoredReader:
    """One thread's access to a StoredStore."""

    def __init__(self, store: StoredStore) -> None:
        self._store = store
        self._disk: DiskReader | None = None
        self._records: RecordReader | None = None

    def tile(self, index: int) -> U8Image:
        """Return the tile; see TileReader."""
        store = self._store
        data = self._record(index) if store.holds(index) else None
        if data is None:
            return self._disk_reader().tile(index)
        if store.encoded:
            return self._disk_reader().make(data, index)
        h, w = store.disk.tile_hw[index]
        return data.reshape(int(h), int(w), 3)

    def _record(self, index: int) -> npt.NDArray[np.uint8] | None:
        """Return the record's bytes, or None when the image must come from disk."""
        store, container = self._store, self._store.container
        offset, nbytes = int(store.offsets[index]), int(store.nbytes[index])
        if offset < 0 or container is None:  # another thread dropped it meanwhile
            return None
        try:
            if self._records is None:
                self._records = container.reader()
            data = self._records.read(offset, nbytes)
            if not store.verified[index]:
                if zlib.crc32(data) != store.crc[index]:
                    raise StoreError("its checksum is wrong")
                store.verified[index] = True
            return data
        except StoreError as error:
            store.drop(index, str(error))
            return None

    def _disk_reader(self) -> DiskReader:
        if self._disk is None:
            self._disk = self._store.disk.reader()
        return self._disk
