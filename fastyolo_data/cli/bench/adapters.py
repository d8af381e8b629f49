"""One small class for each loader the benchmark can run. Packages are imported in `load`, never at module level.

A new competitor is one more class here and one more entry in ADAPTERS.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import yaml

from fastyolo_data.datatypes import TASKS

__all__ = ["ADAPTERS", "Adapter", "Settings", "available", "child_environment"]


@dataclass(frozen=True)
class Settings:
    """What every loader is asked to do.

    Attributes:
        data: path of a data.yaml whose `train` split is loaded, augmented and shuffled.
        imgsz: training size in pixels.
        batch: images in a batch.
        workers: worker threads or processes.
        cache: "none", "ram" or another mode of `build_loader`; an adapter maps it to its nearest own mode.
        task: "detect", "segment", "pose" or "obb"; an adapter's `tasks` says which it can.
    """

    data: str
    imgsz: int
    batch: int
    workers: int
    cache: str
    task: str = "detect"


class Adapter(Protocol):
    """A loader as the benchmark sees it. Calls come in this order: load, build, batches (once)."""

    package: str | None  # what must be importable; None when nothing must
    tasks: ClassVar[tuple[str, ...]]

    def load(self) -> None:
        """Import everything needed, so that `build` is free of imports."""

    def build(self, settings: Settings) -> None:
        """Create the loader, label scan included."""

    def batches(self) -> Iterator[dict[str, Any]]:
        """Return an endless stream of training batches, one epoch after the other, each a dict with `img`."""

    def epoch_batches(self) -> int:
        """Return the number of batches in an epoch."""

    def prefetched(self) -> int:
        """Return how many batches may lie ready while nobody asks: a pass skips as many before it takes the time."""


class OurAdapter:
    """fastyolo_data.build_loader with default arguments."""

    package: str | None = "fastyolo_data"
    tasks: ClassVar[tuple[str, ...]] = TASKS
    loader: Any

    def load(self) -> None:
        """Import fastyolo_data and torch."""
        importlib.import_module("torch")
        self._build_loader = importlib.import_module("fastyolo_data.loader").build_loader

    def build(self, settings: Settings) -> None:
        """Build the training loader; mode "lmdb-jpeg" is cache="lmdb" with the image files' bytes in it."""
        cache, _, payload = settings.cache.partition("-")
        os.environ["FASTYOLO_LMDB_PAYLOAD"] = payload or "tiles"
        self.loader = self._build_loader(
            settings.data,
            imgsz=settings.imgsz,
            batch=settings.batch,
            workers=settings.workers,
            cache=cache,
            task=settings.task,
            verbose=False,
        )

    def batches(self) -> Iterator[dict[str, Any]]:
        """Return an endless stream of batches."""
        while True:
            yield from self.loader

    def epoch_batches(self) -> int:
        """Return the batches of an epoch."""
        return len(self.loader)

    def prefetched(self) -> int:
        """Return an upper bound: four batches for each worker, as the stock loaders have."""
        return 4 * max(1, int(self.loader.num_workers))


class UltralyticsAdapter:
    """The installed Ultralytics package: its own dataset and loader builders, its own default hyper-parameters."""

    package: str | None = "ultralytics"
    tasks: ClassVar[tuple[str, ...]] = TASKS
    loader: Any
    # "disk" is its way of keeping decoded images in files, as LMDB and memmap are ours.
    cache_modes: ClassVar[dict[str, bool | str]] = {
        "none": False,
        "ram": "ram",
        "disk": "disk",
        "memmap": "disk",
        "lmdb": "disk",
        "lmdb-jpeg": "disk",
    }

    def load(self) -> None:
        """Import the parts of Ultralytics that its trainer uses to make a loader."""
        self._cfg = importlib.import_module("ultralytics.cfg")
        self._utils = importlib.import_module("ultralytics.utils")
        self._data = importlib.import_module("ultralytics.data.utils")
        self._build = importlib.import_module("ultralytics.data.build")

    def build(self, settings: Settings) -> None:
        """Build the training loader the way `yolo train` does, with shuffling and the default augmentation."""
        cfg = self._cfg.get_cfg(
            self._utils.DEFAULT_CFG,
            {
                "task": settings.task,
                "mode": "train",
                "imgsz": settings.imgsz,
                "batch": settings.batch,
                "workers": settings.workers,
                "cache": self.cache_modes[settings.cache],
            },
        )
        spec = self._data.check_det_dataset(settings.data, autodownload=False)
        dataset = self._build.build_yolo_dataset(cfg, spec["train"], settings.batch, spec, mode="train", stride=32)
        self.loader = self._build.build_dataloader(dataset, settings.batch, settings.workers, shuffle=True)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Return an endless stream of batches."""
        while True:
            yield from self.loader

    def epoch_batches(self) -> int:
        """Return the batches of an epoch."""
        return len(self.loader)

    def prefetched(self) -> int:
        """Return the number of batches that its worker processes keep ready."""
        return (self.loader.prefetch_factor or 0) * self.loader.num_workers


class Yolov5Adapter:
    """The installed YOLOv5 package (PyPI yolov5 7.0): its create_dataloader, hyper-parameters as in hyp.scratch-low.

    Its tuples are handed on as dicts with the names that Ultralytics uses, so that batches can be compared.
    """

    package: str | None = "yolov5"
    tasks: ClassVar[tuple[str, ...]] = ("detect",)
    loader: Any
    cache_modes: ClassVar[dict[str, bool | str]] = {
        "none": False,
        **dict.fromkeys(("ram", "disk", "memmap", "lmdb", "lmdb-jpeg"), "ram"),
    }
    hyp: ClassVar[dict[str, float]] = {
        "hsv_h": 0.015,
        "hsv_s": 0.7,
        "hsv_v": 0.4,
        "degrees": 0.0,
        "translate": 0.1,
        "scale": 0.5,
        "shear": 0.0,
        "perspective": 0.0,
        "flipud": 0.0,
        "fliplr": 0.5,
        "mosaic": 1.0,
        "mixup": 0.0,
        "copy_paste": 0.0,
    }

    def load(self) -> None:
        """Import YOLOv5's data loading."""
        self._module = importlib.import_module("yolov5.utils.dataloaders")

    def build(self, settings: Settings) -> None:
        """Build the training loader the way train.py does."""
        spec = yaml.safe_load(Path(settings.data).read_text(encoding="utf-8"))
        images = str(Path(settings.data).parent / spec.get("path", ".") / spec["train"])
        cache = self.cache_modes[settings.cache] or None
        self.loader, _ = self._module.create_dataloader(
            images,
            settings.imgsz,
            settings.batch,
            32,
            hyp=self.hyp,
            augment=True,
            cache=cache,
            workers=settings.workers,
            shuffle=True,
        )

    def batches(self) -> Iterator[dict[str, Any]]:
        """Return an endless stream of batches."""
        while True:
            for img, targets, paths, shapes in self.loader:
                yield {
                    "batch_idx": targets[:, 0],
                    "bboxes": targets[:, 2:],
                    "cls": targets[:, 1:2],
                    "im_file": paths,
                    "img": img,
                    "ori_shape": shapes,
                    "ratio_pad": shapes,
                    "resized_shape": shapes,
                }

    def epoch_batches(self) -> int:
        """Return the batches of an epoch."""
        return len(self.loader)

    def prefetched(self) -> int:
        """Return the number of batches that its worker processes keep ready."""
        return (self.loader.prefetch_factor or 0) * self.loader.num_workers


class BaselineAdapter:
    """Loads nothing: its process is the memory that torch, cv2 and numba take by being imported."""

    package: str | None = None
    tasks: ClassVar[tuple[str, ...]] = TASKS

    def load(self) -> None:
        """Import the three packages that every loader of this kind needs."""
        for name in ("torch", "cv2", "numba"):
            importlib.import_module(name)

    def build(self, settings: Settings) -> None:
        """Build nothing."""

    def batches(self) -> Iterator[dict[str, Any]]:
        """Return an empty stream."""
        return iter(())

    def epoch_batches(self) -> int:
        """Return 0."""
        return 0

    def prefetched(self) -> int:
        """Return 0."""
        return 0


ADAPTERS: dict[str, type[Adapter]] = {
    "ours": OurAdapter,
    "ultralytics": UltralyticsAdapter,
    "yolov5": Yolov5Adapter,
    "baseline": BaselineAdapter,
}


def available(name: str) -> bool:
    """Return whether the package behind adapter `name` is installed, without importing it."""
    package = ADAPTERS[name].package
    return package is None or importlib.util.find_spec(package) is not None


def child_environment(folder: str) -> dict[str, str]:
    """Return the environment of a contender's process.

    Args:
        folder: a temporary folder in which the stock packages may keep their settings, so that the user's stay
            untouched, and in which killed processes may leave their temporary files.
    """
    offline = {"YOLO_AUTOINSTALL": "False", "YOLO_OFFLINE": "True", "YOLO_VERBOSE": "False"}
    private = {"YOLO_CONFIG_DIR": folder, "YOLOV5_CONFIG_DIR": folder, "TMPDIR": folder, "TEMP": folder, "TMP": folder}
    return {**os.environ, **offline, **private}
