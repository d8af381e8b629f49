"""Labels of whole batches: every sample's rows are those of the single-sample kernels, numbered and in order."""

from __future__ import annotations

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.augment import make_labels
from fastyolo_data.kernels.boxes import POLYGON_INSIDE, POLYGON_VISIBLE, finish_boxes, letterbox_boxes, warp_boxes


def _columns(table):
    arrays = (table.box_offsets, table.cls, table.xywhn, table.point_offsets, table.points)
    return tuple(np.array(a) for a in arrays)


def _augmented_row(plan, row, table, dialect):
    """(cls, xywhn) of one sample."""
    cls, xywhn, stop = np.empty(500), np.empty((500, 4)), 0
    columns, out_hw = _columns(table), np.array(plan.out_hw, np.float64)
    plain = (*columns[:3], columns[3][:0], columns[4])
    rule = POLYGON_VISIBLE if dialect.visible_polygons else POLYGON_INSIDE
    for k in range(2):
        mosaic = plan.counts[row, k] == 4
        if plan.counts[row, k]:
            stop = warp_boxes(
                plan.tiles[row, k], plan.counts[row, k], plan.label_hw[row, k], plan.label_pads[row, k],
                columns if mosaic or dialect.polygons_without_mosaic else plain, plan.canvas[row, k], mosaic,
                plan.matrix[row, k], plan.scale[row, k], out_hw, rule, dialect.max_aspect, np.empty((2, 2000, 2)), cls,
                xywhn, stop,
            )  # fmt: skip
    finish_boxes(xywhn, 0, stop, out_hw, dialect.box_margin, plan.flipud[row], plan.fliplr[row])
    return cls[:stop], xywhn[:stop]


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5"])
def test_augmented_batches(generated_polygons, dialect):
    hyp = {"mosaic": 0.6, "mixup": 0.5, "degrees": 10.0, "flipud": 0.5}
    data = fy.build_dataset(generated_polygons, dialect=dialect, hyp=hyp, batch=24, imgsz=160, verbose=False)
    plan = data.planner().plan(data.order(0), 0, 0, 24)
    assert set(plan.counts[:, 0]) == {1, 4}
    idx, cls, xywhn = make_labels(plan, data.table, data.dialect)
    assert (idx.dtype, cls.dtype, xywhn.dtype) == (np.float32,) * 3
    assert cls.shape == (len(idx), 1)
    for row in range(24):
        want_cls, want = _augmented_row(plan, row, data.table, data.dialect)
        np.testing.assert_array_equal(cls[idx == row, 0], want_cls.astype(np.float32))
        np.testing.assert_array_equal(xywhn[idx == row], want.astype(np.float32))
    assert (np.diff(idx) >= 0).all()
    assert len(idx) > 24


def test_validation_batches(generated_boxes):
    data = fy.build_dataset(generated_boxes, split="val", batch=12, imgsz=160, verbose=False)
    plan = data.planner().plan(data.order(0), 0, 0, 12)
    idx, cls, xywhn = make_labels(plan, data.table, data.dialect)
    for row in range(12):
        out = np.empty(100), np.empty((100, 4))
        out_hw, index = np.array(plan.out_hw, np.float64), plan.index[row]
        stop = letterbox_boxes(
            index, plan.tile_hw[row], plan.box.ratio[row], plan.box.pad[row], _columns(data.table), *out, 0
        )
        finish_boxes(out[1], 0, stop, out_hw, -1.0, False, False)
        np.testing.assert_array_equal(cls[idx == row, 0], data.labels[index][:, 0])
        np.testing.assert_array_equal(xywhn[idx == row], out[1][:stop].astype(np.float32))
    assert len(idx) == sum(len(data.labels[i]) for i in plan.index)


def test_a_batch_of_backgrounds_has_empty_labels(tmp_path, generated_boxes):
    lists = tmp_path / "empty.txt"
    lists.write_text(str(generated_boxes.parent / "images/train/im006.png") + "\n")
    for candidate in ("im006.jpg", "im006.png"):
        if (generated_boxes.parent / "images/train" / candidate).exists():
            lists.write_text(str(generated_boxes.parent / "images/train" / candidate))
    with fy.build_loader(lists, split="val", imgsz=64, workers=0, verbose=False) as loader:
        batch = next(iter(loader))
    assert batch["cls"].shape == (0, 1)
    assert batch["bboxes"].shape == (0, 4)
    assert batch["batch_idx"].shape == (0,)
