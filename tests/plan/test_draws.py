"""Distributions of the drawn parameters against the documented ranges. Seeds are fixed: a test passes or fails always.

Kolmogorov-Smirnov distances are compared with 1.95 / sqrt(n), which independent draws exceed once in a thousand times.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.plan.planners import make_plan, make_planner, many

HYP = {
    "degrees": 20.0, "translate": 0.2, "scale": 0.4, "shear": 8.0, "perspective": 0.0008, "mosaic": 0.7, "mixup": 0.3,
    "flipud": 0.2, "fliplr": 0.6, "bgr": 0.1, "hsv_h": 0.02, "hsv_s": 0.6, "hsv_v": 0.3,
}  # fmt: skip


def assert_uniform(values, low: float, high: float) -> None:
    v = np.sort((np.ravel(values) - low) / (high - low))
    assert v[0] >= 0
    assert v[-1] <= 1
    steps = np.arange(len(v) + 1) / len(v)
    distance = max(np.max(steps[1:] - v), np.max(v - steps[:-1]))
    assert distance < 1.95 / np.sqrt(len(v))


def assert_share(flags, p: float) -> None:
    flags = np.ravel(flags)
    assert abs(flags.mean() - p) < 3.3 * np.sqrt(p * (1 - p) / len(flags)) + 1e-12


@pytest.fixture(scope="module", params=["ultralytics", "yolov5", "yolov9"])
def plans(request):
    return many(make_planner(400, dialect=request.param, hyp=HYP), 20)


def join(plans, name: str) -> np.ndarray:
    return np.concatenate([getattr(p, name) for p in plans])


def test_colour_gains(plans):
    hsv = join(plans, "hsv")
    for k, gain in enumerate(("hsv_h", "hsv_s", "hsv_v")):
        assert_uniform(hsv[:, k], -HYP[gain], HYP[gain])
    assert np.abs(np.corrcoef(hsv.T) - np.eye(3)).max() < 0.05  # standard deviation 0.011


@pytest.mark.parametrize("name", ["flipud", "fliplr", "bgr"])
def test_flip_and_channel_gates(plans, name):
    assert_share(join(plans, name), HYP[name])


def test_mosaic_and_mixup_gates(plans, request):
    counts = join(plans, "counts")
    assert set(counts[:, 0]) == {1, 4}
    assert_share(counts[:, 0] == 4, HYP["mosaic"])
    if (
        "yolo" in request.node.callspec.id
    ):  # letterbox_first dialects: mixup hangs on the mosaic, both layers are mosaics
        assert (counts[counts[:, 0] == 1, 1] == 0).all()
        mixed = counts[counts[:, 0] == 4, 1]
        assert set(mixed) == {0, 4}
        assert_share(mixed > 0, HYP["mixup"])
    else:
        assert_share(counts[:, 1] > 0, HYP["mixup"])
        assert_share(counts[counts[:, 1] > 0, 1] == 4, HYP["mosaic"])  # the partner has a gate of its own
        both = (counts[:, 0] == 4) & (counts[:, 1] == 4)
        assert_share(both, HYP["mosaic"] ** 2 * HYP["mixup"])


def test_zoom(plans):
    assert_uniform(join(plans, "scale")[:, 0], 0.6, 1.4)
    assert_uniform(join(plans, "scale")[:, 1], 0.6, 1.4)


def test_explicit_zoom_range():
    assert_uniform(np.concatenate([p.scale for p in many(make_planner(400, hyp={"scale": (0.25, 3.0)}), 5)]), 0.25, 3.0)


def test_angle_and_shift():
    """Read back from the matrices: rotation and zoom alone, and where the canvas centre lands."""
    plans = many(make_planner(400, dialect="yolov5", hyp={"degrees": 20.0, "translate": 0.2}), 20)
    m, canvas = join(plans, "matrix")[:, 0], join(plans, "canvas")[:, 0]
    assert_uniform(np.degrees(np.arctan2(m[:, 0, 1], m[:, 0, 0])), -20, 20)
    centre = np.einsum("bij,bj->bi", m, np.concatenate((canvas[:, ::-1] / 2, np.ones((len(m), 1))), 1))
    assert_uniform(centre[:, 0] / 320, 0.3, 0.7)
    assert_uniform(centre[:, 1] / 320, 0.3, 0.7)


def test_shear():
    """Without rotation: M = S * scale, so the tangents are the off-diagonal parts over the zoom."""
    plans = many(make_planner(400, dialect="yolov5", hyp={"shear": 8.0}), 20)
    m, scale = join(plans, "matrix")[:, 0], join(plans, "scale")[:, 0]
    assert_uniform(np.degrees(np.arctan(m[:, 0, 1] / scale)), -8, 8)
    assert_uniform(np.degrees(np.arctan(m[:, 1, 0] / scale)), -8, 8)


def test_perspective():
    plans = many(make_planner(400, dialect="yolov5", hyp={"perspective": 0.0008}), 20)
    m = join(plans, "matrix")[:, 0]
    assert_uniform(m[:, 2, 0], -0.0008, 0.0008)
    assert_uniform(m[:, 2, 1], -0.0008, 0.0008)
    assert plans[0].projective


@pytest.mark.parametrize("imgsz", [320, 330, 33])
def test_mosaic_centre(imgsz):
    """int(U(s/2, 3s/2)) in y and x; every whole number equally often. Chi-square with its normal bound."""
    plans = many(make_planner(400, imgsz=imgsz), 20)
    for axis in (0, 1):
        centre = join(plans, "rects")[:, 0, 3, axis].astype(int)
        low, high = -(-imgsz // 2), 2 * imgsz - -(-imgsz // 2)
        counts = np.bincount(centre - low, minlength=high - low)
        assert len(counts) == high - low
        expected = len(centre) / (high - low)
        chi2, freedom = ((counts - expected) ** 2 / expected).sum(), high - low - 1
        assert abs(chi2 - freedom) < 3.5 * np.sqrt(2 * freedom)


def test_mixup_ratio():
    """Beta(32, 32): mean 1/2, variance 1 / (4 * 65)."""
    ratio = join(many(make_planner(400, hyp={"mixup": 1.0}), 20), "ratio")
    assert ((ratio > 0) & (ratio < 1)).all()
    sd = np.sqrt(1 / (4 * 65))
    assert abs(ratio.mean() - 0.5) < 3.3 * sd / np.sqrt(len(ratio))
    assert ratio.std() == pytest.approx(sd, rel=0.03)
    assert np.quantile(ratio, 0.975) == pytest.approx(0.6205, abs=0.006)  # of Beta(32, 32)
    unmixed = make_plan(make_planner(50, hyp={"mixup": 0.0}), 50)[1]
    assert (unmixed.ratio == 1).all()


# ---- partners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5"])
@pytest.mark.parametrize("recent", [8, 60, 1000])
def test_recent_partners_come_from_the_last_positions(recent, dialect):
    n = 200
    planner = make_planner(n, dialect=dialect, hyp={"mixup": 1.0}, recent=recent)
    order, plan = make_plan(planner, n)
    place = np.argsort(order.mine)  # position of each image in the epoch
    size = min(recent, n)
    ages = []
    for p in range(n):
        window = range(max(p - size + 1, 0), max(p - size + 1, 0) + size)
        for layer in plan.tiles[p]:
            assert all(place[i] in window for i in layer)
        ages += [p - place[i] for i in plan.tiles[p, 1]] if p >= size else []
    if ages:  # every age equally often
        counts = np.bincount(ages, minlength=size)
        expected = len(ages) / size
        assert abs(((counts - expected) ** 2 / expected).sum() - (size - 1)) < 4 * np.sqrt(2 * (size - 1)) + 4


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5"])
def test_until_closes_each_window(dialect):
    """A pool of `recent` tiles that drops the one whose window closes first loads every image once per epoch."""
    n, recent = 300, 32
    planner = make_planner(n, recent=recent, dialect=dialect)
    held: dict[int, int] = {}
    loads = 0
    for epoch in range(2):
        order, plan = make_plan(planner, n, epoch=epoch)
        place = np.argsort(order.mine)
        np.testing.assert_array_equal(plan.until, place[plan.tiles] + recent - 1 + epoch * n)
        for tiles, until in zip(plan.tiles[:, 0], plan.until[:, 0], strict=True):
            for i, end in zip(tiles.tolist(), until.tolist(), strict=True):
                loads += i not in held
                held[i] = max(end, held.get(i, -1))
                if len(held) > recent:
                    held.pop(min(held, key=held.get))
    assert loads <= 2 * n
    assert loads > 1.7 * n  # the windows do leave images behind


def test_uniform_partners_cover_the_whole_epoch_evenly():
    n = 50
    plans = many(make_planner(n), 60)
    partners = np.concatenate([p.tiles[:, 0, 1:].ravel() for p in plans])
    counts = np.bincount(partners, minlength=n)
    expected = len(partners) / n
    assert abs(((counts - expected) ** 2 / expected).sum() - (n - 1)) < 4 * np.sqrt(2 * (n - 1))


def test_uniform_partners_do_not_depend_on_rank():
    """All ranks draw from the whole epoch, so a sample is the same wherever it is made."""
    planner = make_planner(40)
    whole = make_plan(planner, 40)[1]
    for rank in range(4):
        order, share = make_plan(planner, 10, rank=rank, world_size=4, pad_ranks=True)
        np.testing.assert_array_equal(share.tiles, whole.tiles[rank::4])
        np.testing.assert_array_equal(share.inverse, whole.inverse[rank::4])
        assert set(share.tiles[:, 0, 1:].ravel()) - set(order.mine)


def test_own_image_first_or_anywhere():
    n = 400
    plan = make_plan(make_planner(n), n)[1]
    np.testing.assert_array_equal(plan.tiles[:, 0, 0], plan.index)
    plans = many(make_planner(n, dialect="yolov5"), 5)
    place = np.concatenate([(p.tiles[:, 0] == p.index[:, None]).argmax(1) for p in plans])
    counts = np.bincount(place, minlength=4)
    assert (np.abs(counts - 500) < 4 * np.sqrt(500 * 0.75)).all()
    for p in plans:
        assert (p.tiles[:, 0] == p.index[:, None]).any(1).all()


def test_partners_follow_indices_and_weights():
    indices, weights = np.array([3, 9, 9, 30]), np.zeros(60)
    weights[[4, 8]] = 1, 2
    tiles = make_plan(make_planner(60), 4, images=60, indices=indices)[1].tiles
    assert set(tiles.ravel()) <= set(indices)
    tiles = make_plan(make_planner(60), 60, images=60, weights=weights)[1].tiles
    assert set(tiles.ravel()) == {4, 8}


def test_one_image_is_its_own_partner():
    for recent in (0, 1, 8):
        plan = make_plan(make_planner(1, recent=recent, hyp={"mixup": 1.0}), 1)[1]
        assert not plan.tiles.any()
