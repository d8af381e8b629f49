"""Copy-paste: which objects of a canvas are pasted, and what becomes of its labels.

The number of candidates follows from the labels, so it is not known when the plan is made. The plan holds a key per
layer instead; the selection is a function of the key and of the labels, the same wherever it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.instances import InstanceRules, Instances, concat, place_layer, warp_layer
from fastyolo_data.datatypes import LabelTable
from fastyolo_data.kernels.paste import LIMIT, covered_share, grow_selection
from fastyolo_data.plan import AugmentPlan, LetterboxPlan

__all__ = ["CanvasPastes", "make_instances", "may_paste", "paste_order", "place_and_paste"]

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

_STEP, _MIX1, _MIX2 = (np.uint64(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class CanvasPastes:
    """Mirror images that are pasted on a canvas.

    Attributes:
        polygons: (k_i, 2) int32 outlines in whole pixels.
        mirrored: the outlines are those of the mirror images; else of the originals, and the filled shape is mirrored,
            which differs by a pixel.
    """

    polygons: tuple[I32, ...]
    mirrored: bool


def paste_order(key: np.uint64, n: int) -> I64:
    """A random order of range(n): by the numbers that SplitMix64 makes of a key and a counter.

    Source: G. Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    z = np.uint64(key) + np.arange(1, n + 1, dtype=np.uint64) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable")


def may_paste(plan: AugmentPlan | LetterboxPlan, table: LabelTable) -> bool:
    """Whether pasting can act on samples of a plan: it needs outlines."""
    return isinstance(plan, AugmentPlan) and plan.copy_paste > 0 and table.has_polygons


def make_instances(
    plan: AugmentPlan, row: int, table: LabelTable, rules: InstanceRules
) -> tuple[Instances, list[CanvasPastes | None]]:
    """Labels of a sample on its picture, before the flips; and what is pasted on the canvas of each of its layers."""
    layers: list[Instances] = []
    pastes: list[CanvasPastes | None] = []
    for k in np.flatnonzero(plan.counts[row]).tolist():
        placed, pasted = place_and_paste(plan, row, k, table, rules)
        layers.append(warp_layer(placed, plan, row, k, rules))
        pastes.append(pasted)
    return concat(layers), pastes


def place_and_paste(
    plan: AugmentPlan, row: int, k: int, table: LabelTable, rules: InstanceRules
) -> tuple[Instances, CanvasPastes | None]:
    """Labels of layer k of a sample on its canvas, with those that copy-paste adds; and what is pasted."""
    placed = place_layer(plan, row, k, table, rules)
    chosen = _choose(placed, plan, row, k, rules)
    if not len(chosen):
        return placed, None
    width = float(plan.canvas[row, k, 1])
    mirror = _mirror(placed.take(chosen), width)
    drawn_mirrored = rules.dialect.paste_rule == "least"
    source = mirror if drawn_mirrored else placed.take(chosen)
    parts = np.split(source.points.astype(np.int32), source.offsets[1:-1])
    return concat([placed, mirror]), CanvasPastes(tuple(parts), drawn_mirrored)


def _choose(placed: Instances, plan: AugmentPlan, row: int, k: int, rules: InstanceRules) -> I64:
    """Rows of the objects that are pasted, in pasting order.

    Source: copy_paste of yolov5 7.0.14 and yolov9 (utils/augmentations.py), yolov7 (utils/datasets.py); CopyPaste of
    ultralytics 8.4.190 (data/augment.py).
    """
    candidates = np.flatnonzero(np.diff(placed.offsets))
    if not plan.copy_paste or not len(candidates):
        return candidates[:0]
    if not rules.dialect.polygons_without_mosaic and plan.counts[row, k] <= 1:
        return candidates[:0]
    key, width = plan.paste_key[row, k], float(plan.canvas[row, k, 1])
    if rules.dialect.paste_rule == "random":
        tries = candidates[paste_order(key, len(candidates))][: round(plan.copy_paste * len(candidates))]
        out = np.empty(len(tries), np.int64)
        return out[: grow_selection(placed.xyxy, tries, width, out)]
    share = np.empty(len(placed))
    covered_share(_mirror(placed, width).xyxy, placed.xyxy, share)
    candidates = candidates[share[candidates] < LIMIT]
    if rules.dialect.paste_rule == "least":
        order = np.argsort(share[candidates], kind="stable")
    else:
        order = paste_order(key, len(candidates))
    return candidates[order][: round(plan.copy_paste * len(candidates))]


def _mirror(instances: Instances, width: float) -> Instances:
    """Mirror images, about the middle of a canvas; polygons with float32 values, as everywhere."""
    xyxy, points, keypoints = (a.copy() for a in (instances.xyxy, instances.points, instances.keypoints))
    xyxy[:, 0], xyxy[:, 2] = width - instances.xyxy[:, 2], width - instances.xyxy[:, 0]
    points[:, 0] = (width - points[:, 0]).astype(np.float32)
    keypoints[..., 0] = width - keypoints[..., 0]
    return Instances(instances.cls, xyxy, instances.offsets, points, keypoints)
