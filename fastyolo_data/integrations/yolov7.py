"""Drop-in for YOLOv7: `from fastyolo_data.integrations.yolov7 import create_dataloader, LoadImagesAndLabels`.

Signatures of WongKinYiu/yolov7, branch main of 2023-11 (utils/datasets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from fastyolo_data import dropin
from fastyolo_data.dropin import StockArguments
from fastyolo_data.integrations.family import drop_in, open_loader
from fastyolo_data.integrations.recognise import Recognised
from fastyolo_data.loader import FastLoader

__all__ = ["LoadImagesAndLabels", "create_dataloader", "replacements"]


class LoadImagesAndLabels(dropin.LoadImagesAndLabels):
    """The data set by YOLOv7's rules, with its constructor and its names.

    Raises:
        ConfigError: an argument is unusable, or there is nothing to load.
    """

    stock_dialect: ClassVar[str] = "yolov7"

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        img_size: int = 640,
        batch_size: int = 16,
        augment: bool = False,
        hyp: Any = None,
        rect: bool = False,
        image_weights: bool = False,
        cache_images: Any = False,
        single_cls: bool = False,
        stride: int = 32,
        pad: float = 0.0,
        prefix: str = "",
    ) -> None:
        super().__init__(
            path, img_size, batch_size, augment, hyp, rect, image_weights, cache_images, single_cls, stride, pad,
            prefix=prefix,
        )  # fmt: skip

    @property
    def img_files(self) -> list[str]:
        """Path of every image."""
        return self.im_files

    @property
    def imgs(self) -> list[None]:
        """As `ims` of YOLOv5."""
        return self.ims


def create_dataloader(
    path: Any,
    imgsz: int,
    batch_size: int,
    stride: int,
    opt: Any,
    hyp: Any = None,
    augment: bool = False,
    cache: Any = False,
    pad: float = 0.0,
    rect: bool = False,
    rank: int = -1,
    world_size: int = 1,
    workers: int = 8,
    image_weights: bool = False,
    quad: bool = False,
    prefix: str = "",
) -> tuple[FastLoader, LoadImagesAndLabels]:
    """Build loader and data set. As in YOLOv7, one process alone does not shuffle; several ranks do.

    Args:
        opt: options of the training script; `opt.single_cls` is read.

    Returns:
        Batches of (img (B, 3, H, W) uint8, targets (N, 6) float32, paths, shapes), and the data set.

    Raises:
        ConfigError: an argument or the data set is unusable.
    """
    arguments = StockArguments(
        path, imgsz, batch_size, augment, hyp, rect, image_weights, cache, opt.single_cls, stride, pad,
        prefix=prefix, rank=rank, workers=workers, shuffle=rank != -1 and not rect, quad=quad,
    )  # fmt: skip
    return open_loader(LoadImagesAndLabels, arguments)  # type: ignore[return-value]


def replacements(module: ModuleType, recognised: Recognised) -> dict[str, Callable[..., Any]]:
    """Return what patch() puts in place of the functions of a data module of YOLOv7; its classes stay."""
    return {"create_dataloader": drop_in(module.create_dataloader, LoadImagesAndLabels, recognised)}
