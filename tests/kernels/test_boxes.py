"""Label kernels against the NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.kernels.boxes import POLYGON_INSIDE, POLYGON_VISIBLE, finish_boxes, letterbox_boxes, warp_boxes
from tests.reference import boxes, geometry

OUT = (100.0, 130.0)
VIEWS = {
    "same": {},
    "zoom_in": {"scale": 4.0, "translate": (0.4, 0.7)},
    "zoom_out": {"scale": 0.2},
    "rotate": {"angle": 31.0, "scale": 0.9},
    "half_turn": {"angle": 180.0},
    "shear": {"shear": (25.0, -12.0)},
    "perspective": {"perspective": (0.002, -0.001), "angle": 7.0},
    "horizon": {"perspective": (0.02, 0.013)},
    "outside": {"translate": (9.0, 9.0)},
}
RULES = {"visible": POLYGON_VISIBLE, "inside": POLYGON_INSIDE}
# float64 on both sides, other order of operations. Visible bounds: the twin walks the edges in 20,000 steps.
EXACT, WALKED = 1e-8, 0.2


def columns(images):
    """LabelTable columns of images: lists of (cls, xywhn, polygon or None)."""
    flat = [b for image in images for b in image]
    box_offsets = np.cumsum([0, *map(len, images)]).astype(np.int64)
    cls = np.array([b[0] for b in flat], np.float32)
    xywhn = np.array([b[1] for b in flat], np.float32).reshape(-1, 4)
    polygons = [np.zeros((0, 2), np.float32) if b[2] is None else np.asarray(b[2], np.float32) for b in flat]
    if not any(len(p) for p in polygons):
        return box_offsets, cls, xywhn, np.zeros(0, np.int64), np.zeros((0, 2), np.float32)
    point_offsets = np.cumsum([0, *map(len, polygons)]).astype(np.int64)
    return box_offsets, cls, xywhn, point_offsets, np.concatenate(polygons)


def run(images, hw, pads, canvas, clip, view, rule="visible", max_aspect=100.0, start=0):
    """Kernel and twin on the same labels; returns (cls, xyxy) of each."""
    cols = columns(images)
    m = geometry.matrix(canvas, OUT, **view)
    scale = view.get("scale", 1.0)
    count = len(images)
    n = len(cols[1]) + start
    out_cls, out = np.full(n, -7.0), np.full((n, 4), -7.0)
    longest = int(np.diff(cols[3]).max(initial=0))
    work = np.full((2, longest + 1002, 2), np.nan)
    filled = np.zeros((4, 2)), np.zeros((4, 2))
    filled[0][:count], filled[1][:count] = hw, pads
    indices = np.zeros(4, np.int64)
    indices[:count] = np.arange(count)
    stop = warp_boxes(
        indices, count, *filled, cols, np.array(canvas, np.float64), clip, m, scale, np.array(OUT),
        RULES[rule], max_aspect, work, out_cls, out, start,
    )  # fmt: skip
    assert (out[:start] == -7).all()
    assert (out[stop:] == -7).all()
    tiles = []
    for i, image in enumerate(images):
        rows = slice(cols[0][i], cols[0][i + 1])
        polygons = [None if b[2] is None else np.asarray(b[2], np.float32) for b in image]
        tiles.append((hw[i], pads[i], cols[1][rows], cols[2][rows], polygons))
    want = boxes.warp_labels(tiles, canvas, clip, m, scale, OUT, rule == "visible", max_aspect)
    return (out_cls[start:stop], out[start:stop]), want


def check(*args, tolerance=EXACT, **kw) -> int:
    (cls, xyxy), (want_cls, want) = run(*args, **kw)
    assert cls.tolist() == want_cls
    np.testing.assert_allclose(xyxy, want, atol=tolerance, rtol=0)
    return len(cls)


def random_images(seed: int, polygons: bool, images: int = 4):
    """Labels all over the picture, some without area, some hair thin, one image without any."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(images):
        image = []
        for k in range(0 if i == 2 else 7):
            c, half = rng.uniform(0, 1, 2), rng.uniform(0.01, 0.5, 2) * (k != 3, k != 4)
            lo, hi = np.clip(c - half, 0, 1), np.clip(c + half, 0, 1)
            shape = None
            if polygons and k != 5:
                angle = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(3, 30))))
                radius = rng.uniform(0.3, 1.0, len(angle))[:, None]
                shape = np.clip(c + half * radius * np.stack((np.cos(angle), np.sin(angle)), 1), 0, 1)
                lo, hi = shape.min(0), shape.max(0)
            image.append((float(k), (*(lo + hi) / 2, *(hi - lo)), shape))
        out.append(image)
    return out


MOSAIC = dict(
    hw=np.array([(80.0, 100), (100, 60), (30, 100), (100, 1)]),
    pads=np.array([(-10.0, 25), (90, -5), (-20, 105), (90, 105)]),
    canvas=(200.0, 200.0),
    clip=True,
)
LONE = dict(hw=np.array([(90.0, 120)]), pads=np.array([(3.0, 5.5)]), canvas=(100.0, 130.0), clip=False)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("layout", [MOSAIC, LONE], ids=["mosaic", "lone"])
def test_boxes(layout, view):
    kept = sum(
        check(random_images(seed, False, len(layout["hw"])), **layout, view=VIEWS[view], start=seed)
        for seed in range(4)
    )
    assert (kept == 0) == (view == "outside")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("view", [v for v in VIEWS if v != "horizon"])
@pytest.mark.parametrize("layout", [MOSAIC, LONE], ids=["mosaic", "lone"])
def test_polygons(layout, view, rule):
    """Beyond the horizon an edge of a polygon passes through infinity; all stock code gives nonsense there."""
    tolerance = EXACT if rule == "inside" else WALKED * max(1.0, VIEWS[view].get("scale", 1.0))
    for seed in range(4):
        images = random_images(seed, True, len(layout["hw"]))
        check(images, **layout, view=VIEWS[view], rule=rule, tolerance=tolerance)


def one(points, xywhn=(0.5, 0.5, 1.0, 1.0)):
    return [[(1.0, xywhn, points)]]


def far(points):
    """Normalised points of LONE's picture from output pixels (view "same")."""
    return (np.asarray(points, float) - LONE["pads"][0]) / LONE["hw"][0][::-1]


def test_polygon_around_the_whole_output_gives_the_whole_output():
    corners = [(-50, -60), (200, -50), (210, 300), (-40, 310)]
    (_, xyxy), _ = run(one(far(corners)), **LONE, view={})
    np.testing.assert_allclose(xyxy, [[0, 0, OUT[1], OUT[0]]], atol=1e-9)


def test_polygon_around_one_corner_of_the_output():
    """A triangle whose edges miss the picture's inside but for one corner's sake."""
    (_, xyxy), _ = run(one(far([(-40, -40), (60, -40), (-40, 50)])), **LONE, view={})
    # Edge from (60, -40) to (-40, 50) cuts y = 0 at 15.6 and x = 0 at 14.
    np.testing.assert_allclose(xyxy, [[0, 0, 60 - 40 / 0.9, 14]], atol=1e-4)


def test_concave_polygon_that_only_surrounds_the_output():
    """A C around the picture: no part of it is visible, though its bounds cover everything."""
    c = [(-30, -30), (160, -30), (160, -10), (-10, -10), (-10, 110), (160, 110), (160, 130), (-30, 130)]
    assert check(one(far(c)), **LONE, view={}) == 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 997, 998, 999, 1000, 1001, 2500])
def test_polygons_of_any_length(count, rule):
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    points = 0.5 + np.stack((0.45 * np.cos(angle), 0.4 * np.sin(angle + 0.3)), 1)
    for layout in (LONE, {**LONE, "clip": True, "canvas": (60.0, 60.0)}):
        kept = check(
            one(points), **layout, view={"angle": 9.0}, rule=rule, tolerance=EXACT if rule == "inside" else 0.05
        )
        assert kept == (count > 1)  # two vertices make a slanted line, whose bounds have an area


def test_clipped_polygon_follows_the_resampled_points():
    """A mosaic clips 1,000 points, not the vertices: a slanted edge gets a bend at the canvas' border."""
    triangle = np.array([(0.1, 0.2), (1.9, 0.5), (0.1, 0.8)])
    layout = dict(hw=np.array([(100.0, 100)]), pads=np.zeros((1, 2)), canvas=(100.0, 100.0), clip=True)
    for rule in RULES:
        check(one(triangle), **layout, view={"angle": 40.0}, rule=rule, tolerance=EXACT if rule == "inside" else 0.05)


def test_boxes_on_the_border_and_without_area():
    images = [[
        (0.0, (0.5, 0.5, 1.0, 1.0), None),  # the whole tile
        (1.0, (1.0, 0.5, 0.0, 1.0), None),  # a line on the right border
        (2.0, (0.5, 0.5, 0.0, 0.0), None),  # a point
        (3.0, (0.0, 0.0, 0.2, 0.2), None),  # hangs out on the left
        (4.0, (1.2, 0.5, 0.1, 0.1), None),  # outside its tile
        (5.0, (0.5, 0.5, 0.5, 0.001), None),  # hair thin
    ]]  # fmt: skip
    layout = dict(hw=np.array([(100.0, 130)]), pads=np.zeros((1, 2)), canvas=(100.0, 130.0))
    (cls, xyxy), _ = run(images, **layout, clip=True, view={})
    assert cls.tolist() == [0.0, 3.0]
    np.testing.assert_allclose(xyxy, [[0, 0, 130, 100], [0, 0, 13, 10]], atol=1e-5)
    for clip in (False, True):
        for view in ("same", "rotate", "zoom_in"):
            check(images, **layout, clip=clip, view=VIEWS[view])


@pytest.mark.parametrize(("side", "kept"), [(2.0, 0), (2.001, 1)])
def test_smallest_side(side, kept):
    layout = dict(hw=np.array([(100.0, 128)]), pads=np.zeros((1, 2)), canvas=(100.0, 130.0), clip=False)
    assert check([[(0.0, (0.5, 0.5, side / 128, 0.5), None)]], **layout, view={}) == kept


@pytest.mark.parametrize(
    ("polygon", "left", "kept"), [(False, 0.09, 0), (False, 0.11, 1), (True, 0.009, 0), (True, 0.05, 1)]
)
def test_area_that_must_stay(polygon, left, kept):
    """A tile moved out to the left until a share of its box is left: 10 %, with polygons 1 %."""
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) if polygon else None
    layout = dict(hw=np.array([(100.0, 1000)]), pads=np.array([(-1000 * (1 - left), 0.0)]), canvas=(100.0, 130.0))
    images = [[(0.0, (0.5, 0.5, 1.0, 1.0), square)]]
    assert check(images, **layout, clip=False, view={}, tolerance=1e-3) == kept


@pytest.mark.parametrize(("max_aspect", "kept"), [(20.0, 0), (25.1, 1), (100.0, 1)])
def test_aspect_limit(max_aspect, kept):
    layout = dict(hw=np.array([(100.0, 100)]), pads=np.zeros((1, 2)), canvas=(100.0, 130.0), clip=False)
    assert check([[(0.0, (0.5, 0.5, 1.0, 0.04), None)]], **layout, view={}, max_aspect=max_aspect) == kept


@pytest.mark.parametrize("margin", [-1.0, 0.0, 1e-3])
@pytest.mark.parametrize(("flipud", "fliplr"), [(False, False), (True, False), (False, True), (True, True)])
def test_finish_boxes(flipud, fliplr, margin):
    xyxy = np.array([[0, 0, 130, 100], [-5, 3, 20, 120], [64.5, 2, 64.5, 2], [0, 99, 1, 100]], float)
    got = np.concatenate((np.full((1, 4), 9.0), xyxy, np.full((1, 4), 9.0)))
    finish_boxes(got, 1, 5, np.array(OUT), margin, flipud, fliplr)
    np.testing.assert_allclose(got[1:5], boxes.finish(xyxy, OUT, margin, flipud, fliplr), atol=1e-12)
    assert (got[[0, 5]] == 9).all()


def test_letterbox_boxes():
    images = random_images(3, False, 3)
    cols = columns(images)
    cls, out = np.full(20, -7.0), np.full((20, 4), -7.0)
    hw, ratio, pad = np.array([77.0, 140]), 0.85, np.array([5.5, 17.25])
    assert letterbox_boxes(2, hw, ratio, pad, cols, cls, out, 4) == 4  # image without labels
    stop = letterbox_boxes(1, hw, ratio, pad, cols, cls, out, 4)
    xywhn = cols[2][7:14].astype(float)
    corners = np.concatenate((xywhn[:, :2] - xywhn[:, 2:] / 2, xywhn[:, :2] + xywhn[:, 2:] / 2), 1)
    want = corners * np.tile(hw[::-1], 2) * ratio + np.tile(pad, 2)
    assert stop == 11
    np.testing.assert_allclose(out[4:11], want, atol=1e-9)
    assert cls[4:11].tolist() == cols[1][7:14].tolist()
    assert (out[11:] == -7).all()
