"""The colour step of the fused kernel against OpenCV's chain, alone and after a warp."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastyolo_data.kernels.warp import HUE_ADDITIVE, HUE_MULTIPLICATIVE
from tests.kernels.scenes import SIDE, Layer, lone, mosaic, render, smooth
from tests.reference import warp

MODES = {"additive": HUE_ADDITIVE, "multiplicative": HUE_MULTIPLICATIVE}
GAINS = [
    (0.0, 0.0, 0.0), (0.015, 0.7, 0.4), (-0.015, -0.7, -0.4), (0.5, 0.0, 0.0), (-0.5, 0.0, 0.0), (1.0, 1.0, 1.0),
    (-1.0, -1.0, -1.0), (0.3, 0.9, -0.9), (-0.0101, 0.2, -0.3), (0.25, -1.0, 0.0), (0.999, 0.0, 1.0),
]  # fmt: skip
LEVELS = [0, 1, 2, 64, 127, 128, 200, 254, 255]


def picture(colours: np.ndarray) -> Layer:
    """A lone tile that holds these (k, 3) colours, seen one to one."""
    side = int(np.ceil(np.sqrt(len(colours))))
    im = np.resize(colours, (side, side, 3)).astype(np.uint8)
    layer = lone(side, side)
    layer.tiles = [im]
    return layer


def difference(layer: Layer, gains, mode: str) -> np.ndarray:
    im = layer.tiles[0]
    got = render(layer, out_hw=im.shape[:2], hue=MODES[mode], gains=gains)
    return np.abs(got.astype(int) - warp.hsv(im, gains, mode == "additive").transpose(2, 0, 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gains", GAINS)
def test_edge_colours(gains, mode):
    """Corners, edges and faces of the colour cube."""
    d = difference(picture(np.array(list(itertools.product(LEVELS, repeat=3)))), gains, mode)
    # Where H falls on a half, OpenCV's integer table and floats may round it differently: one step of H, 2 degrees, is
    # 255 / 30 = 8.5 levels, and the multiplicative formula makes up to two steps of it. Else both round S, V and the
    # result once: two levels.
    steps = 1 if mode == "additive" else 2
    assert d.max() <= 8.5 * steps + 2
    assert (d > 2).mean() <= 0.01
    assert d.mean() <= 0.4


@pytest.mark.parametrize("mode", MODES)
def test_pure_colours_without_gains_stay_as_they_are(mode):
    pure = np.array(list(itertools.product((0, 255), repeat=3)))
    grey = np.repeat(np.arange(256)[:, None], 3, 1)
    assert difference(picture(np.concatenate((pure, grey))), (0.0, 0.0, 0.0), mode).max() == 0
    layer = picture(np.concatenate((pure, grey)))
    out = render(layer, out_hw=layer.tiles[0].shape[:2], hue=MODES[mode])
    np.testing.assert_array_equal(out.transpose(1, 2, 0), layer.tiles[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gains", GAINS)
def test_greys_keep_no_colour(gains, mode):
    grey = np.repeat(np.arange(256)[:, None], 3, 1)
    layer = picture(grey)
    b, g, r = render(layer, out_hw=(16, 16), hue=MODES[mode], gains=gains)
    np.testing.assert_array_equal(b, g)
    np.testing.assert_array_equal(r, g)
    want = np.clip(np.arange(256) * (1 + gains[2]), 0, 255).astype(np.uint8)
    # A float32 product may fall on the other side of a whole number than the float64 one of the stock table.
    assert np.abs(g.ravel().astype(int) - want).max() <= 1
    assert (g.ravel() != want).mean() <= 0.1


@pytest.mark.parametrize("mode", MODES)
def test_hue_of_primaries_goes_around_the_circle(mode):
    """Red to green to blue to red, by 120 degrees; and red has hue 0, which a factor leaves alone."""
    bgr = {"blue": (255, 0, 0), "green": (0, 255, 0), "red": (0, 0, 255)}
    for (name, colour), after in zip(bgr.items(), ((0, 0, 255), (255, 0, 0), (0, 255, 0)), strict=True):
        layer = picture(np.array([colour]))
        out = render(layer, out_hw=(1, 1), hue=MODES[mode], gains=(1 / 3 + 1e-9, 0.0, 0.0))[:, 0, 0]
        if mode == "additive":
            assert tuple(out) == after, name
        elif name == "red":
            assert tuple(out) == colour


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", [{}, {"angle": 20.0}, {"perspective": (0.3 / SIDE, 0.0)}])
def test_colour_after_warp_and_mixup(view, mode):
    """The chain sees the warped picture rounded to bytes; what one level of that does to H is the tolerance."""
    s, gains = SIDE, (0.015, 0.4, -0.3)
    hw = (s, s)
    first = mosaic([(s, s)] * 4, s, (s, s), make=smooth).look(hw, **view)
    second = mosaic([(s, s)] * 4, s, (s + 3, s - 3), make=smooth, seed=1).look(hw, scale=0.7)
    for other, ratio in ((None, 1.0), (second, 0.4)):
        plain = render(first, other, ratio=ratio).transpose(1, 2, 0)
        want = warp.finish(warp.hsv(np.ascontiguousarray(plain), gains, mode == "additive"), True, True, False)
        got = render(first, other, ratio=ratio, hue=MODES[mode], gains=gains, flipud=True, fliplr=True, bgr=False)
        d = np.abs(got.astype(int) - want)
        assert d.max() <= 10.5
        assert (d > 2).mean() <= 0.01
        assert d.mean() <= 0.4
