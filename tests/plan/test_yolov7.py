"""What only the plans of YOLOv7 have: mosaics of nine, another zoom range, another mixup ratio."""

from __future__ import annotations

import numpy as np
import pytest

from tests.plan.planners import make_planner, many
from tests.plan.test_draws import assert_share, assert_uniform, join


@pytest.fixture(scope="module")
def plans():
    return many(make_planner(400, dialect="yolov7", hyp={"mosaic": 0.8, "mixup": 0.5, "scale": 0.4}), 20)


def test_kinds_of_mosaic(plans):
    counts = join(plans, "counts")
    assert_share(counts[:, 0] > 1, 0.8)
    mixed = counts[:, 1] > 0
    assert (counts[mixed, 0] > 1).all()  # mixup hangs on the mosaic, and mixes with a mosaic
    assert_share(mixed[counts[:, 0] > 1], 0.5)
    assert set(counts[mixed, 1]) == {4, 9}
    for k in range(2):
        assert_share(counts[counts[:, k] > 1, k] == 9, 0.2)
    assert_share(counts[mixed & (counts[:, 0] == 9), 1] == 9, 0.2)  # independent of the first layer


def test_zoom_and_ratio(plans):
    assert_uniform(join(plans, "scale"), 0.6, 1.5)
    ratio = join(plans, "ratio")[join(plans, "counts")[:, 1] > 0]
    assert ratio.mean() == pytest.approx(0.5, abs=0.006)
    assert ratio.std() == pytest.approx(np.sqrt(1 / (4 * 17)), rel=0.05)  # Beta(8, 8)


def test_window_of_nine(plans):
    """int(U(0, s)) in y and x; the first tile's origin lies at s - offset."""
    nine = join(plans, "counts")[:, 0] == 9
    offset = 320 - join(plans, "pads")[nine, 0, 0]
    assert offset.min() >= 0
    assert offset.max() <= 319
    for axis in range(2):
        assert_uniform((offset[:, axis] + 0.5) / 320, 0, 1)


def test_own_picture_first_and_partners_from_everywhere(plans):
    for plan in plans:
        np.testing.assert_array_equal(plan.tiles[:, 0, 0], plan.index)
        assert plan.tiles.shape[-1] == 9
    tiles = join(plans, "tiles")
    for k in range(1, 9):  # every place has its own draw
        counts = np.bincount(tiles[:, 0, k], minlength=400)
        assert abs(((counts - 20) ** 2 / 20).sum() - 399) < 4 * np.sqrt(2 * 399)
        assert (tiles[:, 0, k] == tiles[:, 0, k % 8 + 1]).mean() < 0.01


@pytest.mark.parametrize("recent", [0, 32])
def test_until_covers_all_nine(recent):
    planner = make_planner(60, dialect="yolov7", recent=recent)
    plan = many(planner, 1)[0]
    assert plan.until.shape == plan.tiles.shape
    assert (plan.until >= np.arange(60)[:, None, None]).all()


def test_colour_step_always_runs():
    off = {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}
    for dialect, runs in (("yolov7", True), ("yolov5", False), ("ultralytics", False)):
        assert many(make_planner(4, dialect=dialect, hyp=off), 1)[0].hsv_active is runs
