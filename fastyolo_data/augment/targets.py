"""Targets of one sample, made beside its picture by the worker thread, and collected for the batch.

For tasks with more than boxes, and where pasting adds objects. Else one kernel call makes the boxes of a whole batch
(labels.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.instances import InstanceRules, Instances, finish
from fastyolo_data.augment.masks import MaskMemory, make_masks
from fastyolo_data.datatypes import DataSpec
from fastyolo_data.hyp import Dialect, Hyp
from fastyolo_data.kernels.instances import fit_oriented
from fastyolo_data.plan import AugmentPlan, LetterboxPlan

__all__ = ["Targets", "collect_targets", "instance_rules", "make_targets", "usable_hyp"]

LOGGER = logging.getLogger("fastyolo_data")


@dataclass(frozen=True)
class Targets:
    """What a sample adds to its batch.

    Attributes:
        cls: (n,) float64.
        boxes: (n, 4) float64 normalised centre x, centre y, width, height; oriented boxes (n, 5), with radians.
        keypoints: (n, K, 3) float64 normalised x, y, visibility; None unless the task is pose.
        masks: (1, h, w) or (n, h, w) uint8 or int32; None unless the task is segment.
        classes: (h, w) float32 class of the instance on top; None where the dialect has no such thing.
    """

    cls: npt.NDArray[np.float64]
    boxes: npt.NDArray[np.float64]
    keypoints: npt.NDArray[np.float64] | None = None
    masks: npt.NDArray | None = None
    classes: npt.NDArray[np.float32] | None = None


def usable_hyp(hyp: Hyp, task: str, spec: DataSpec, *, say: bool) -> Hyp:
    """Switch off flips that would turn left keypoints into right ones.

    Args:
        say: whether to log that.
    """
    if task != "pose" or spec.flip_idx or not (hyp.fliplr or hyp.flipud):
        return hyp
    if say:
        LOGGER.warning(
            "%s: no flip_idx, so it is unknown which keypoint mirrors which; fliplr and flipud are switched off",
            spec.origin,
        )
    return replace(hyp, fliplr=0.0, flipud=0.0)


def instance_rules(dialect: Dialect, task: str, hyp: Hyp, spec: DataSpec) -> InstanceRules:
    """Rules of a dialect and a task."""
    nkpt = spec.kpt_shape[0] if task == "pose" and spec.kpt_shape else 0
    flip_idx = np.array(spec.flip_idx if nkpt and spec.flip_idx else range(nkpt), np.int64)
    return InstanceRules(dialect, task, flip_idx, int(hyp.mask_ratio), bool(hyp.overlap_mask))


def make_targets(
    instances: Instances, plan: AugmentPlan | LetterboxPlan, row: int, rules: InstanceRules, memory: MaskMemory
) -> Targets:
    """Turn the instances of a sample into its targets.

    Args:
        instances: on the picture, before the flips; changed in place.
        memory: scratch.
    """
    finish(instances, plan, row, rules)
    if rules.task == "obb":
        return Targets(instances.cls, _oriented_boxes(instances, plan))
    if rules.task == "pose":
        return Targets(instances.cls, instances.xyxy, instances.keypoints)
    if rules.task == "segment":
        return _with_masks(instances, plan, row, rules, memory)
    return Targets(instances.cls, instances.xyxy)


def _oriented_boxes(instances: Instances, plan: AugmentPlan | LetterboxPlan) -> npt.NDArray[np.float64]:
    """Centre, size and angle of the smallest rectangle around each polygon, lengths divided by the picture's sides.

    Validation asks OpenCV, as the stock code does, for equal metrics; training stays in one kernel without the GIL.
    """
    boxes = np.empty((len(instances), 5))
    if isinstance(plan, AugmentPlan):
        longest = int(np.diff(instances.offsets).max(initial=0))
        fit_oriented(instances.offsets, instances.points, np.empty((3, 2 * longest + 8, 2)), boxes)
    else:
        for j, (start, stop) in enumerate(zip(instances.offsets[:-1], instances.offsets[1:], strict=True)):
            boxes[j] = _smallest_rectangle(instances.points[start:stop].astype(np.float32))
    h, w = plan.out_hw
    return boxes / (w, h, w, h, 1)


def _smallest_rectangle(points: npt.NDArray[np.float32]) -> tuple[float, ...]:
    """OpenCV's smallest rectangle in the form of ultralytics 8.4.190 utils/ops.py, xyxyxyxy2xywhr."""
    (cx, cy), (w, h), angle = cv2.minAreaRect(points)
    theta = angle / 180 * np.pi + (np.pi / 2 if w < h else 0.0)
    while theta >= 3 * np.pi / 4:
        theta -= np.pi
    while theta < -np.pi / 4:
        theta += np.pi
    return cx, cy, max(w, h), min(w, h), theta


def _with_masks(
    instances: Instances, plan: AugmentPlan | LetterboxPlan, row: int, rules: InstanceRules, memory: MaskMemory
) -> Targets:
    cls, boxes = instances.cls, instances.xyxy
    sem = rules.dialect.batch_dict
    if not len(instances):
        h, w = (side // rules.mask_ratio for side in plan.out_hw)
        masks = np.zeros((int(rules.overlap_mask), h, w), np.uint8)
        return Targets(cls, boxes, None, masks, np.zeros((h, w), np.float32) if sem else None)
    order, masks, classes = make_masks(instances, plan.out_hw, rules.mask_ratio, rules.overlap_mask, sem, memory)
    if order is not None:
        cls, boxes = cls[order], boxes[order]
    if isinstance(plan, AugmentPlan) and not rules.flips_points:
        masks = masks[:, :: -1 if plan.flipud[row] else 1, :: -1 if plan.fliplr[row] else 1]
    return Targets(cls, boxes, None, masks, classes if sem else None)


def collect_targets(parts: Sequence[Targets]) -> dict[str, npt.NDArray]:
    """Targets of a batch: batch_idx (N,), cls (N, 1), bboxes (N, 4 or 5), and what the task adds; float32.

    Masks are uint8; int32 where a sample has more than 255 instances; and float32 where a sample has none, as in the
    stock code, whose empty samples bring float32 zeros that the others are promoted to.
    """
    counts = [len(p.cls) for p in parts]
    out: dict[str, npt.NDArray] = {
        "batch_idx": np.repeat(np.arange(len(parts), dtype=np.float32), counts),
        "cls": np.concatenate([p.cls for p in parts]).astype(np.float32)[:, None],
        "bboxes": np.concatenate([p.boxes for p in parts]).astype(np.float32),
    }
    if parts[0].keypoints is not None:
        out["keypoints"] = np.concatenate([p.keypoints for p in parts]).astype(np.float32)  # type: ignore[misc]
    if parts[0].masks is not None:
        masks = [p.masks for p in parts]
        dtype = np.float32 if 0 in counts else np.result_type(*masks)  # type: ignore[arg-type]
        out["masks"] = np.concatenate(masks, dtype=dtype, casting="unsafe")  # type: ignore[arg-type]
    if parts[0].classes is not None:
        out["sem_masks"] = np.stack([p.classes for p in parts])  # type: ignore[misc]
    return out
