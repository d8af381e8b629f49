"""Copy-paste, cutmix and paste_in: what the labels of a sample decide about its picture, and what becomes of them.

The number of candidates follows from the labels, so it is not known when the plan is made. The plan holds a key per
layer instead; the selection is a function of the key and of the labels, the same wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.cutmix import cut_in
from fastyolo_data.augment.instances import InstanceRules, Instances, concat, place_layer, warp_layer
from fastyolo_data.augment.pastein import Insert, paste_in
from fastyolo_data.datatypes import LabelTable
from fastyolo_data.kernels.paste import LIMIT, covered_share, grow_selection
from fastyolo_data.plan import SOURCES, AugmentPlan, LetterboxPlan, paste_order

__all__ = ["NO_STEPS", "CanvasPastes", "PixelSteps", "make_instances", "may_paste"]

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


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


@dataclass(frozen=True)
class PixelSteps:
    """What the labels of a sample decide about its picture.

    Attributes:
        canvas: layer -> mirror images that are pasted on its canvas.
        copies: layer -> (k_i, 2) int32 outlines, on the output picture, of what it gets from the layer three roles on.
        area: x0 y0 x1 y1 that the cutmix partner replaces; None: nothing.
        inserts: objects that are pasted on the finished picture.
    """

    canvas: dict[int, CanvasPastes]
    copies: dict[int, tuple[I32, ...]]
    area: tuple[int, int, int, int] | None
    inserts: tuple[Insert, ...]

    @property
    def after_warp(self) -> bool:
        """Whether warped pictures are put together by more than mixup."""
        return bool(self.copies) or self.area is not None

    def layers(self, counts: Sequence[int]) -> list[int]:
        """Layers that are needed as a whole; counts are the sample's, as in the plan."""
        mixed = [0, 1] if counts[1] else [0]
        if self.area is not None:
            mixed.append(2)
        return mixed + [k + 3 for k in mixed if k in self.copies]


NO_STEPS = PixelSteps({}, {}, None, ())


def may_paste(plan: AugmentPlan | LetterboxPlan) -> bool:
    """Whether the pictures of a plan hang on their labels."""
    return isinstance(plan, AugmentPlan) and (plan.copy_paste > 0 or plan.counts.shape[1] > 2)


def make_instances(
    plan: AugmentPlan, row: int, table: LabelTable, rules: InstanceRules
) -> tuple[Instances, PixelSteps]:
    """Labels of a sample on its picture, before the flips; and what they decide about the picture."""
    canvas, copies = {}, {}
    layers: dict[int, Instances] = {}
    for k in np.flatnonzero(plan.counts[row, :3]).tolist():
        placed, pasted = place_and_paste(plan, row, k, table, rules)
        layers[k] = warp_layer(placed, plan, row, k, rules)
        if pasted is not None:
            canvas[k] = pasted
        if plan.counts.shape[1] > 2 and plan.counts[row, k + 3]:
            other = warp_layer(place_layer(plan, row, k + 3, table, rules), plan, row, k + 3, rules)
            layers[k], copies[k] = _copy(layers[k], other, plan.copy_paste)
    out, area = concat([layers[k] for k in (0, 1) if k in layers]), None
    if 2 in layers:
        out, area = cut_in(out, layers[2], plan.areas[row], float(plan.area_pick[row]), rules.oriented)
    copies = {k: v for k, v in copies.items() if v and (k < 2 or area is not None)}
    inserts: tuple[Insert, ...] = ()
    if plan.spots.shape[1] and plan.counts[row, SOURCES]:
        out, inserts = paste_in(out, plan, row, table, rules)
    return out, PixelSteps(canvas, copies, area, inserts)


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
    return concat([placed, mirror]), CanvasPastes(_outlines(source), drawn_mirrored)


def _outlines(instances: Instances) -> tuple[I32, ...]:
    """Polygons in whole pixels."""
    return tuple(np.split(instances.points.astype(np.int32), instances.offsets[1:-1]))


def _choose(placed: Instances, plan: AugmentPlan, row: int, k: int, rules: InstanceRules) -> I64:
    """Rows of the objects that are pasted, in pasting order.

    Source: copy_paste of yolov5 7.0.14 and yolov9 (utils/augmentations.py), yolov7 (utils/datasets.py); CopyPaste of
    ultralytics 8.4.190 (data/augment.py).
    """
    candidates = np.flatnonzero(np.diff(placed.offsets))
    if not (plan.copy_paste and plan.paste_mirrored and len(candidates)):
        return candidates[:0]
    if not rules.dialect.polygons_without_mosaic and plan.counts[row, k] <= 1:
        return candidates[:0]
    key, width = plan.paste_key[row, k], float(plan.canvas[row, k, 1])
    if rules.dialect.paste_rule == "random":
        tries = candidates[paste_order(key, len(candidates))][: round(plan.copy_paste * len(candidates))]
        out = np.empty(len(tries), np.int64)
        return out[: grow_selection(placed.xyxy, tries, width, out)]
    sparing, covered = _that_spare(_mirror(placed, width), placed)
    if rules.dialect.paste_rule == "least":
        order = np.argsort(covered, kind="stable")
    else:
        order = paste_order(key, len(sparing))
    return sparing[order][: round(plan.copy_paste * len(sparing))]


def _that_spare(objects: Instances, labels: Instances) -> tuple[I64, npt.NDArray[np.float64]]:
    """Rows of the objects with an outline that leave the labels alone, and the share of a label that each covers."""
    covered = np.empty(len(objects))
    covered_share(objects.xyxy, labels.xyxy, covered)
    sparing = np.flatnonzero((np.diff(objects.offsets) > 0) & (covered < LIMIT))
    return sparing, covered[sparing]


def _copy(labels: Instances, other: Instances, share: float) -> tuple[Instances, tuple[I32, ...]]:
    """Add objects of another picture: a share of those that spare the labels, the ones that cover least first.

    Source: CopyPaste of ultralytics 8.4.190 (data/augment.py), mode "mixup".
    """
    if not labels.offsets[-1]:
        return labels, ()
    sparing, covered = _that_spare(other, labels)
    chosen = sparing[np.argsort(covered, kind="stable")][: round(share * len(sparing))]
    if not len(chosen):
        return labels, ()
    copied = other.take(chosen)
    return concat([labels, copied]), _outlines(copied)


def _mirror(instances: Instances, width: float) -> Instances:
    """Mirror images, about the middle of a canvas; polygons with float32 values, as everywhere."""
    xyxy, points, keypoints = (a.copy() for a in (instances.xyxy, instances.points, instances.keypoints))
    xyxy[:, 0], xyxy[:, 2] = width - instances.xyxy[:, 2], width - instances.xyxy[:, 0]
    points[:, 0] = (width - points[:, 0]).astype(np.float32)
    keypoints[..., 0] = width - keypoints[..., 0]
    return Instances(instances.cls, xyxy, instances.offsets, points, keypoints)
