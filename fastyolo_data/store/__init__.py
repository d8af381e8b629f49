"""Image stores: index to tile, one file per backend."""

from fastyolo_data.store.base import TileReader, TileStore
from fastyolo_data.store.disk import DiskStore

__all__ = ["DiskStore", "TileReader", "TileStore"]
