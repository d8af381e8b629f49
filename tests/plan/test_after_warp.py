"""Plans of what happens to warped pictures: cutmix, and objects copied from other samples (Ultralytics)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastyolo_data.plan.geometry import cut_areas
from tests.plan.planners import arrays, make_planner, many
from tests.plan.test_draws import assert_share, assert_uniform, join

HYP = {"mosaic": 0.6, "mixup": 0.3, "cutmix": 0.4, "copy_paste": 0.5, "copy_paste_mode": "mixup"}


@pytest.fixture(scope="module")
def plans():
    return many(make_planner(400, hyp=HYP), 20)


def test_gates(plans):
    used = join(plans, "counts") > 0
    assert used.shape[1] == 6
    assert used[:, 0].all()
    assert_share(used[:, 1], 0.3)
    assert_share(used[:, 2], 0.4)
    for k in range(3):  # objects are only copied into layers that exist
        assert not used[~used[:, k], k + 3].any()
        assert_share(used[used[:, k], k + 3], 0.5)
        counts = join(plans, "counts")
        assert_share(counts[used[:, k + 3], k + 3] == 4, 0.6)


def test_areas(plans):
    areas = join(plans, "areas")
    assert (areas[..., :2] >= 0).all()
    assert (areas[..., 2:] <= 320).all()
    assert (areas[..., :2] <= areas[..., 2:]).all()
    inside = ((areas[..., :2] > 0) & (areas[..., 2:] < 320)).all(-1)
    share = np.prod(areas[inside][:, 2:] - areas[inside][:, :2], axis=-1) / 320**2
    assert 0.01 < share.mean() < 0.3
    u = np.random.default_rng(0).random((50, 3))
    for (stay, x, y), area in zip(u, cut_areas(u, (100, 200)), strict=True):
        w, h = int(200 * math.sqrt(1 - stay)) // 2, int(100 * math.sqrt(1 - stay)) // 2
        x, y = int(x * 200), int(y * 100)
        assert area.tolist() == [max(x - w, 0), max(y - h, 0), min(x + w, 200), min(y + h, 100)]
    assert_uniform(join(plans, "area_pick"), 0, 1)
    assert_uniform(join(plans, "paste_key") / 2.0**53, 0, 1)


def test_more_layers_leave_the_first_two_alone():
    hyp = {"mosaic": 0.6, "mixup": 0.3, "degrees": 5.0}
    few, more = (many(make_planner(50, hyp=hyp | extra), 1)[0] for extra in ({}, HYP))
    for name, array in arrays(few).items():
        if name in ("copy_paste", "paste_mirrored", "paste_key", "areas", "area_pick"):
            continue
        other = arrays(more)[name]
        np.testing.assert_array_equal(array, other[:, :2] if other.ndim > 1 and other.shape[1] == 6 else other)


def test_closing():
    """Closed mosaics close mixup and cutmix; copies are closed on their own, so that rect pictures have them."""
    closed = many(make_planner(100, hyp=HYP, mosaic=False), 1)[0].counts
    assert not closed[:, 1:3].any()
    assert closed[:, 3].any()
    plan = many(make_planner(100, hyp=HYP, pasting=False), 1)[0]
    assert not plan.counts[:, 3:].any()
    assert plan.copy_paste == 0
    assert plan.counts[:, 2].any()


@pytest.mark.parametrize("dialect", ["yolov5", "yolov7", "yolov9"])
def test_other_dialects_have_neither(dialect):
    plan = many(make_planner(20, dialect=dialect, hyp=HYP), 1)[0]
    assert plan.counts.shape[1] == 2
    assert plan.paste_mirrored
