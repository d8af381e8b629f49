"""Hyper-parameters of the augmentation, and what differs between the training code bases (dialects)."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fastyolo_data.errors import ConfigError

__all__ = ["DIALECTS", "Dialect", "Hyp", "get_dialect"]


@dataclass(frozen=True)
class Hyp:
    """Augmentation hyper-parameters, with the names that YOLOv5 and Ultralytics give them.

    Attributes:
        hsv_h, hsv_s, hsv_v: largest relative change of hue, saturation and value, in [0, 1].
        degrees: largest rotation in degrees.
        translate: largest shift as a fraction of the picture.
        scale: zoom range 1 - scale to 1 + scale, or an explicit (low, high).
        shear: largest shear in degrees.
        perspective: largest perspective coefficient, sensibly up to 0.001.
        flipud, fliplr: flip probabilities.
        bgr: probability that the channels stay in BGR order.
        mosaic, mixup: probabilities.
        cutmix: probability (Ultralytics).
        copy_paste: share of the objects with polygons that are pasted once more.
        copy_paste_mode: "flip": mirrored, onto the same picture; "mixup": onto another one, with the probability
            `copy_paste` (Ultralytics; the others have "flip" only).
        paste_in: probability that objects of other pictures are pasted on the finished one (YOLOv7).
        mask_ratio: how many times smaller than the picture masks are (task "segment").
        overlap_mask: one mask of instance numbers per picture; else one mask per instance.
    """

    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4
    degrees: float = 0.0
    translate: float = 0.1
    scale: float | tuple[float, float] = 0.5
    shear: float = 0.0
    perspective: float = 0.0
    flipud: float = 0.0
    fliplr: float = 0.5
    bgr: float = 0.0
    mosaic: float = 1.0
    mixup: float = 0.0
    cutmix: float = 0.0
    copy_paste: float = 0.0
    copy_paste_mode: str = "flip"
    paste_in: float = 0.0
    mask_ratio: int = 4
    overlap_mask: bool = True

    def __post_init__(self) -> None:
        for name in ("flipud", "fliplr", "bgr", "mosaic", "mixup", "cutmix", "copy_paste", "paste_in"):
            _check(name, getattr(self, name), 0.0, 1.0)
        for name in ("hsv_h", "hsv_s", "hsv_v"):
            _check(name, getattr(self, name), 0.0, 1.0)
        if self.copy_paste_mode not in ("flip", "mixup"):
            raise ConfigError(f"hyp copy_paste_mode={self.copy_paste_mode!r}: expected 'flip' or 'mixup'")
        _check("degrees", self.degrees, 0.0, 180.0)
        _check("shear", self.shear, 0.0, 89.0)
        _check("translate", self.translate, 0.0, 1.0)
        _check("perspective", self.perspective, 0.0, 0.01)
        if isinstance(self.scale, (tuple, list)):
            if len(self.scale) != 2 or not all(map(_is_number, self.scale)) or not 0 < self.scale[0] <= self.scale[1]:
                raise ConfigError(f"hyp scale={self.scale!r}: expected (low, high) with 0 < low <= high")
            object.__setattr__(self, "scale", (float(self.scale[0]), float(self.scale[1])))
        else:
            _check("scale", self.scale, 0.0, 0.99)
        if isinstance(self.mask_ratio, bool) or not isinstance(self.mask_ratio, Integral) or self.mask_ratio < 1:
            raise ConfigError(f"hyp mask_ratio={self.mask_ratio!r}: expected a whole number >= 1")
        if not isinstance(self.overlap_mask, (bool, np.bool_)):
            raise ConfigError(f"hyp overlap_mask={self.overlap_mask!r}: expected True or False")

    def scale_range(self, extra: float = 0.0) -> tuple[float, float]:
        """Lowest and highest zoom factor; `extra` widens a range that is given by one number (Dialect.scale_extra)."""
        return self.scale if isinstance(self.scale, tuple) else (1.0 - self.scale, 1.0 + extra + self.scale)

    @classmethod
    def parse(cls, hyp: Hyp | Mapping[str, Any] | str | Path | object | None) -> Hyp:
        """Build from another Hyp, a mapping, a hyp yaml, a namespace (Ultralytics' args) or None (defaults).

        Keys that are no augmentation (lr0, box, cls...) are ignored, as hyp files of the training codes hold them too.

        Raises:
            ConfigError: a value is out of range, or a key looks like a misspelt augmentation.
        """
        if isinstance(hyp, Hyp):
            return hyp
        values = _as_mapping(hyp)
        known = {f.name for f in fields(cls)}
        for key in values:
            close = difflib.get_close_matches(str(key).lower(), known, 1, 0.8)
            if key not in known and close and key not in _OTHER_KEYS:
                raise ConfigError(f"hyp key {key!r} is unknown; did you mean {close[0]!r}?")
        return replace(cls(), **{k: v for k, v in values.items() if k in known and v is not None})


_OTHER_KEYS = frozenset({"close_mosaic"})


def _as_mapping(hyp: Mapping[str, Any] | str | Path | object | None) -> Mapping[str, Any]:
    if hyp is None:
        return {}
    if isinstance(hyp, Mapping):
        return hyp
    if isinstance(hyp, (str, Path)):
        try:
            loaded = yaml.safe_load(Path(hyp).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
            raise ConfigError(f"hyp file {hyp} cannot be read: {e}") from e
        if not isinstance(loaded, dict):
            raise ConfigError(f"hyp file {hyp}: expected `name: value` lines, found {type(loaded).__name__}")
        return loaded
    if hasattr(hyp, "__dict__"):
        return vars(hyp)
    raise ConfigError(f"hyp={hyp!r}: expected a dict, a yaml path, a namespace or None")


def _is_number(value: object) -> bool:
    """Whether a value is a finite real number; NumPy's count, truth values and texts do not."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _check(name: str, value: object, low: float, high: float) -> None:
    if not _is_number(value) or not low <= value <= high:  # type: ignore[operator]
        raise ConfigError(f"hyp {name}={value!r}: expected a number from {low:g} to {high:g}")


@dataclass(frozen=True)
class Dialect:
    """Rules in which the training code bases differ (docs/compatibility.md has the table with sources).

    Attributes:
        name: as in build_loader.
        rounding: of resized sides: "ceil_cap" (up, at most imgsz), "ceil", or "floor".
        area_when_shrinking: without augmentation, shrink with INTER_AREA instead of INTER_LINEAR.
        additive_hue: hue shifts by a fraction of the circle; else it is multiplied.
        float32_matrix: warp matrices are computed in float32; else float64.
        visible_polygons: boxes from polygons by their visible part; else from the sampled points inside.
        polygons_without_mosaic: polygons also steer the boxes of samples without mosaic.
        letterbox_first: a sample without mosaic is letterboxed before the warp; else its tile is warped directly.
        scale_extra: added to the largest zoom factor, 1 + scale.
        mosaic9: share of the mosaics that have nine pictures instead of four.
        shuffle_tiles: the four mosaic places are filled in random order; else the sample's own image is top left.
        mixup_any: mixup also without mosaic, its partner with a mosaic gate of its own; else only mosaic with mosaic.
        after_warp: cutmix and copy_paste_mode="mixup" exist.
        paste_in: paste_in exists.
        paste_rule: which objects copy_paste takes: "random" (random ones, each of which must spare the labels and what
            was pasted before), "spared" (random ones of those that spare the labels), or "least" (of those, the ones
            that cover least).
        mix_beta: both parameters of the mixup ratio's Beta distribution.
        colour_always: the colour step runs even with all gains 0, for what its rounding does to the picture.
        max_aspect: boxes with this side ratio or more are dropped after the warp.
        box_margin: labels are clipped to [0, side - margin] at the end; negative: not clipped.
        float_pads: validation labels use the unrounded pads of the letterbox.
        batch_dict: batches are dicts; else tuples of 4, with masks of 5.
        tasks: what its training code can learn from its own loaders.
    """

    name: str
    rounding: str
    area_when_shrinking: bool
    additive_hue: bool
    float32_matrix: bool
    visible_polygons: bool
    polygons_without_mosaic: bool
    letterbox_first: bool
    scale_extra: float
    mosaic9: float
    shuffle_tiles: bool
    mixup_any: bool
    after_warp: bool
    paste_in: bool
    paste_rule: str
    mix_beta: float
    colour_always: bool
    max_aspect: float
    box_margin: float
    float_pads: bool
    batch_dict: bool
    tasks: tuple[str, ...]


_ULTRALYTICS = Dialect(
    name="ultralytics",
    rounding="ceil_cap",
    area_when_shrinking=False,
    additive_hue=True,
    float32_matrix=True,
    visible_polygons=True,
    polygons_without_mosaic=True,
    letterbox_first=False,
    scale_extra=0.0,
    mosaic9=0.0,
    shuffle_tiles=False,
    mixup_any=True,
    after_warp=True,
    paste_in=False,
    paste_rule="least",
    mix_beta=32.0,
    colour_always=False,
    max_aspect=100.0,
    box_margin=-1.0,
    float_pads=False,
    batch_dict=True,
    tasks=("detect", "segment", "pose", "obb"),
)
_YOLOV5 = Dialect(
    name="yolov5",
    rounding="ceil",
    area_when_shrinking=True,
    additive_hue=False,
    float32_matrix=False,
    visible_polygons=False,
    polygons_without_mosaic=False,
    letterbox_first=True,
    scale_extra=0.0,
    mosaic9=0.0,
    shuffle_tiles=True,
    mixup_any=False,
    after_warp=False,
    paste_in=False,
    paste_rule="random",
    mix_beta=32.0,
    colour_always=False,
    max_aspect=100.0,
    box_margin=1e-3,
    float_pads=True,
    batch_dict=False,
    tasks=("detect", "segment"),
)
_YOLOV7 = replace(
    _YOLOV5,
    name="yolov7",
    rounding="floor",
    scale_extra=0.1,
    mosaic9=0.2,
    paste_in=True,
    shuffle_tiles=False,
    mix_beta=8.0,
    colour_always=True,
    max_aspect=20.0,
    box_margin=-1.0,
    tasks=("detect",),
)
_YOLOV9 = replace(_YOLOV5, name="yolov9", rounding="floor", paste_rule="spared")
DIALECTS = {d.name: d for d in (_ULTRALYTICS, _YOLOV5, _YOLOV7, _YOLOV9)}


def get_dialect(name: str, task: str = "detect") -> Dialect:
    """Return the rules of a training code base for a task.

    Raises:
        ConfigError: the name is unknown, or its training code has no such task.
    """
    if not isinstance(name, str) or name not in DIALECTS:
        raise ConfigError(f"dialect={name!r}: expected one of {', '.join(map(repr, DIALECTS))}")
    dialect = DIALECTS[name]
    if task not in dialect.tasks:
        others = [d.name for d in DIALECTS.values() if task in d.tasks]
        raise ConfigError(
            f"task={task!r} with dialect={name!r}: this dialect has {', '.join(map(repr, dialect.tasks))}, and this "
            f"task goes with dialect={' or '.join(map(repr, others))}; change one of them"
        )
    if task == "segment":  # yolov5 and yolov9: utils/segment/dataloaders.py
        dialect = replace(dialect, shuffle_tiles=False, polygons_without_mosaic=True)
    return dialect
