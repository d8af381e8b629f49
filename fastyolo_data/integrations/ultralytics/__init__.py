"""Drop-in for Ultralytics 8.4 (8.3 where it costs little). Importing this imports ultralytics.

| File | Job |
|---|---|
| trainers.py | FastDetectionTrainer and its siblings |
| build.py | the two stock functions with our data set and loader; what patch() puts in place |
| dataset.py | the data set that Ultralytics sees |
| loader.py | the loader that Ultralytics sees |
| reasons.py | when the stock pipeline has to do the work |
"""

from fastyolo_data.integrations.ultralytics.build import build_dataloader, build_yolo_dataset, replacements
from fastyolo_data.integrations.ultralytics.dataset import FastYOLODataset
from fastyolo_data.integrations.ultralytics.loader import FastDataLoader
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
