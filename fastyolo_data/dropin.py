"""The data set under the name, constructor and attributes that YOLOv5, YOLOv7 and YOLOv9 code knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from fastyolo_data.assemble import join_quads
from fastyolo_data.config import LoaderConfig
from fastyolo_data.dataset import LabelledImages, read_split
from fastyolo_data.datatypes import DataSpec, LabelTable
from fastyolo_data.errors import ConfigError
from fastyolo_data.hyp import Hyp

__all__ = ["LoadImagesAndLabels", "StockArguments"]

Sample = tuple[Any, ...]


@dataclass(frozen=True)
class StockArguments:
    """What the create_dataloader functions and LoadImagesAndLabels constructors are told, under their names.

    Attributes:
        path: image folder, .txt list, or a list of those.
        cache: as the training scripts' --cache: False or None, "ram" (or any other true value), or "disk".
        image_weights: the training loop assigns `dataset.indices`; switches rect off, as in the stock code.
        shuffle: switched off by rect, as in the stock code.
        rank: -1 outside distributed training, and for loaders that one process has for itself.
        prefix: put before messages.
        mask_ratio, overlap_mask: of segmentation loaders; mask_ratio None: no masks.
        rounding: of resized sides; None: the dialect's.
    """

    path: str | Path | Sequence[str | Path]
    imgsz: int = 640
    batch_size: int = 16
    augment: bool = False
    hyp: Any = None
    rect: bool = False
    image_weights: bool = False
    cache: Any = False
    single_cls: bool = False
    stride: int = 32
    pad: float = 0.0
    min_items: int = 0
    prefix: str = ""
    rank: int = -1
    seed: int = 0
    workers: int = 0
    shuffle: bool = False
    quad: bool = False
    mask_ratio: int | None = None
    overlap_mask: bool = False
    rounding: str | None = None

    def config(self, dialect: str, **options: Any) -> LoaderConfig:
        """Translate into our options.

        Args:
            dialect: whose rules hold.
            **options: options of build_loader that come first, whatever the stock arguments say.

        Raises:
            ConfigError: an argument is unusable.
        """
        if self.quad and (self.mask_ratio is not None or self.batch_size < 4):
            raise ConfigError(
                f"{self.prefix}quad joins four pictures into one: it needs a batch of at least 4, found "
                f"{self.batch_size}, and cannot be used with masks (the stock code fails there too); leave --quad out"
            )
        rank, world_size = _share(self.rank)
        hyp = Hyp.parse(self.hyp)
        if self.mask_ratio is not None:
            hyp = replace(hyp, mask_ratio=int(self.mask_ratio), overlap_mask=bool(self.overlap_mask))
        # The training scripts round imgsz to the stride themselves; other callers may ask for any size, as there.
        imgsz, stride = int(self.imgsz), int(self.stride)
        whole = -(-imgsz // max(stride, 1)) * stride
        settings = {
            "split": "train" if self.augment else "val", "imgsz": whole, "stride": stride,
            "batch": int(self.batch_size), "augment": bool(self.augment), "hyp": hyp,
            "cache": _cache(self.cache), "cache_dir": None, "workers": self.workers,
            "shuffle": bool(self.shuffle and not self.rect),
            "rect": bool(self.rect and not self.image_weights), "pad": float(self.pad), "seed": int(self.seed),
            "rank": rank, "world_size": world_size,
            "drop_last": bool(self.quad), "task": "detect" if self.mask_ratio is None else "segment",
            "dialect": dialect, "single_cls": bool(self.single_cls), "classes": None, "fraction": 1.0,
            "image_weights": None, "mosaic_pool": None, "numerics": "fast", "prefetch": None, "rescan": False,
            "verbose": int(os.environ.get("LOCAL_RANK", -1)) in (-1, 0),
        }  # fmt: skip
        config = LoaderConfig.check(**{**settings, **options})
        return replace(
            config, imgsz=imgsz, prefix=self.prefix, quad=bool(self.quad), min_items=int(self.min_items),
            rounding=self.rounding,
        )  # fmt: skip


def _share(rank: int) -> tuple[int, int]:
    """This process's rank and the number of ranks; a loader with rank -1 belongs to one process alone."""
    if rank == -1:
        return 0, 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", rank)), int(os.environ.get("WORLD_SIZE", 1))


def _cache(value: Any) -> str:
    if not value:
        return "none"
    return "memmap" if value == "disk" else "ram"


class LoadImagesAndLabels(LabelledImages):
    """The data set of one split, as build_dataset returns it and as YOLOv5 code constructs it.

    Constructed directly, it takes YOLOv5's arguments (7.0 and later) and works by YOLOv5's rules; `dataset[i]` and the
    collate functions then give what they give there, so PyTorch's DataLoader can be used with it. See LabelledImages
    for what may be assigned.

    Attributes:
        path, mosaic_border: as in YOLOv5.

    Raises:
        ConfigError: an argument is unusable, or there is nothing to load.
    """

    stock_dialect: ClassVar[str] = "yolov5"

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
        min_items: int = 0,
        prefix: str = "",
        rank: int = -1,
        seed: int = 0,
    ) -> None:
        arguments = StockArguments(
            path, img_size, batch_size, augment, hyp, rect, image_weights, cache_images, single_cls, stride, pad,
            min_items, prefix, rank, seed,
        )  # fmt: skip
        self._start(path, arguments.config(self.stock_dialect))

    def _start(self, path: Any, config: LoaderConfig) -> None:
        table, spec = read_split(path, config)
        super().__init__(table, spec, replace(config, batch=min(config.batch, len(table))))
        self.path = path

    @classmethod
    def of(cls, table: LabelTable, spec: DataSpec, config: LoaderConfig) -> LoadImagesAndLabels:
        """Make a data set from labels that have been read."""
        dataset = cls.__new__(cls)
        LabelledImages.__init__(dataset, table, spec, config)
        dataset.path = spec.origin
        return dataset

    @classmethod
    def from_stock(cls, arguments: StockArguments, **options: Any) -> LoadImagesAndLabels:
        """Make a data set from the arguments of a stock function; see StockArguments.config for the options."""
        dataset = cls.__new__(cls)
        dataset._start(arguments.path, arguments.config(cls.stock_dialect, **options))
        return dataset

    @property
    def mosaic_border(self) -> list[int]:
        """Border that the stock warp cuts off a mosaic, y and x."""
        return [-self.imgsz // 2] * 2

    @property
    def ims(self) -> list[None]:
        """As many None as there are images: the stock code keeps cached pictures here, we keep them in one store."""
        return [None] * len(self)

    @property
    def npy_files(self) -> list[Path]:
        """Where the stock code would put its cached pictures; never read or written here."""
        return [Path(f).with_suffix(".npy") for f in self.im_files]

    @staticmethod
    def collate_fn(batch: Sequence[Sample]) -> Sample:
        """Join samples of `dataset[i]` into the batch that the loader would make of them."""
        return _join(batch)

    @staticmethod
    def collate_fn4(batch: Sequence[Sample]) -> Sample:
        """Like collate_fn, four samples to a picture of twice the side; which of them are joined is random."""
        joined = _join(batch)
        return join_quads(joined, torch.rand(len(batch) // 4).numpy() < 0.5)


def _join(batch: Sequence[Sample]) -> Sample:
    images, labels, paths, shapes, *masks = zip(*batch, strict=True)
    numbered = [torch.cat((torch.full((len(lb), 1), float(i)), lb[:, 1:]), 1) for i, lb in enumerate(labels)]
    joined = (torch.stack(images), torch.cat(numbered), paths, shapes)
    return (*joined, torch.cat(masks[0])) if masks else joined
