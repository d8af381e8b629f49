"""Sizes, places and matrices against one-sample scalar code."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.hyp import DIALECTS
from fastyolo_data.plan.geometry import invert, letterbox, mosaic_layout, tile_shape, warp_matrix
from tests.reference import geometry, warp

RNG = np.random.default_rng(0)
SIZES = np.concatenate(
    (
        RNG.integers(1, 5000, (4000, 2)),
        np.stack(np.meshgrid(np.arange(630, 650), np.arange(630, 650)), -1).reshape(-1, 2),
        [(1, 1), (1, 5000), (5000, 1), (640, 640), (640, 1), (33, 33), (10, 65_000)],
    )
)


@pytest.mark.parametrize("imgsz", [640, 33, 320, 1280, 608])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_tile_shape(dialect, imgsz):
    d = DIALECTS[dialect]
    got = tile_shape(SIZES.astype(np.int32), imgsz, d)
    want = [geometry.tile_size(int(h), int(w), imgsz, d.rounding) for h, w in SIZES]
    np.testing.assert_array_equal(got, want)
    assert got.min() >= 1
    if dialect == "ultralytics":
        assert got.max() <= imgsz
    assert tuple(tile_shape((480, 641), imgsz, d)) == geometry.tile_size(480, 641, imgsz, d.rounding)


@pytest.mark.parametrize("scaleup", [False, True])
@pytest.mark.parametrize("out_hw", [(640, 640), (672, 384), (33, 33), (32, 640), (641, 640)])
def test_letterbox(out_hw, scaleup):
    got = letterbox(SIZES, np.array([out_hw]), scaleup=scaleup, float_pads=True)
    whole = letterbox(SIZES, np.array([out_hw]), scaleup=scaleup, float_pads=False)
    for k, (h, w) in enumerate(SIZES):
        want = geometry.letterbox(int(h), int(w), *out_hw, scaleup)
        assert got.ratio[k] == want["ratio"]
        assert tuple(got.new_hw[k]) == want["size"]
        assert (got.top[k], got.left[k]) == (want["top"], want["left"])
        assert tuple(got.pad[k]) == want["offset"]
        assert tuple(whole.pad[k]) == (want["left"], want["top"])
        assert want["top"] + want["size"][0] + want["bottom"] == out_hw[0]  # fits without gap
        assert want["left"] + want["size"][1] + want["right"] == out_hw[1]


def test_letterbox_rounds_halves_to_even():
    """51 x 100 into 50: 25.5 -> 26; 49 x 100: 24.5 -> 24."""
    box = letterbox(np.array([(51, 100), (49, 100), (53, 100)]), np.array([(50, 50)]), False, True)
    assert box.new_hw[:, 0].tolist() == [26, 24, 26]


@pytest.mark.parametrize("s", [33, 640])
def test_mosaic_layout(s):
    rng = np.random.default_rng(s)
    tile_hw = rng.integers(1, s + 1, (200, 4, 2))
    tile_hw[:20] = rng.integers(1, 3 * s, (20, 4, 2))  # larger than any quadrant
    centre = rng.integers(s // 2, 3 * s // 2 + 1, (200, 2))
    rects, pads = mosaic_layout(tile_hw, centre, s)
    for k in range(200):
        want = warp.place_mosaic(tile_hw[k], int(centre[k, 0]), int(centre[k, 1]), s)
        np.testing.assert_array_equal(rects[k], want[0])
        np.testing.assert_array_equal(pads[k], want[1])
    assert (rects[..., 2:] > rects[..., :2]).all()  # every tile shows something: it touches the centre


def _random_views(n: int):
    rng = np.random.default_rng(n)
    return dict(
        canvas=rng.integers(1, 1300, (n, 2)).astype(float), out_hw=rng.integers(1, 700, (n, 2)).astype(float),
        perspective=rng.uniform(-0.001, 0.001, (n, 2)) * (rng.random((n, 1)) < 0.5), angle=rng.uniform(-180, 180, n),
        scale=rng.uniform(0.1, 1.9, n), shear=rng.uniform(-40, 40, (n, 2)), translate=rng.uniform(0, 1, (n, 2)),
    )  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_warp_matrix(dialect):
    views = _random_views(300)
    got = warp_matrix(**views, dialect=DIALECTS[dialect])
    assert got.dtype == np.float64
    # Ultralytics composes in float32: 24 bits of numbers up to 1,300 make 1e-4 pixel, times the shear's tangents.
    tolerance = 2e-3 if DIALECTS[dialect].float32_matrix else 1e-9
    names = {"canvas": "canvas", "out_hw": "out"}
    for k in range(300):
        want = geometry.matrix(**{names.get(a, a): v[k] for a, v in views.items()})
        np.testing.assert_allclose(got[k], want, atol=tolerance, rtol=1e-5 if tolerance > 1e-6 else 1e-9)
    if DIALECTS[dialect].float32_matrix:
        np.testing.assert_array_equal(got, got.astype(np.float32))


def test_the_canvas_centre_lands_where_translate_says():
    views = _random_views(50)
    m = warp_matrix(**views, dialect=DIALECTS["yolov5"])
    centre = np.concatenate((views["canvas"][:, ::-1] / 2, np.ones((50, 1))), 1)
    where = np.einsum("bij,bj->bi", m, centre)
    np.testing.assert_allclose(where[:, :2] / where[:, 2:], views["translate"] * views["out_hw"][:, ::-1], atol=1e-8)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_invert(dialect):
    views = _random_views(300)
    m = warp_matrix(**views, dialect=DIALECTS[dialect])
    inverse = invert(m)
    points = np.random.default_rng(1).uniform(-100, 700, (3, 20))
    points[2] = 1
    back = m @ (inverse @ points)
    np.testing.assert_allclose(back / back[:, 2:], np.broadcast_to(points, back.shape), atol=1e-5)
    affine = (views["perspective"] == 0).all(1)
    assert affine.any()
    assert not affine.all()
    np.testing.assert_array_equal(inverse[affine, 2], np.tile([0.0, 0, 1], (affine.sum(), 1)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_plain_zoom_stays_exactly_axis_aligned(dialect):
    """The fast path of the kernel asks for exact zeros."""
    views = _random_views(100)
    views.update(perspective=np.zeros((100, 2)), angle=np.zeros(100), shear=np.zeros((100, 2)))
    inverse = invert(warp_matrix(**views, dialect=DIALECTS[dialect]))
    assert (inverse[:, 0, 1] == 0).all()
    assert (inverse[:, 1, 0] == 0).all()
    assert (inverse[:, 2] == (0, 0, 1)).all()
    np.testing.assert_allclose(inverse[:, 0, 0], 1 / views["scale"], rtol=1e-6)


@pytest.mark.parametrize("px", [-1 / 80, -2 / 80])
def test_invert_when_the_horizon_meets_the_first_pixel(px):
    """The corner of the inverse is 0 then, or negative when the first pixel lies beyond: no division, no sign flip."""
    m = geometry.matrix((160, 160), (160, 160), perspective=(px, 0.0))
    inverse = invert(m[None])[0]
    assert abs(inverse[2, 2] - (1 + 80 * px)) < 1e-9
    assert np.isfinite(inverse).all()
    front = m @ (80, 80, 1)  # the canvas centre is in front of the viewer
    assert (inverse @ (front / front[2]))[2] > 0
