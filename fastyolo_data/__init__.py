"""fastyolo_data: the data loader that keeps a GPU busy when people train YOLO."""

from __future__ import annotations

from fastyolo_data.dataset import LoadImagesAndLabels
from fastyolo_data.errors import ConfigError, FastYoloError, ImageDecodeError, LabelError, StoreError
from fastyolo_data.hyp import Hyp
from fastyolo_data.loader import FastLoader, build_dataset, build_loader

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "FastLoader",
    "FastYoloError",
    "Hyp",
    "ImageDecodeError",
    "LabelError",
    "LoadImagesAndLabels",
    "StoreError",
    "__version__",
    "build_dataset",
    "build_loader",
]
