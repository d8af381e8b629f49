"""What the drop-ins for YOLOv5, YOLOv7 and YOLOv9 share: from a stock create_dataloader's arguments to our loader."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fastyolo_data.dropin import LoadImagesAndLabels, StockArguments
from fastyolo_data.errors import ConfigError
from fastyolo_data.integrations.options import FastOptions
from fastyolo_data.integrations.recognise import Recognised
from fastyolo_data.loader import FastLoader
from fastyolo_data.machine import cpu_count

__all__ = ["classification", "drop_in", "open_loader"]

LOGGER = logging.getLogger("fastyolo_data")
OPTIONS = ("cache", "cache_dir", "workers", "prefetch", "numerics", "mosaic_pool", "seed")  # that build_loader knows
# Parameters of the stock functions and what StockArguments calls them; None: nothing depends on it here.
NAMES: dict[str, str | None] = {
    **{name: name for name in (
        "path", "imgsz", "batch_size", "stride", "single_cls", "hyp", "augment", "cache", "pad", "rect", "rank",
        "workers", "image_weights", "quad", "prefix", "shuffle", "seed", "min_items", "overlap_mask",
    )},
    "mask_downsample_ratio": "mask_ratio",
    "close_mosaic": None,  # says that dataset.mosaic will be assigned, which works at any time
    "world_size": None,  # torch.distributed knows it
}  # fmt: skip
_said: set[str] = set()


def open_loader(kind: type[LoadImagesAndLabels], arguments: StockArguments) -> tuple[FastLoader, LoadImagesAndLabels]:
    """Build loader and data set as a stock create_dataloader would.

    Args:
        kind: class of the data set; fixes the dialect.
        arguments: of the stock function.

    Raises:
        ConfigError: an argument, a FASTYOLO_* variable or the data set is unusable.
    """
    _warn(arguments)
    said = FastOptions.gather()
    options = {name: getattr(said, name) for name in OPTIONS if getattr(said, name) is not None}
    options.setdefault("workers", _threads(arguments))
    dataset = kind.from_stock(arguments, **options)
    loader = FastLoader(dataset)
    c = dataset.config
    LOGGER.log(
        logging.INFO if c.verbose else logging.DEBUG,  # one rank of many is enough
        "fastyolo_data: %s%d images by %s rules, %d worker threads, cache %r",
        arguments.prefix, len(dataset), c.dialect, c.workers, c.cache,
    )  # fmt: skip
    return loader, dataset


def _threads(arguments: StockArguments) -> int:
    """Number of workers as the stock code limits it, by the CPUs that this process may use."""
    share = cpu_count() // max(torch.cuda.device_count(), 1)
    return max(0, min(share, arguments.batch_size if arguments.batch_size > 1 else 0, int(arguments.workers)))


def drop_in(stock: Callable[..., Any], kind: type[LoadImagesAndLabels], recognised: Recognised) -> Callable[..., Any]:
    """Make the function that takes a stock create_dataloader's place.

    It has the stock function's signature, whatever the fork made of it. What we cannot do is left to the stock
    function, with one log line that says why.

    Args:
        stock: the function in the user's code.
        kind: class of our data set.
        recognised: what the user's code is.
    """
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def create_dataloader(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        FastOptions.gather()  # a bad FASTYOLO_* variable is an error, not a reason for the stock loader
        try:
            return open_loader(kind, StockArguments(**_translate(bound.arguments, signature, recognised)))
        except ConfigError as error:
            LOGGER.warning("fastyolo_data: the stock loader of %s is used: %s", recognised.title, error)
            return stock(*args, **kwargs)

    return create_dataloader


def _translate(given: Mapping[str, Any], signature: inspect.Signature, recognised: Recognised) -> dict[str, Any]:
    """Turn bound arguments of a stock function into those of StockArguments.

    Raises:
        ConfigError: a parameter that we do not know was used.
    """
    arguments: dict[str, Any] = {"rounding": recognised.rounding}
    for name, value in given.items():
        if name == "opt":  # YOLOv7
            arguments["single_cls"] = bool(getattr(value, "single_cls", False))
        elif name in NAMES:
            if NAMES[name] is not None:
                arguments[NAMES[name]] = value
        elif value is not signature.parameters[name].default and value != signature.parameters[name].default:
            raise ConfigError(f"create_dataloader({name}={value!r}) is not known here")
    if "shuffle" not in given:  # YOLOv7 and old YOLOv5: one process reads in file order, the sampler of ranks shuffles
        arguments["shuffle"] = given.get("rank", -1) != -1 and not given.get("rect")
    return arguments


def _warn(arguments: StockArguments) -> None:
    """Say what the stock code says or does here and we do not."""
    if arguments.rect and arguments.shuffle:
        LOGGER.warning("fastyolo_data: %s--rect sorts the images, so they are not shuffled", arguments.prefix)
    first_rank = int(os.environ.get("LOCAL_RANK", -1)) in (-1, 0)
    if arguments.augment and first_rank and importlib.util.find_spec("albumentations"):
        _once(
            "albumentations is installed; the blur, median blur, grey and CLAHE that the stock code then applies to "
            "1 % of the images each are left out"
        )


def _once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        LOGGER.warning("fastyolo_data: %s", message)


def classification(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the classification loader of a data module, if it has one: the stock one, which says that it is."""
    stock = getattr(module, "create_classification_dataloader", None)
    if stock is None:
        return {}

    @functools.wraps(stock)
    def create_classification_dataloader(*args: Any, **kwargs: Any) -> Any:
        _once("classification is not accelerated; the stock loader is used")
        return stock(*args, **kwargs)

    return {"create_classification_dataloader": create_classification_dataloader}
