"""The options of build_loader and build_dataset, checked before anything is read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import TASKS
from fastyolo_data.errors import ConfigError
from fastyolo_data.hyp import Dialect, Hyp, get_dialect
from fastyolo_data.machine import cpu_count

__all__ = ["CACHES", "LoaderConfig", "check_weights"]

CACHES = ("none", "ram", "lmdb", "memmap", "auto")
_CACHE_NAMES = {"false": "none", "": "none", "off": "none", "true": "ram", "disk": "memmap"}
_MAX_WORKERS = 8
_MAX_IMGSZ = 8192  # float32 coordinates of the warp kernels keep their 1/256 pixel up to here


@dataclass(frozen=True)
class LoaderConfig:
    """Checked options; see build_loader for their meaning. Every None that stands for a default is resolved.

    The last ones are not options of build_loader; only drop-ins for training code set them.

    Attributes:
        prefix: put before every message.
        quad: collect four samples into one, see assemble/quad.py.
        min_items: leave out images with fewer labels.
        rounding: of resized sides, where the training code at hand differs from its dialect; see Dialect.
    """

    split: str
    imgsz: int
    batch: int
    augment: bool
    hyp: Hyp
    cache: str
    cache_dir: Path | None
    workers: int
    shuffle: bool
    rect: bool
    stride: int
    pad: float
    seed: int
    rank: int
    world_size: int
    drop_last: bool
    task: str
    dialect: str
    single_cls: bool
    classes: tuple[int, ...] | None
    fraction: float
    image_weights: npt.NDArray[np.float64] | str | None
    mosaic_pool: str
    numerics: str
    prefetch: int
    rescan: bool
    verbose: bool
    prefix: str
    quad: bool = False
    min_items: int = 0
    rounding: str | None = None

    @property
    def rules(self) -> Dialect:
        """The dialect's rules."""
        dialect = get_dialect(self.dialect, self.task)
        return dialect if self.rounding is None else replace(dialect, rounding=self.rounding)

    @classmethod
    def check(
        cls,
        *,
        split: str,
        imgsz: int,
        batch: int,
        augment: bool | None,
        hyp: Hyp | Mapping[str, Any] | str | Path | None,
        cache: str | bool | None,
        cache_dir: str | Path | None,
        workers: int | None,
        shuffle: bool | None,
        rect: bool,
        stride: int,
        pad: float | None,
        seed: int,
        rank: int | None,
        world_size: int | None,
        drop_last: bool,
        task: str,
        dialect: str,
        single_cls: bool,
        classes: Sequence[int] | None,
        fraction: float,
        image_weights: npt.ArrayLike | str | None,
        mosaic_pool: str | None,
        numerics: str,
        prefetch: int | None,
        rescan: bool,
        verbose: bool,
    ) -> LoaderConfig:
        """Check every option and fill in the defaults.

        Raises:
            ConfigError: saying what was found, what is allowed, and what to do.
        """
        get_dialect(dialect, _one_of("task", task, TASKS))
        augment = split == "train" if augment is None else _flag("augment", augment)
        rect = _flag("rect", rect)
        weights = check_weights(image_weights)
        shuffled = (split == "train" and not rect) if shuffle is None else _flag("shuffle", shuffle)
        if rect and (shuffled or weights is not None):
            raise ConfigError(
                "rect=True sorts images by aspect ratio, so shuffle=True and image_weights cannot be used with it; "
                "leave them out, or use rect=False"
            )
        stride = _whole("stride", stride, 1)
        rank_, world = _rank(rank, world_size)
        return cls(
            split=_text("split", split),
            imgsz=_imgsz(imgsz, stride),
            batch=_whole("batch", batch, 1),
            augment=augment,
            hyp=_hyp(hyp, task, stride if rect else imgsz),
            cache=_cache(cache),
            cache_dir=_folder(cache_dir),
            workers=min(cpu_count(), _MAX_WORKERS) if workers is None else _whole("workers", workers, 0),
            shuffle=shuffled or weights is not None,
            rect=rect,
            stride=stride,
            pad=(0.0 if augment else 0.5) if pad is None else _pad(pad),
            seed=_whole("seed", seed, None),
            rank=rank_,
            world_size=world,
            drop_last=_flag("drop_last", drop_last),
            task=task,
            dialect=dialect,
            single_cls=_flag("single_cls", single_cls),
            classes=_classes(classes),
            fraction=_fraction(fraction),
            image_weights=weights,
            mosaic_pool=_pool(mosaic_pool, shuffled or weights is not None),
            numerics=_one_of("numerics", numerics, ("fast", "exact")),
            prefetch=2 if prefetch is None else _whole("prefetch", prefetch, 1),
            rescan=_flag("rescan", rescan),
            verbose=_flag("verbose", verbose),
            prefix=f"{split}: ",
        )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name}={value!r}: expected one of {', '.join(map(repr, allowed))}")
    return value


def _hyp(value: Hyp | Mapping[str, Any] | str | Path | None, task: str, side: int) -> Hyp:
    """Hyper-parameters; side: the shortest that a picture can have."""
    hyp = Hyp.parse(value)
    if task == "segment" and hyp.mask_ratio > side:
        raise ConfigError(f"hyp mask_ratio={hyp.mask_ratio}: masks of pictures of {side} px would be empty; lower it")
    return hyp


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name}={value!r}: expected True or False")
    return bool(value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}={value!r}: expected a non-empty text, such as 'train'")
    return value


def _whole(name: str, value: object, low: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or (low is not None and value < low):
        least = "" if low is None else f" >= {low}"
        raise ConfigError(f"{name}={value!r}: expected a whole number{least}")
    return int(value)


def _imgsz(value: object, stride: int) -> int:
    imgsz = _whole("imgsz", value, 10)
    if imgsz > _MAX_IMGSZ:
        raise ConfigError(f"imgsz={imgsz}: expected at most {_MAX_IMGSZ} pixels")
    if imgsz % stride:
        near = imgsz // stride * stride
        choices = f"{near} or {near + stride}" if near else f"{near + stride}"
        raise ConfigError(
            f"imgsz={imgsz} is not a multiple of stride={stride}, which the model's feature maps need; use {choices}, "
            "or pass the stride of your model"
        )
    return imgsz


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _folder(value: object) -> Path | None:
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"cache_dir={value!r}: expected the path of a folder, or None")
    return None if value is None else Path(value).expanduser()


def _classes(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"classes={value!r}: expected a list of class numbers, such as [0, 2]")
    return tuple(_whole("classes", c, 0) for c in value)


def _pad(value: Any) -> float:
    if not _is_number(value) or not 0 <= value <= 8:
        raise ConfigError(f"pad={value!r}: expected slack in strides, from 0 to 8 (the stock value for val is 0.5)")
    return float(value)


def _fraction(value: Any) -> float:
    if not _is_number(value) or not value > 0 or (value > 1 and value != int(value)):
        raise ConfigError(f"fraction={value!r}: expected a share in (0, 1], or a whole number of images")
    return int(value) if isinstance(value, Integral) else float(value)


def _cache(value: object) -> str:
    """Normalise the cache option: False, None and "false" mean off, True means RAM, "disk" is our memmap."""
    if value is None or isinstance(value, bool):
        name = "ram" if value else "none"
    else:
        name = value.lower() if isinstance(value, str) else "?"
        name = _CACHE_NAMES.get(name, name)
    if name not in CACHES:
        raise ConfigError(
            f"cache={value!r} (cache of decoded images): expected one of {', '.join(map(repr, CACHES))}, "
            "None or False (off), or True (RAM)"
        )
    return name


def _pool(value: str | None, shuffled: bool) -> str:
    if value is None:
        return "recent" if shuffled else "uniform"
    return _one_of("mosaic_pool", value, ("recent", "uniform"))


def check_weights(value: npt.ArrayLike | str | None) -> npt.NDArray[np.float64] | str | None:
    """Return image weights as (n,) float64, or "balanced", or None.

    Raises:
        ConfigError: numbers that are not finite, below 0, or sum to 0; another text.
    """
    if value is None or (isinstance(value, str) and value == "balanced"):
        return value
    try:
        weights = np.asarray(value, np.float64)
    except (TypeError, ValueError) as e:
        raise ConfigError(f"image_weights={value!r}: expected one number per image, or 'balanced'") from e
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise ConfigError(
            f"image_weights of shape {weights.shape}: expected one finite number >= 0 per image, with a sum above 0"
        )
    return weights


def _rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This process's rank and the number of ranks; from torch.distributed where it runs and nothing is given."""
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank={rank!r}, world_size={world_size!r}: give both or neither")
    if rank is None or world_size is None:
        import torch.distributed as dist

        running = dist.is_available() and dist.is_initialized()
        return (dist.get_rank(), dist.get_world_size()) if running else (0, 1)
    world = _whole("world_size", world_size, 1)
    mine = _whole("rank", rank, 0)
    if mine >= world:
        raise ConfigError(f"rank={rank}: expected 0 to {world - 1} for world_size={world}")
    return mine, world
