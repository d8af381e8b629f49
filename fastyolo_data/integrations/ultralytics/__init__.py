"""Drop-in for Ultralytics 8.4 (8.3 where it costs little). Importing this imports ultralytics.data.

The trainers, which need the whole package, are imported when they are first used: patch() may come here in the middle
of the import of ultralytics.

| File | Job |
|---|---|
| trainers.py | FastDetectionTrainer and its siblings |
| build.py | the two stock functions with our data set and loader; what patch() puts in place |
| dataset.py | the data set that Ultralytics sees |
| loader.py | the loader that Ultralytics sees |
| reasons.py | when the stock pipeline has to do the work |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fastyolo_data.integrations.ultralytics.build import build_dataloader, build_yolo_dataset, replacements
from fastyolo_data.integrations.ultralytics.dataset import FastYOLODataset
from fastyolo_data.integrations.ultralytics.loader import FastDataLoader

if TYPE_CHECKING:
    from fastyolo_data.integrations.ultralytics.trainers import (
        FastDetectionTrainer,
        FastOBBTrainer,
        FastPoseTrainer,
        FastSegmentationTrainer,
    )

__all__ = [
    "FastDataLoader",
    "FastDetectionTrainer",
    "FastOBBTrainer",
    "FastPoseTrainer",
    "FastSegmentationTrainer",
    "FastYOLODataset",
    "build_dataloader",
    "build_yolo_dataset",
    "replacements",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.trainers"), name)
