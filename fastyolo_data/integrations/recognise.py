"""Which code base does a loaded module belong to? Decided by what it contains: forks rename files and edit them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from fastyolo_data.integrations.fingerprints import deciding_functions, known_code

__all__ = ["KINDS", "Recognised", "Refused", "recognise"]

KINDS = {"ultralytics": "Ultralytics", "yolov5": "YOLOv5", "yolov7": "YOLOv7", "yolov9": "YOLOv9"}


@dataclass(frozen=True)
class Recognised:
    """What a data module is.

    Attributes:
        kind: "ultralytics", "yolov5", "yolov7" or "yolov9".
        variant: "detect" or "segment"; "detect" for Ultralytics, whose one module serves all tasks.
        version: the release that its code agrees with, such as "7.0", the day of an unreleased state, such as
            "2024-06-10", or a span, such as "6.1 to 6.2"; for edited code that the user trusts: the nearest.
        rounding: how load_image rounds the short side of a resized picture: "ceil" or "floor".
    """

    kind: str
    variant: str
    version: str
    rounding: str

    @property
    def title(self) -> str:
        """Name for messages, such as "YOLOv5 7.0"."""
        return f"{KINDS[self.kind]} {self.version}" + (", segmentation" if self.variant == "segment" else "")


@dataclass(frozen=True)
class Refused:
    """A data module that keeps its own loader.

    Attributes:
        kind: as in Recognised.
        reason: why, as a part of a sentence.
        by_content: its code was edited; FASTYOLO_TRUST=1 would overrule that.
    """

    kind: str
    reason: str
    by_content: bool = False


def recognise(module: ModuleType, *, trust: bool = False) -> Recognised | Refused | None:
    """Say what a module is.

    Args:
        module: any loaded module; only its names are looked at, nothing is imported or called.
        trust: accept edited code and unknown versions.

    Returns:
        None for a module without a data loader that is known here.
    """
    if _defines(module, "build_yolo_dataset") and _defines(module, "build_dataloader"):
        return _ultralytics(module, trust)
    if not _defines(module, "create_dataloader"):
        return None
    space = vars(module)
    arguments = _arguments(space["create_dataloader"])
    variant = "segment" if "mask_downsample_ratio" in arguments else "detect"
    cls = space.get("LoadImagesAndLabelsAndMasks" if variant == "segment" else "LoadImagesAndLabels")
    if not isinstance(cls, type) or "LoadImagesAndLabels" not in space:
        return None
    kind = "yolov7" if arguments[4:5] == ("opt",) else "yolov9" if "close_mosaic" in arguments else "yolov5"
    if {"kpt_label", "tidl_load"} & set(arguments):
        return Refused(kind, "its labels have key points (YOLOv7's pose branch)")
    if kind == "yolov9" and _mentions(cls, {"semantic_masks", "seg_cls", "coco_ids"}):
        return Refused(kind, "it is panoptic")
    functions = deciding_functions(module, cls)
    unknown, version = known_code(kind).compare(functions)
    if unknown and not trust:
        names = ", ".join(unknown[:6]) + (f" and {len(unknown) - 6} more" if len(unknown) > 6 else "")
        return Refused(kind, f"it is edited, or a version unknown here: {names}", by_content=True)
    load_image = functions.get("LoadImagesAndLabels.load_image") or functions.get("load_image")
    ceil = load_image is not None and "ceil" in load_image.__code__.co_names
    return Recognised(kind, variant, version, "ceil" if ceil else "floor")


def _ultralytics(module: ModuleType, trust: bool) -> Recognised | Refused:
    package = sys.modules.get(module.__name__.partition(".")[0])
    version = str(getattr(package, "__version__", "unknown"))
    number = re.match(r"(\d+)\.(\d+)", version)
    if not trust and not (number and (8, 3) <= (int(number[1]), int(number[2])) < (9, 0)):
        return Refused("ultralytics", f"its version is {version}; versions 8.3 to 8.x are supported", by_content=True)
    return Recognised("ultralytics", "detect", version, "ceil")


def _defines(module: ModuleType, name: str) -> bool:
    """Is this function the module's own, not one that it imported or that was put there?"""
    function = vars(module).get(name)
    return (
        isinstance(function, FunctionType)
        and function.__module__ == module.__name__
        and function.__globals__ is vars(module)
    )


def _arguments(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _mentions(cls: type, names: set[str]) -> bool:
    """Do a class's own methods use one of these names?"""
    methods: list[Any] = [getattr(f, "__func__", f) for f in vars(cls).values()]
    codes = [m.__code__ for m in methods if isinstance(m, FunctionType)]
    return any(names & {*code.co_names, *code.co_varnames} for code in codes)
