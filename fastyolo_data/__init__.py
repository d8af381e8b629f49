"""fastyolo_data: the data loader that keeps a GPU busy when people train YOLO."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
