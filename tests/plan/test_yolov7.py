"""What only the plans of YOLOv7 have: mosaics of nine, another zoom range, another mixup ratio."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.plan.geometry import paste_spots
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


def test_paste_in():
    """Eight mosaics of four with images of their own, or none; places as the stock code draws them."""
    plans = many(make_planner(400, dialect="yolov7", hyp={"paste_in": 0.4, "mosaic": 0.5}), 10)
    counts = join(plans, "counts")
    sources = counts[:, 6:]
    assert sources.shape[1] == 8
    assert ((sources == 4).all(1) | (sources == 0).all(1)).all()
    assert_share(sources[:, 0] == 4, 0.4)
    assert_share(sources[counts[:, 0] == 1, 0] == 4, 0.4)  # without mosaic as well
    assert not counts[:, 2:6].any()
    heads = join(plans, "tiles")[:, 6:, 0]
    assert (heads[:, 0] == heads[:, 1]).mean() < 0.02
    assert not many(make_planner(40, dialect="yolov7", hyp={"paste_in": 1.0}, pasting=False), 1)[0].counts[:, 6:].any()
    assert many(make_planner(4, dialect="yolov5", hyp={"paste_in": 1.0}), 1)[0].spots.shape == (4, 0, 4)


def test_places_of_paste_in():
    rng = np.random.default_rng(0)
    u, scales, seen = rng.random((200, 3, 5)), (0.75, 0.25, 0.0625), 0
    for row, spots in zip(u, paste_spots(u, scales, (320, 160)), strict=True):
        for (gate, a, b, c, d), scale, spot in zip(row, scales, spots, strict=True):
            h, w = 1 + int(a * int(320 * scale)), 1 + int(b * int(160 * scale))
            x, y = max(int(c * 161) - w // 2, 0), max(int(d * 321) - h // 2, 0)
            want = [0] * 4 if gate < 0.2 else [x, y, min(x + w, 160), min(y + h, 320)]
            assert spot.tolist() == want
            seen += gate < 0.2
    assert 80 < seen < 160
