"""Image stores: index to tile, one file per backend."""

from fastyolo_data.store.auto import Decision, Numbers, decide
from fastyolo_data.store.base import TileReader, TileStore, size_text
from fastyolo_data.store.build import Forecast, Found, Images, Recipe, find_stored, forecast, open_stored
from fastyolo_data.store.disk import DiskStore
from fastyolo_data.store.ram import Memory, RamStore, fill_ram, tile_bytes
from fastyolo_data.store.stored import StoredStore

__all__ = [
    "Decision", "DiskStore", "Forecast", "Found", "Images", "Memory", "Numbers", "RamStore", "Recipe", "StoredStore",
    "TileReader", "TileStore", "decide", "fill_ram", "find_stored", "forecast", "open_stored", "size_text",
    "tile_bytes",
]  # fmt: skip
