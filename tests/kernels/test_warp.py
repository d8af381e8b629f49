"""The fused kernel against a float64 twin: every geometry it may meet."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from fastyolo_data.kernels.warp import make_scratch
from tests.kernels.scenes import SIDE, Layer, lone, mosaic, reference, render, smooth
from tests.reference import geometry, warp

S = SIDE
# 8-bit weights are off by at most 1/512 per axis, which at a contrast of 255 makes 0.5 level per axis; two roundings,
# after each axis, add up to 0.5 each. Noise reaches nearly that; photos stay within one level of the rounded value.
NOISE_TOLERANCE = 2.0

SIZES = {
    "square": [(S, S)] * 4,
    "landscape": [(S * 3 // 4, S), (S, S * 2 // 3), (S // 3, S), (S, S)],
    "odd": [(S - 2, S), (S, S // 2 + 1), (7, S), (S, 5)],
    "one_pixel": [(1, S), (S, 1), (1, 1), (2, S)],
    "larger": [(2 * S + 3, S + 9), (S + 5, 2 * S), (S, S), (3 * S, 2)],
}
CENTRES = {"middle": (S, S), "corner": (S // 2 + 1, S + S // 2), "low": (S + S // 2, S - 3)}
VIEWS = {
    "aligned": {},
    "zoom_in": {"scale": 1.9, "translate": (0.4, 0.6)},
    "zoom_out": {"scale": 0.1},
    "extreme_in": {"scale": 40.0, "translate": (0.51, 0.5)},
    "extreme_out": {"scale": 0.011},
    "rotate": {"angle": 33.0, "scale": 0.8},
    "rotate_90": {"angle": 90.0},
    "rotate_180": {"angle": 180.0, "scale": 0.5},
    "shear": {"shear": (20.0, -35.0), "scale": 0.7},
    "shear_almost_flat": {"shear": (44.0, 45.9), "angle": 3.0},
    "perspective": {"perspective": (0.4 / S, -0.3 / S), "angle": 10.0},
    "outside": {"translate": (9.0, -7.0)},
    "outside_rotated": {"translate": (-9.0, 7.0), "angle": 12.0},
}


def assert_pixels(layer: Layer, got: np.ndarray, hw=(S, S), tolerance: float = NOISE_TOLERANCE) -> None:
    """Compare a rendered layer (bgr, not flipped) with the twin; at ties between tiles either tile is right."""
    want = reference(layer, hw).transpose(2, 0, 1)
    clear = ~warp.ambiguous(layer.rects[: len(layer.tiles)], layer.inverse, hw)
    assert np.abs(got - want)[:, clear].max(initial=0) <= tolerance


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("centre", ["middle", "corner"])
@pytest.mark.parametrize("sizes", SIZES)
def test_mosaic_pixels(sizes, centre, view):
    layer = mosaic(SIZES[sizes], S, CENTRES[centre]).look((S, S), **VIEWS[view])
    assert_pixels(layer, render(layer))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("hw", [(S, S), (S, 1), (1, S), (1, 1), (2, 2), (S // 3, S), (S, 2 * S)])
def test_lone_tile_pixels(hw, view):
    layer = lone(*hw).look((S, S), **VIEWS[view])
    assert_pixels(layer, render(layer))


@pytest.mark.parametrize("out_hw", [(33, 33), (1, 40), (40, 1), (1, 1), (32, 50), (31, 17)])
@pytest.mark.parametrize("view", ["aligned", "rotate", "perspective"])
def test_output_of_any_shape(out_hw, view):
    layer = mosaic(SIZES["odd"], S, CENTRES["middle"]).look(out_hw, **VIEWS[view])
    assert_pixels(layer, render(layer, out_hw=out_hw), out_hw)


@pytest.mark.parametrize("view", ["aligned", "zoom_in", "rotate", "perspective"])
def test_photos_are_within_one_level(view):
    layer = mosaic(SIZES["landscape"], S, CENTRES["middle"], make=smooth).look((S, S), **VIEWS[view])
    got, want = render(layer), reference(layer).transpose(2, 0, 1)
    clear = ~warp.ambiguous(layer.rects, layer.inverse, (S, S))
    difference = (got - want)[:, clear]
    # Half a level for each of two roundings, and weights that are off by 1/512 between neighbours that differ less.
    assert np.abs(difference).max() <= 1.25
    assert np.abs(difference).mean() < 0.35  # rounding once costs 0.25 on average
    assert abs(difference.mean()) < 0.1  # and has no direction


def test_whole_pixel_shift_is_exact():
    layer = mosaic(SIZES["landscape"], S, CENTRES["corner"]).look((S, S), translate=(0.5 + 3 / S, 0.5 - 2 / S))
    assert_pixels(layer, render(layer), tolerance=0.0)


def test_constant_tiles_are_not_blended_across_seams():
    colours = [(10, 20, 30), (200, 5, 90), (0, 255, 0), (255, 0, 255), (114, 114, 114)]
    for name, view in VIEWS.items():
        layer = mosaic([(S, S)] * 4, S, (S - 5, S + 4))
        layer.tiles = [np.full((S, S, 3), c, np.uint8) for c in colours[:4]]
        got = render(layer.look((S, S), **view)).reshape(3, -1).T
        unexpected = {tuple(int(v) for v in c) for c in np.unique(got, axis=0)} - set(colours)
        assert not unexpected, name


@pytest.mark.parametrize("angle", [90.0, 180.0, 270.0])
def test_no_gap_between_tiles_when_seams_fall_on_ties(angle):
    """Half-pixel positions: the last bits of the matrix decide, but one of the two tiles must take each pixel."""
    for offset in range(4):
        layer = mosaic([(S, S)] * 4, S, (S, S))
        layer.tiles = [np.full((S, S, 3), 200 + k, np.uint8) for k in range(4)]
        translate = (0.5 + (0.5 + offset * 1e-13) / S, 0.5 + (0.5 - offset * 1e-13) / S)
        got = render(layer.look((S, S), angle=angle, translate=translate))
        assert got.min() >= 200


@pytest.mark.parametrize(("sx", "sy"), [(-1.0, 1.0), (1.0, -0.7), (-0.5, -2.0)])
def test_mirroring_matrix(sx, sy):
    layer = mosaic(SIZES["landscape"], S, CENTRES["corner"])
    layer.inverse = np.array([[sx, 0, S + S * 0.4], [0, sy, S - 0.25], [0, 0, 1]])
    assert_pixels(layer, render(layer))


@pytest.mark.parametrize("horizon", ["first_pixel", "middle", "behind"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_horizon_inside_the_picture(horizon, sign):
    """The denominator passes through 0 within the output; both sides are drawn, whatever the matrix's sign."""
    layer = mosaic(SIZES["landscape"], S, CENTRES["middle"])
    d = {"first_pixel": (4 / S, -4 / S, 0.0), "middle": (4 / S, 4 / S, -4.0), "behind": (1e-3, 0.0, -0.7)}[horizon]
    layer.inverse = sign * np.array([[1.3, 0.1, -0.6 * S], [-0.1, 1.2, -0.7 * S], d])
    x, y = warp.canvas_positions(layer.inverse, S, S)
    denominator = sign * (d[0] * np.arange(S) + d[1] * np.arange(S)[:, None] + d[2])
    on_canvas = (x > 0) & (x < 2 * S) & (y > 0) & (y < 2 * S)
    assert (on_canvas & (sign * denominator < 0)).sum() > 20  # the case is what it says
    assert_pixels(layer, render(layer))


def test_horizon_as_opencv_draws_it():
    """cv2.warpPerspective on a real canvas, away from the canvas' edges, where the rules differ."""
    layer = lone(2 * S, 2 * S, make=smooth)
    m = geometry.matrix((2 * S, 2 * S), (S, S), perspective=(1.2 / S, 0.9 / S), scale=0.3, translate=(0.3, 0.3))
    layer.inverse = np.linalg.inv(m)
    got = render(layer)
    want = cv2.warpPerspective(layer.tiles[0], m, (S, S), borderValue=(114, 114, 114)).transpose(2, 0, 1)
    x, y = warp.canvas_positions(layer.inverse, S, S)
    edge = np.minimum.reduce([np.abs(x), np.abs(y), np.abs(x - 2 * S + 1), np.abs(y - 2 * S + 1)]) < 2
    d = layer.inverse[2, 0] * np.arange(S) + layer.inverse[2, 1] * np.arange(S)[:, None] + layer.inverse[2, 2]
    inside = (x > 2) & (x < 2 * S - 3) & (y > 2) & (y < 2 * S - 3)
    assert (inside & (d < 0)).sum() > 20
    # OpenCV rounds positions to 1/32 pixel in older versions: up to 1/64 pixel times the contrast of an edge.
    assert np.quantile(np.abs(got.astype(int) - want)[:, inside & ~edge], 0.99) <= 8
    outside = ~inside & ~edge
    np.testing.assert_array_equal(got[:, outside], 114)


def test_pixel_on_the_horizon():
    """Denominator and numerators vanish together, in float32 but not quite in float64: 0 / 0 must index nothing."""
    layer = lone(40, 40)
    for exponent in range(4, 12):
        for distance in (0.0, 1e-9, 1.5e-7, -1.5e-7, 1e-5):
            row = 2.0**-exponent * np.array([1.0, 0.0, -(5.0 + distance)])
            layer.inverse = np.array([row, row, row])  # every pixel but that one shows position (1, 1)
            got = render(layer, out_hw=(2, 20))
            others = np.arange(20) != 5
            want = layer.tiles[0][1, 1].astype(int)[:, None, None]
            assert np.abs(got[..., others] - want).max() <= 1


def test_singular_and_huge_matrices_stay_inside_the_buffers():
    layer = mosaic(SIZES["odd"], S, CENTRES["middle"])
    rng = np.random.default_rng(4)
    for _ in range(10 if S < 90 else 300):
        layer.inverse = rng.normal(size=(3, 3)) * 10.0 ** rng.integers(-6, 7, (3, 3))
        layer.inverse[rng.random((3, 3)) < 0.2] = 0.0
        render(layer)


@pytest.mark.parametrize("ratio", [0.0, 1.0, 0.5, 0.37])
@pytest.mark.parametrize("views", [("aligned", "aligned"), ("rotate", "aligned"), ("zoom_out", "perspective")])
def test_mixup(views, ratio):
    first = mosaic(SIZES["landscape"], S, CENTRES["middle"]).look((S, S), **VIEWS[views[0]])
    second = mosaic(SIZES["odd"], S, CENTRES["low"], seed=5).look((S, S), **VIEWS[views[1]])
    a, b = render(first), render(second)  # checked by the tests above
    got = render(first, second, ratio=ratio)
    # float32 products can fall on the other side of a whole number than the stock float64 ones: one level.
    assert np.abs(got.astype(int) - warp.mix(a, b, ratio)).max() <= (0 if ratio in (0.0, 1.0, 0.5) else 1)


@pytest.mark.parametrize("view", ["aligned", "rotate", "perspective"])
@pytest.mark.parametrize("bgr", [False, True])
@pytest.mark.parametrize("flips", [(False, True), (True, False), (True, True)])
def test_flips_and_channel_order(flips, bgr, view):
    layer = mosaic(SIZES["landscape"], S, CENTRES["corner"]).look((S, S - 5), **VIEWS[view])
    other = mosaic(SIZES["odd"], S, CENTRES["low"], seed=5).look((S, S - 5), **VIEWS["zoom_in"])
    hw = (S, S - 5)
    for second in (None, other):
        plain = render(layer, second, hw, ratio=0.25)
        got = render(layer, second, hw, ratio=0.25, flipud=flips[0], fliplr=flips[1], bgr=bgr)
        np.testing.assert_array_equal(got, warp.finish(plain.transpose(1, 2, 0), *flips, bgr))


def test_tiles_are_only_read_and_unused_ones_are_ignored():
    layer = lone(S // 2, S // 2).look((S, S), angle=20.0)
    before = layer.tiles[0].copy()
    first = render(layer)
    np.testing.assert_array_equal(layer.tiles[0], before)
    layer.rects[1:] = (0, 0, S, S)  # places of tiles that are not in use
    np.testing.assert_array_equal(render(layer), first)


def test_no_tile_in_sight_is_grey():
    for view in ("outside", "outside_rotated"):
        layer = lone(S, S).look((S, S), **VIEWS[view])
        assert (render(layer) == 114).all()


def test_scratch_is_wide_enough_for_the_longest_side():
    assert make_scratch(10, 500).shape[1] > 500
    assert make_scratch(500, 10).shape[1] > 500
