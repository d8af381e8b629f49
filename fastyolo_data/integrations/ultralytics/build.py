"""The two stock functions that make data sets and loaders, with our data set and loader where they can do the work."""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from ultralytics.data import build as stock
from ultralytics.data import utils as stock_utils
from ultralytics.utils import LOCAL_RANK, colorstr

from fastyolo_data.config import LoaderConfig
from fastyolo_data.errors import ConfigError
from fastyolo_data.integrations.options import FastOptions
from fastyolo_data.integrations.ultralytics.dataset import FastYOLODataset
from fastyolo_data.integrations.ultralytics.loader import FastDataLoader
from fastyolo_data.integrations.ultralytics.reasons import say_once, why_not

__all__ = ["build_dataloader", "build_yolo_dataset", "replacements"]

_EXPLAINED: weakref.WeakSet[Any] = weakref.WeakSet()  # stock data sets whose reason was told when they were built


def _stands_for(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Note on a function which stock function it stands for, as `__wrapped__`: for patch(), and as the way back."""
    return functools.partial(functools.update_wrapper, wrapped=getattr(stock, name), assigned=(), updated=())


def _call_stock(function: Any, arguments: dict[str, Any]) -> Any:
    """Call what one of our functions stands for, with those arguments that its version knows (8.3 has fewer)."""
    known = inspect.signature(function.__wrapped__).parameters
    return function.__wrapped__(**{k: v for k, v in arguments.items() if k in known})


@_stands_for("build_yolo_dataset")
def build_yolo_dataset(
    cfg: Any,
    img_path: str | list[str],
    batch: int,
    data: dict[str, Any],
    mode: str = "train",
    rect: bool = False,
    stride: int = 32,
    multi_modal: bool = False,
    fraction: float | None = None,
    *,
    options: FastOptions | None = None,
) -> Any:
    """Build the data set of one split; the arguments are the stock function's.

    Args:
        options: ours; default: the FASTYOLO_* variables.

    Returns:
        A FastYOLODataset, or the stock data set, with a log line that says why.

    Raises:
        FileNotFoundError, ValueError: the data set is unusable, as in the stock function.
        ConfigError: one of our own options is.
    """
    arguments = {
        "cfg": cfg, "img_path": img_path, "batch": batch, "data": data, "mode": mode, "rect": rect, "stride": stride,
        "multi_modal": multi_modal, "fraction": fraction,
    }  # fmt: skip
    reason = why_not(cfg, data, mode, multi_modal)
    if reason is None:
        try:
            return _build(arguments, options or FastOptions.gather())
        except _NotDone as error:
            reason = str(error)
    say_once(f"the stock data set is used: {reason}")
    dataset = _call_stock(build_yolo_dataset, arguments)
    _EXPLAINED.add(dataset)
    return dataset


class _NotDone(Exception):
    """The core does not do what was asked; the text says what."""


def _build(arguments: dict[str, Any], options: FastOptions) -> FastYOLODataset:
    cfg, mode = arguments["cfg"], arguments["mode"]
    augment, rect = mode == "train", bool(cfg.rect or arguments["rect"])
    settings = {
        "img_path": arguments["img_path"],
        "imgsz": cfg.imgsz,
        "batch_size": arguments["batch"],
        "augment": augment,
        "rect": rect,
        "single_cls": bool(cfg.single_cls),
        "stride": arguments["stride"],
        "pad": 0.0 if augment else 0.5,
        "classes": cfg.classes,
        "fraction": _fraction(arguments),
    }
    try:
        _config(cfg, mode, settings, FastOptions())
    except ConfigError as error:
        raise _NotDone(str(error)) from error
    config = _config(cfg, mode, settings, options)  # what is wrong with our own options, the user must know
    dataset = FastYOLODataset(
        **settings, config=config, options=options, hyp=cfg, cache=None, task=cfg.task,
        prefix=colorstr(f"{mode}: "), data=arguments["data"],
    )  # fmt: skip
    try:
        dataset.plain_core()
    except ConfigError as error:
        raise _NotDone(str(error)) from error
    return dataset


def _fraction(arguments: dict[str, Any]) -> float | int:
    """Share or number of images to use, as the stock function finds it."""
    cfg, mode = arguments["cfg"], arguments["mode"]
    if arguments["data"].get("complete"):
        return 1.0
    if arguments["fraction"] is not None:
        return arguments["fraction"]
    if hasattr(stock_utils, "get_split_fraction"):
        return stock_utils.get_split_fraction(cfg.fraction, "train" if mode == "train" else cfg.split)
    return cfg.fraction if mode == "train" else 1.0


def _config(cfg: Any, mode: str, settings: dict[str, Any], options: FastOptions) -> LoaderConfig:
    """Options of the core; the loader puts in what only it knows (batch, workers, order, ranks)."""
    return LoaderConfig.check(
        split=mode,
        imgsz=settings["imgsz"],
        batch=settings["batch_size"] or 1,
        augment=settings["augment"],
        hyp=cfg,
        cache=(cfg.cache or None) if options.cache is None else options.cache,
        cache_dir=options.cache_dir,
        workers=0,
        shuffle=False,
        rect=settings["rect"],
        stride=settings["stride"],
        pad=settings["pad"],
        seed=int(cfg.seed or 0) if options.seed is None else options.seed,
        rank=0,
        world_size=1,
        drop_last=False,
        task=cfg.task,
        dialect="ultralytics",
        single_cls=settings["single_cls"],
        classes=None,  # update_labels leaves them out
        fraction=settings["fraction"],
        image_weights=None,
        mosaic_pool=options.mosaic_pool,
        numerics=options.numerics or "fast",
        prefetch=options.prefetch,
        rescan=False,
        verbose=LOCAL_RANK in (-1, 0),
    )


@_stands_for("build_dataloader")
def build_dataloader(
    dataset: Any,
    batch: int,
    workers: int,
    shuffle: bool = True,
    rank: int = -1,
    drop_last: bool = False,
    pin_memory: bool = True,
    device: torch.device | str = "cuda",
) -> Any:
    """Build the loader of a data set; the arguments are the stock function's.

    Returns:
        A FastDataLoader for a FastYOLODataset; for any other data set the stock loader, with a log line that says why.
    """
    arguments = {
        "dataset": dataset, "batch": batch, "workers": workers, "shuffle": shuffle, "rank": rank,
        "drop_last": drop_last, "pin_memory": pin_memory, "device": device,
    }  # fmt: skip

    def make_stock() -> Any:
        return _call_stock(build_dataloader, arguments)

    if not isinstance(dataset, FastYOLODataset):
        if dataset not in _EXPLAINED:
            say_once(f"the stock loader is used: {type(dataset).__name__} is not accelerated")
        return make_stock()
    kind = getattr(device, "type", str(device).split(":")[0])
    devices = torch.cuda.device_count() if kind == "cuda" else 0
    threads = min(workers, (os.cpu_count() or 1) // max(devices, 1))
    return FastDataLoader(
        dataset, batch, threads, shuffle, rank, bool(drop_last), devices > 0 and pin_memory, make_stock
    )


def replacements(module: ModuleType, recognised: Any = None) -> dict[str, Callable[..., Any]]:
    """Return what patch() puts in place of the functions of ultralytics.data.build; classes stay as they are.

    New functions every time: unpatch() takes them out wherever they are, and must not touch a program's own import of
    the public ones.
    """
    ours = {"build_yolo_dataset": build_yolo_dataset, "build_dataloader": build_dataloader}
    return {name: _in_place_of(getattr(module, name), function) for name, function in ours.items()}


def _in_place_of(stock_function: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock_function)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return replacement
