"""The labels of a planned batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import F32Array, LabelTable
from fastyolo_data.hyp import Dialect
from fastyolo_data.kernels.boxes import POLYGON_INSIDE, POLYGON_VISIBLE, augment_labels, letterbox_labels
from fastyolo_data.plan import AugmentPlan, LetterboxPlan

__all__ = ["make_labels", "read_only"]


def make_labels(
    plan: AugmentPlan | LetterboxPlan, table: LabelTable, dialect: Dialect
) -> tuple[F32Array, F32Array, F32Array]:
    """Carry out a plan on the labels.

    Returns:
        (n,) sample number, (n, 1) class, (n, 4) normalised centre x, centre y, width, height; float32, in sample order,
        the caller's own.
    """
    room = _room(plan, table)
    idx, cls, xywhn = np.empty(room), np.empty(room), np.empty((room, 4))
    columns = tuple(
        read_only(a) for a in (table.box_offsets, table.cls, table.xywhn, table.point_offsets, table.points)
    )
    out_hw, out = np.array(plan.out_hw, np.float64), (idx, cls, xywhn)
    margin = dialect.box_margin
    if isinstance(plan, LetterboxPlan):
        n = letterbox_labels(plan.index, plan.tile_hw, plan.box.ratio, plan.box.pad, columns, out_hw, margin, *out)
    else:
        n = augment_labels(
            plan.tiles,
            plan.counts,
            plan.label_hw,
            plan.label_pads,
            columns,
            plan.canvas,
            plan.matrix,
            plan.scale,
            out_hw,
            POLYGON_VISIBLE if dialect.visible_polygons else POLYGON_INSIDE,
            dialect.polygons_without_mosaic,
            dialect.max_aspect,
            margin,
            plan.flipud,
            plan.fliplr,
            np.empty((2, table.longest_polygon + 1002, 2)),
            *out,
        )
    return tuple(a[:n].astype(np.float32) for a in (idx, cls[:, None], xywhn))  # type: ignore[return-value]


def _room(plan: AugmentPlan | LetterboxPlan, table: LabelTable) -> int:
    """Labels of all tiles of a batch."""
    images = plan.index if isinstance(plan, LetterboxPlan) else plan.tiles[plan.used]
    return int((table.box_offsets[images + 1] - table.box_offsets[images]).sum())


def read_only(array: npt.NDArray) -> npt.NDArray:
    """Return a read-only view: numba compiles a kernel anew for writable arrays, and tables and tiles can be either."""
    view = array.view()
    view.flags.writeable = False
    return view
