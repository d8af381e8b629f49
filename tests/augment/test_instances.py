"""Instances of single samples, step by step, against the boxes that the batch kernel makes of the same plan."""

from __future__ import annotations

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.augment import make_labels
from fastyolo_data.augment.instances import InstanceRules, Instances, concat, finish, place_layer, warp_layer

HYP = {"mosaic": 0.6, "mixup": 0.5, "degrees": 10.0, "flipud": 0.5, "perspective": 1e-4}
NO_FLIP = np.zeros(0, np.int64)


def sample(plan, row, table, rules):
    """Instances of one row, as far as `finish`."""
    layers = [place_layer(plan, row, k, table, rules) for k in range(2) if plan.counts[row, k]]
    out = concat([warp_layer(layer, plan, row, k, rules) for k, layer in enumerate(layers)])
    finish(out, plan, row, rules)
    return out


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5", "yolov9"])
@pytest.mark.parametrize("kind", ["boxes", "polygons"])
def test_steps_give_the_boxes_of_the_batch_kernel(request, kind, dialect):
    yaml = request.getfixturevalue(f"generated_{kind}")
    data = fy.build_dataset(yaml, dialect=dialect, hyp=HYP, batch=24, imgsz=160, verbose=False)
    plan = data.planner().plan(data.order(0), 0, 0, 24)
    idx, cls, xywhn = make_labels(plan, data.table, data.dialect)
    rules = InstanceRules(data.dialect, "detect", NO_FLIP)
    for row in range(24):
        got = sample(plan, row, data.table, rules)
        np.testing.assert_array_equal(got.cls, cls[idx == row, 0])
        # Polygons are rounded to float32 here, as in the stock code; the batch kernel keeps float64.
        np.testing.assert_allclose(got.xyxy, xywhn[idx == row], atol=1e-6)
    assert len(idx) > 24


def test_take_and_concat_keep_polygons_with_their_instance():
    parts = []
    for first, lengths in ((0, (3, 0, 4)), (3, ()), (3, (5,))):
        n, k = len(lengths), sum(lengths)
        offsets = np.cumsum([0, *lengths])
        owner = np.repeat(np.arange(first, first + n), lengths).astype(float)
        cls = np.arange(first, first + n, dtype=float)
        parts.append(Instances(cls, np.zeros((n, 4)), offsets, np.stack((owner, owner), 1), np.zeros((n, 0, 3))))
        assert len(owner) == k
    whole = concat(parts)
    assert whole.cls.tolist() == [0, 1, 2, 3]
    assert np.diff(whole.offsets).tolist() == [3, 0, 4, 5]
    picked = whole.take([3, 1, 0])
    assert np.diff(picked.offsets).tolist() == [5, 0, 3]
    assert picked.points[:, 0].tolist() == [3] * 5 + [0] * 3
    assert len(whole.take([])) == 0
