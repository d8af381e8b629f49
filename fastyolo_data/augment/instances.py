"""Instances of one sample (boxes with polygons or keypoints) through a plan, step by step.

`place_layer` -> canvas, `warp_layer` -> output picture, `concat` -> mixup, `finish` -> flips and normalised boxes.
Pasting hooks in between: on the canvas before the warp, or on the output picture after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.labels import read_only
from fastyolo_data.datatypes import LabelTable
from fastyolo_data.hyp import Dialect
from fastyolo_data.kernels.instances import finish_instances, letterbox_instances, place_instances, warp_instances
from fastyolo_data.kernels.polygons import RESAMPLE
from fastyolo_data.plan import AugmentPlan, LetterboxPlan

__all__ = ["InstanceRules", "Instances", "concat", "finish", "letterbox", "place_layer", "warp_layer"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

OBB_POINTS = 100  # points that the stock code spreads along an oriented box


@dataclass(frozen=True)
class Instances:
    """Labels of one picture, in its pixels.

    Attributes:
        cls: (n,) float64.
        xyxy: (n, 4) float64.
        offsets: (n + 1,) int64 into `points`; an instance without polygon has an empty range.
        points: (k, 2) float64 x, y polygon vertices.
        keypoints: (n, K, 3) float64 x, y, visibility; K is 0 unless the task is pose.
    """

    cls: F64
    xyxy: F64
    offsets: I64
    points: F64
    keypoints: F64

    def __len__(self) -> int:
        return len(self.cls)

    @classmethod
    def room(cls, n: int, points: int, nkpt: int) -> Instances:
        """Uninitialised memory for n instances with so many points in all."""
        return cls(
            np.empty(n), np.empty((n, 4)), np.empty(n + 1, np.int64), np.empty((points, 2)), np.empty((n, nkpt, 3))
        )

    @property
    def arrays(self) -> tuple[F64, F64, I64, F64, F64]:
        """All arrays, in the order in which kernels take them."""
        return self.cls, self.xyxy, self.offsets, self.points, self.keypoints

    def head(self, n: int) -> Instances:
        """Views of the first n instances."""
        stop = int(self.offsets[n])
        return Instances(self.cls[:n], self.xyxy[:n], self.offsets[: n + 1], self.points[:stop], self.keypoints[:n])

    def take(self, order: npt.ArrayLike) -> Instances:
        """Return copies of the instances at `order`, in that order."""
        rows = np.asarray(order, np.int64)
        parts = [self.points[self.offsets[j] : self.offsets[j + 1]] for j in rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(p) for p in parts], out=offsets[1:])
        points = np.concatenate(parts) if parts else self.points[:0]
        return Instances(self.cls[rows], self.xyxy[rows], offsets, points, self.keypoints[rows])


@dataclass(frozen=True)
class InstanceRules:
    """What a task and a dialect make of instances.

    Attributes:
        dialect: see hyp.py.
        task: "detect", "segment", "pose" or "obb".
        flip_idx: (K,) int64 keypoint that each keypoint becomes in a flipped picture; empty unless the task is pose.
        mask_ratio, overlap_mask: see Hyp.
    """

    dialect: Dialect
    task: str = "detect"
    flip_idx: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    mask_ratio: int = 4
    overlap_mask: bool = True

    @property
    def oriented(self) -> bool:
        """Whether polygons are oriented boxes."""
        return self.task == "obb"

    @property
    def flips_points(self) -> bool:
        """Whether polygons are flipped with the picture; YOLOv5 flips the finished masks."""
        return self.dialect.visible_polygons

    @property
    def points_on_canvas(self) -> int:
        """Points that polygons are resampled to before they are placed; 0: their vertices will do.

        An oriented box is as well described by its corners.
        """
        return RESAMPLE if self.dialect.visible_polygons and not self.oriented else 0


def _columns(table: LabelTable, polygons: bool) -> tuple[npt.NDArray, ...]:
    offsets = table.point_offsets if polygons else table.point_offsets[:0]
    columns = (table.box_offsets, table.cls, table.xywhn, offsets, table.points, table.keypoints)
    return tuple(read_only(a) for a in columns)


def _room(table: LabelTable, images: I64, total: int) -> tuple[Instances, F64]:
    """Memory for all labels of some images, and scratch for their polygons."""
    first, last = table.box_offsets[images], table.box_offsets[images + 1]
    n, longest = int((last - first).sum()), table.longest_polygon
    points = 0
    if table.has_polygons:
        points = int((table.point_offsets[last] - table.point_offsets[first]).sum())
        points = n * max(total, longest + 1) if total else points + 8 * n
    return Instances.room(n, points, table.keypoints.shape[1]), np.empty((3, 2 * longest + 8, 2))


def place_layer(plan: AugmentPlan, row: int, k: int, table: LabelTable, rules: InstanceRules) -> Instances:
    """Labels of layer k of a sample on its canvas; those without area there are dropped.

    Polygons have their final number of points in the Ultralytics dialect; YOLOv5 resamples them in the warp.
    """
    count = int(plan.counts[row, k])
    mosaic = count > 1
    total = rules.points_on_canvas
    out, work = _room(table, plan.tiles[row, k, :count], total)
    polygons = mosaic or rules.dialect.polygons_without_mosaic
    n = place_instances(
        plan.tiles[row, k],
        count,
        plan.label_hw[row, k],
        plan.label_pads[row, k],
        _columns(table, polygons),
        plan.canvas[row, k],
        mosaic,
        total,
        rules.oriented,
        work,
        *out.arrays,
    )
    return out.head(n)


def warp_layer(instances: Instances, plan: AugmentPlan, row: int, k: int, rules: InstanceRules) -> Instances:
    """Move the instances of layer k from its canvas to the output picture; those no longer usable are dropped."""
    visible = rules.dialect.visible_polygons
    total = 0 if visible else RESAMPLE
    lengths = np.diff(instances.offsets)
    points = len(instances.points) + 8 * len(instances) if visible else int((lengths > 0).sum()) * total
    out = Instances.room(len(instances), points, instances.keypoints.shape[1])
    longest = int(lengths.max(initial=0)) if rules.oriented else 0
    n = warp_instances(
        *instances.arrays,
        plan.matrix[row, k],
        plan.scale[row, k],
        np.array(plan.out_hw, np.float64),
        visible,
        total,
        rules.oriented,
        rules.dialect.max_aspect,
        np.empty((3, 2 * longest + 8, 2)),
        *out.arrays,
    )
    return out.head(n)


def letterbox(plan: LetterboxPlan, row: int, table: LabelTable, rules: InstanceRules) -> Instances:
    """Labels of a sample without augmentation on the output picture.

    Oriented boxes have as many points as in the stock code here: validation labels are to equal its labels, and
    OpenCV's smallest rectangle depends on every point in the last digits.
    """
    total = OBB_POINTS if rules.oriented else rules.points_on_canvas
    out, work = _room(table, plan.index[row : row + 1], total)
    n = letterbox_instances(
        plan.index[row],
        plan.tile_hw[row],
        plan.box.ratio[row],
        plan.box.pad[row],
        _columns(table, True),
        rules.dialect.float_pads,
        total,
        work,
        *out.arrays,
    )
    return out.head(n)


def concat(parts: Sequence[Instances]) -> Instances:
    """Instances of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(p.points) for p in parts)])
    offsets = [p.offsets[:-1] + start for p, start in zip(parts, starts, strict=False)]
    cls, xyxy, _, points, keypoints = (np.concatenate(a) for a in zip(*(p.arrays for p in parts), strict=True))
    return Instances(cls, xyxy, np.concatenate((*offsets, starts[-1:])), points, keypoints)


def finish(instances: Instances, plan: AugmentPlan | LetterboxPlan, row: int, rules: InstanceRules) -> None:
    """Flip as the picture is flipped; boxes become normalised xywh, keypoints normalised. In place.

    Polygons stay in pixels.
    """
    augmented = isinstance(plan, AugmentPlan)
    finish_instances(
        instances.xyxy,
        instances.points,
        instances.keypoints,
        np.array(plan.out_hw, np.float64),
        rules.dialect.box_margin,
        augmented and bool(plan.flipud[row]),
        augmented and bool(plan.fliplr[row]),
        rules.flips_points,
        rules.flip_idx,
    )
