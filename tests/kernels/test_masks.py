"""Masks against cv2.fillPoly and cv2.resize, pixel for pixel."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numba import config

from fastyolo_data.augment.instances import Instances
from fastyolo_data.augment.masks import MaskMemory, make_masks

H, W = 64, 96
MANY = 60 if config.DISABLE_JIT else 250  # plain Python is slow


def instances(polygons, cls=None):
    """Instances of polygons alone."""
    n = len(polygons)
    offsets = np.cumsum([0, *map(len, polygons)])
    points = np.concatenate([np.asarray(p, float).reshape(-1, 2) for p in polygons])
    cls = np.arange(n, dtype=float) if cls is None else np.asarray(cls, float)
    return Instances(cls, np.zeros((n, 4)), offsets, points, np.zeros((n, 0, 3)))


MEMORY = MaskMemory()


def draw(polygons, *args):
    """Masks of polygons, in memory that all tests share, as all samples of a worker do."""
    return make_masks(polygons, *args, MEMORY)


def opencv(polygon, ratio, hw=(H, W)):
    """The stock mask of one polygon."""
    mask = np.zeros(hw, np.uint8)
    cv2.fillPoly(mask, [np.asarray(polygon, float).astype(np.int32)], 1)
    return cv2.resize(mask, (hw[1] // ratio, hw[0] // ratio))


def star(rng, low, high):
    """A polygon that does not cross itself, of few or many points."""
    k = int(rng.integers(3, 40))
    angle, radius = np.sort(rng.uniform(0, 2 * np.pi, k)), rng.uniform(0.3, 1, k) * rng.uniform(1, high - low)
    return rng.uniform(low, high, 2) + np.stack((np.cos(angle), np.sin(angle)), 1) * radius[:, None] / 2


def tangle(rng, low, high):
    """Random vertices: edges cross, repeat and degenerate."""
    return rng.uniform(low, high, (int(rng.integers(1, 12)), 2))


RANGES = {"inside": (10, 54), "border": (0, 97), "outside": (-60, 160), "far": (-3000, 3000)}


@pytest.mark.parametrize("shape", [star, tangle])
@pytest.mark.parametrize("where", RANGES)
def test_equals_fillpoly(shape, where):
    rng = np.random.default_rng(0)
    polygons = [shape(rng, *RANGES[where]) for _ in range(MANY)]
    _, masks, _ = draw(instances(polygons), (H, W), 1, False, False)
    for mask, polygon in zip(masks, polygons, strict=True):
        np.testing.assert_array_equal(mask, opencv(polygon, 1))
    assert 0 < masks.mean() < 1


@pytest.mark.parametrize("ratio", [1, 2, 3, 4, 5, 6, 8, 16, 32])
def test_equals_resize(ratio):
    rng = np.random.default_rng(ratio)
    polygons = [star(rng, -10, 100) for _ in range(40)]
    _, masks, _ = draw(instances(polygons), (H, W), ratio, False, False)
    assert masks.dtype == np.uint8
    np.testing.assert_array_equal(masks, [opencv(p, ratio) for p in polygons])


@pytest.mark.parametrize("hw", [(66, 96), (64, 90), (30, 30)])
def test_ratio_that_does_not_divide_the_picture(hw):
    polygons = [star(np.random.default_rng(k), 0, 60) for k in range(20)]
    _, masks, _ = draw(instances(polygons), hw, 4, False, False)
    np.testing.assert_array_equal(masks, [opencv(p, 4, hw) for p in polygons])


SQUARES = [[(x, x), (x + side, x), (x + side, x + side), (x, x + side)] for x, side in ((0, 16), (4, 40), (8, 24))]


def test_overlap_lists_large_ones_first_and_small_ones_on_top():
    order, masks, classes = draw(instances(SQUARES, [7, 8, 9]), (H, W), 4, True, True)
    assert order.tolist() == [1, 2, 0]
    assert masks.shape == (1, 16, 24)
    assert masks.dtype == np.uint8
    assert masks[0, :5, 0].tolist() == [3, 3, 3, 3, 0]
    assert masks[0, 3, 3] == 3
    assert masks[0, 5, 5] == 2
    assert masks[0, 10, 10] == 1
    assert (classes[3, 3], classes[5, 5], classes[10, 10], classes[0, 20]) == (7, 9, 8, 7)


def test_without_overlap_the_smallest_gives_the_class():
    order, masks, classes = draw(instances(SQUARES, [7, 8, 9]), (H, W), 4, False, True)
    assert order is None
    assert masks.shape == (3, 16, 24)
    assert (classes[3, 3], classes[5, 5], classes[10, 10], classes[0, 20]) == (7, 9, 8, 0)
    _, _, none = draw(instances(SQUARES), (H, W), 4, False, False)
    assert none.shape == (0, 0)


def test_empty_masks_come_first_as_in_the_stock_code():
    """It negates unsigned areas, so 0 stays the least."""
    gone = [(-9, -9), (-5, -9), (-5, -5)]
    order, masks, _ = draw(instances([SQUARES[0], gone, SQUARES[1]]), (H, W), 4, True, False)
    assert order.tolist() == [1, 2, 0]
    assert set(np.unique(masks)) == {0, 2, 3}


def test_more_than_255_instances():
    order, masks, _ = draw(instances([SQUARES[k % 3] for k in range(300)]), (H, W), 4, True, False)
    assert masks.dtype == np.int32
    assert masks.max() == 300
    assert sorted(order) == list(range(300))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 3e9])
def test_hostile_coordinates_end(value):
    polygons = [[(5, 5), (value, 20), (20, value)], SQUARES[0]]
    _, masks, _ = draw(instances(polygons), (H, W), 1, False, False)
    np.testing.assert_array_equal(masks[1], opencv(SQUARES[0], 1))
