"""Trainers that load with us: `YOLO(...).train(trainer=FastDetectionTrainer, ...)`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.models.yolo.obb import OBBTrainer
from ultralytics.models.yolo.pose import PoseTrainer
from ultralytics.models.yolo.segment import SegmentationTrainer
from ultralytics.utils import LOGGER
from ultralytics.utils.torch_utils import torch_distributed_zero_first

from fastyolo_data.integrations.options import FastOptions
from fastyolo_data.integrations.ultralytics.build import build_dataloader, build_yolo_dataset

__all__ = ["FastDetectionTrainer", "FastOBBTrainer", "FastPoseTrainer", "FastSegmentationTrainer"]


class _FastTrainer:
    """Loads with us; put before a stock trainer class.

    The attributes are our options (see FastOptions), None: as the training arguments say. Set them on a subclass of
    your own, or on the class before training; DDP ranks import these classes afresh and see subclasses and FASTYOLO_*
    variables only.
    """

    cache: ClassVar[str | bool | None] = None
    cache_dir: ClassVar[str | None] = None
    workers: ClassVar[int | None] = None
    numerics: ClassVar[str | None] = None
    mosaic_pool: ClassVar[str | None] = None
    prefetch: ClassVar[int | None] = None
    seed: ClassVar[int | None] = None
    image_weights: ClassVar[Any] = None

    def build_dataset(self, img_path: str, mode: str = "train", batch: int | None = None) -> Any:
        """Build the data set of a split; see the stock method."""
        return build_yolo_dataset(
            self.args, img_path, batch, self.data, mode=mode, rect=mode == "val", stride=getattr(self, "stride", 32),
            options=FastOptions.gather(self),
        )  # fmt: skip

    def get_dataloader(self, dataset_path: str, batch_size: int = 16, rank: int = 0, mode: str = "train") -> Any:
        """Build the loader of a split; see the stock method."""
        if mode not in ("train", "val"):
            raise ValueError(f"mode={mode!r}: expected 'train' or 'val'")
        training = mode == "train"
        with torch_distributed_zero_first(rank):  # the first rank reads the labels, the others take its cache
            dataset = self.build_dataset(dataset_path, mode, batch_size)
        shuffle = training
        if training and getattr(dataset, "rect", False) and np.ptp(dataset.batch_shapes, 0).any():
            LOGGER.warning("'rect=True' is incompatible with DataLoader shuffle, setting shuffle=False")
            shuffle = False
        return build_dataloader(
            dataset, batch_size, self.args.workers if training else self.args.workers * 2, shuffle=shuffle, rank=rank,
            drop_last=bool(self.args.compile) and training, device=self.device,
        )  # fmt: skip

    def run_callbacks(self, event: str) -> None:
        """Run the callbacks of an event; before an epoch, tell the loader which it is: a resumed run goes on there."""
        if event == "on_train_epoch_start" and hasattr(self.train_loader, "set_epoch"):
            self.train_loader.set_epoch(self.epoch)
        super().run_callbacks(event)


class FastDetectionTrainer(_FastTrainer, DetectionTrainer):
    """DetectionTrainer with our loader."""


class FastSegmentationTrainer(_FastTrainer, SegmentationTrainer):
    """SegmentationTrainer with our loader."""


class FastPoseTrainer(_FastTrainer, PoseTrainer):
    """PoseTrainer with our loader."""


class FastOBBTrainer(_FastTrainer, OBBTrainer):
    """OBBTrainer with our loader."""
