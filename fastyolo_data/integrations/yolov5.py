"""Drop-in for YOLOv5: `from fastyolo_data.integrations.yolov5 import create_dataloader, LoadImagesAndLabels`.

Signatures of YOLOv5 7.0 and its HEAD of 2026 (utils/dataloaders.py, utils/segment/dataloaders.py).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from fastyolo_data.dropin import LoadImagesAndLabels, StockArguments
from fastyolo_data.integrations.family import classification, drop_in, open_loader
from fastyolo_data.integrations.recognise import Recognised
from fastyolo_data.loader import FastLoader

__all__ = ["LoadImagesAndLabels", "create_dataloader", "create_segment_dataloader", "replacements"]


def create_dataloader(
    path: Any,
    imgsz: int,
    batch_size: int,
    stride: int,
    single_cls: bool = False,
    hyp: Any = None,
    augment: bool = False,
    cache: Any = False,
    pad: float = 0.0,
    rect: bool = False,
    rank: int = -1,
    workers: int = 8,
    image_weights: bool = False,
    quad: bool = False,
    prefix: str = "",
    shuffle: bool = False,
    seed: int = 0,
) -> tuple[FastLoader, LoadImagesAndLabels]:
    """Build loader and data set for detection.

    Returns:
        Batches of (img (B, 3, H, W) uint8, targets (N, 6) float32, paths, shapes), and the data set.

    Raises:
        ConfigError: an argument or the data set is unusable.
    """
    arguments = StockArguments(
        path, imgsz, batch_size, augment, hyp, rect, image_weights, cache, single_cls, stride, pad,
        prefix=prefix, rank=rank, seed=seed, workers=workers, shuffle=shuffle, quad=quad,
    )  # fmt: skip
    return open_loader(LoadImagesAndLabels, arguments)


def create_segment_dataloader(
    path: Any,
    imgsz: int,
    batch_size: int,
    stride: int,
    single_cls: bool = False,
    hyp: Any = None,
    augment: bool = False,
    cache: Any = False,
    pad: float = 0.0,
    rect: bool = False,
    rank: int = -1,
    workers: int = 8,
    image_weights: bool = False,
    quad: bool = False,
    prefix: str = "",
    shuffle: bool = False,
    mask_downsample_ratio: int = 1,
    overlap_mask: bool = False,
    seed: int = 0,
) -> tuple[FastLoader, LoadImagesAndLabels]:
    """Build loader and data set for segmentation: batches have masks as their fifth part.

    Returns:
        As create_dataloader; masks are (B, H / ratio, W / ratio) with overlap_mask, else (N, H / ratio, W / ratio).

    Raises:
        ConfigError: an argument or the data set is unusable.
    """
    arguments = StockArguments(
        path, imgsz, batch_size, augment, hyp, rect, image_weights, cache, single_cls, stride, pad,
        prefix=prefix, rank=rank, seed=seed, workers=workers, shuffle=shuffle, quad=quad,
        mask_ratio=mask_downsample_ratio, overlap_mask=overlap_mask,
    )  # fmt: skip
    return open_loader(LoadImagesAndLabels, arguments)


def replacements(module: ModuleType, recognised: Recognised) -> dict[str, Callable[..., Any]]:
    """Return what patch() puts in place of the functions of a data module of YOLOv5; its classes stay."""
    ours = drop_in(module.create_dataloader, LoadImagesAndLabels, recognised)
    return {"create_dataloader": ours, **classification(module)}
