"""When the stock pipeline has to do the work, and why: what we do not do, and what a user has changed."""

from __future__ import annotations

import importlib.util
from typing import Any

from ultralytics.data import augment, base
from ultralytics.data import build as stock
from ultralytics.data import dataset as datasets
from ultralytics.utils import LOGGER, RANK

__all__ = ["PREFIX", "changed_transform", "describe", "say_once", "why_not"]

PREFIX = "fastyolo_data: "
TASKS = ("detect", "segment", "pose", "obb")

_SAID: set[str] = set()


def say_once(message: str) -> None:
    """Log a message, once per process and text, on the first rank."""
    if RANK in (-1, 0) and message not in _SAID:
        _SAID.add(message)
        LOGGER.info(PREFIX + message)


def why_not(cfg: Any, data: dict[str, Any], mode: str, multi_modal: bool) -> str | None:
    """Return why this configuration needs the stock data set, or None."""
    if cfg.task not in TASKS:
        return f"task={cfg.task} is not accelerated"
    if multi_modal:
        return "text prompts (multi-modal training) are not accelerated"
    if data.get("channels", 3) != 3:
        return f"images with {data['channels']} channels are not accelerated"
    if isinstance(cfg.imgsz, bool) or not isinstance(cfg.imgsz, int):
        return f"imgsz={cfg.imgsz} is not one number"
    if mode == "train" and getattr(cfg, "augmentations", None) and importlib.util.find_spec("albumentations"):
        return "augmentations= is given, which runs Albumentations in Python"
    if stock.YOLODataset is not datasets.YOLODataset:
        return f"ultralytics.data.build.YOLODataset was replaced by {_name(stock.YOLODataset)}"
    for cls in (datasets.YOLODataset, base.BaseDataset):
        changed = _foreign(cls)
        if changed:
            return f"{cls.__name__}.{changed} was replaced"
    if _is_foreign(datasets.v8_transforms):
        return f"v8_transforms was replaced by {_name(datasets.v8_transforms)}"
    return None


def describe(transform: Any) -> Any:
    """Return a value that changes when somebody edits a transform or a composition of them, in whatever way."""
    if isinstance(transform, augment.Compose):
        return (type(transform).__qualname__, *(describe(t) for t in transform.transforms))
    state = []
    for name, value in sorted(getattr(transform, "__dict__", {}).items()):
        if isinstance(value, (augment.Compose, augment.BaseTransform)):
            state.append((name, describe(value)))
        elif value is None or isinstance(value, (bool, int, float, str, tuple, list)):
            state.append((name, repr(value)))
        else:
            state.append((name, id(value)))
    return (id(type(transform)), *state)


def changed_transform(transform: Any) -> str | None:
    """Return what in a composition is not the installed package's own code, or does what ours does not."""
    if isinstance(transform, augment.Compose):
        return next((found for t in transform.transforms if (found := changed_transform(t))), None)
    for cls in type(transform).__mro__[:-1]:
        if cls.__module__ != augment.__name__:
            return f"transform {_name(cls)} is not a stock one"
        changed = _foreign(cls)
        if changed:
            return f"{cls.__name__}.{changed} was replaced"
    nested = [v for v in vars(transform).values() if isinstance(v, (augment.Compose, augment.BaseTransform))]
    return next((found for t in nested if (found := changed_transform(t))), None)


def _foreign(cls: type) -> str | None:
    """Return the name of a method that does not come from the package."""
    return next((name for name, value in vars(cls).items() if _is_foreign(getattr(value, "__func__", value))), None)


def _is_foreign(function: Any) -> bool:
    return callable(function) and not str(getattr(function, "__module__", "ultralytics.")).startswith("ultralytics.")


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', thing)}"
