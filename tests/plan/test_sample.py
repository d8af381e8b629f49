"""Plans: pure functions, independent slots, layouts that fit their canvases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fastyolo_data.hyp import Hyp, get_dialect
from fastyolo_data.plan import AugmentPlan, LetterboxPlan, plan_order
from tests.plan.planners import arrays, make_plan, make_planner
from tests.reference import geometry, warp

ALL_ON = {
    "degrees": 20.0, "translate": 0.2, "scale": 0.4, "shear": 8.0, "perspective": 0.0008, "mosaic": 0.7, "mixup": 0.3,
    "flipud": 0.2, "fliplr": 0.6, "bgr": 0.1, "hsv_h": 0.02, "hsv_s": 0.6, "hsv_v": 0.3,
    "cutmix": 0.4, "copy_paste": 0.4, "paste_in": 0.4,
}  # fmt: skip
DIALECTS = ["ultralytics", "yolov5", "yolov7", "yolov9"]


def assert_equal(a, b, names=None) -> None:
    x, y = arrays(a), arrays(b)
    for name in names or x:
        np.testing.assert_array_equal(x[name], y[name], err_msg=name)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_plan_is_pure_and_a_batch_does_not_depend_on_its_neighbours(dialect):
    planner = make_planner(60, dialect=dialect, hyp=ALL_ON, recent=16)
    order, whole = make_plan(planner, 60)
    np.random.seed(0)  # noqa: NPY002 - global state must not matter
    assert_equal(planner.plan(order, 0, 0, 60), whole)
    for start, stop in ((0, 1), (7, 20), (59, 60)):
        part = arrays(planner.plan(order, 0, start, stop))
        for name, value in arrays(whole).items():
            want = value[start:stop] if value.ndim else value
            np.testing.assert_array_equal(part[name], want, err_msg=name)


def test_seed_epoch_and_repeat_change_the_draws():
    planner = make_planner(30, hyp=ALL_ON)
    order, base = make_plan(planner, 30)
    others = [
        replace(planner, seed=6).plan(order, 0, 0, 30),
        planner.plan(order, 1, 0, 30),
        planner.plan(replace(order, repeat=order.repeat + 1), 0, 0, 30),
    ]
    for other in others:
        assert not np.isin(other.hsv, base.hsv).any()
        assert not np.isin(other.scale, base.scale).any()


MAY_CHANGE = {
    "mosaic": {"counts", "rects", "pads", "label_pads", "label_hw", "canvas", "matrix", "inverse", "tiles", "tile_hw",
               "resize_hw", "ratio"},
    "mixup": {"counts", "ratio", "rects", "pads", "label_pads", "label_hw", "canvas", "matrix", "inverse", "tiles",
              "tile_hw"},
    "hsv_h": {"hsv"}, "hsv_s": {"hsv"}, "hsv_v": {"hsv"},
    "degrees": {"matrix", "inverse"}, "translate": {"matrix", "inverse"}, "shear": {"matrix", "inverse"},
    "scale": {"matrix", "inverse", "scale"}, "perspective": {"matrix", "inverse", "projective"},
    "flipud": {"flipud"}, "fliplr": {"fliplr"}, "bgr": {"bgr"},
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("off", MAY_CHANGE)
def test_switching_one_augmentation_off_leaves_all_other_draws(off, dialect):
    planner = make_planner(60, dialect=dialect, hyp=ALL_ON)
    without = replace(planner, hyp=replace(planner.hyp, **{off: 0.0}))
    order, a = make_plan(planner, 60)
    b = without.plan(order, 0, 0, 60)
    assert_equal(a, b, set(arrays(a)) - MAY_CHANGE[off])
    if off == "mixup":  # layer 0 stays whole, and nothing is mixed
        for name in ("tiles", "rects", "pads", "matrix", "inverse", "canvas"):
            np.testing.assert_array_equal(arrays(a)[name][:, 0], arrays(b)[name][:, 0])
        assert not b.counts[:, 1].any()
    if off == "mosaic" and dialect == "ultralytics":  # places differ, images and views do not
        np.testing.assert_array_equal(a.tiles, b.tiles)
        np.testing.assert_array_equal(a.matrix[..., :2, :2][..., 0, 0] > 0, b.matrix[..., 0, 0] > 0)


def test_all_off_is_a_plain_centred_picture():
    off = dict.fromkeys(ALL_ON, 0.0)
    plan = make_plan(make_planner(20, hyp=off), 20)[1]
    assert not plan.hsv_active
    assert not plan.projective
    assert (plan.counts == (1, 0)).all()
    assert not (plan.flipud | plan.fliplr | plan.bgr).any()
    np.testing.assert_array_equal(plan.scale, 1.0)
    np.testing.assert_allclose(plan.matrix[:, 0, :2, :2], np.tile(np.eye(2), (20, 1, 1)))


def test_closing_mosaic_closes_mixup_too():
    planner = make_planner(40, hyp={"mosaic": 1.0, "mixup": 1.0}, mosaic=False)
    assert (make_plan(planner, 40)[1].counts == (1, 0)).all()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("imgsz", [320, 33])
def test_layouts(dialect, imgsz):
    planner = make_planner(80, imgsz=imgsz, dialect=dialect, hyp={"mosaic": 0.5, "mixup": 0.5})
    plan = make_plan(planner, 80)[1]
    for row in range(80):
        for k in range(2):
            sizes = [tuple(int(v) for v in planner.tile_hw[i]) for i in plan.tiles[row, k]]
            np.testing.assert_array_equal(plan.tile_hw[row, k], sizes)
            if plan.counts[row, k] == 4:
                xc, yc = (int(v) for v in plan.rects[row, k, 3, :2])
                rects, pads = warp.place_mosaic(sizes[:4], yc, xc, imgsz)
                np.testing.assert_array_equal(plan.rects[row, k, :4], rects)
                np.testing.assert_array_equal(plan.pads[row, k, :4], pads)
                np.testing.assert_array_equal(plan.label_pads[row, k], plan.pads[row, k])
                np.testing.assert_array_equal(plan.label_hw[row, k], sizes)
                assert plan.canvas[row, k].tolist() == [2 * imgsz] * 2
            elif plan.counts[row, k] == 9:
                offset = [imgsz - int(v) for v in plan.pads[row, k, 0]]
                rects, pads = warp.place_mosaic9(sizes, offset[1], offset[0], imgsz)
                np.testing.assert_array_equal(plan.rects[row, k], rects)
                np.testing.assert_array_equal(plan.pads[row, k], pads)
                assert plan.canvas[row, k].tolist() == [2 * imgsz] * 2
            elif plan.counts[row, k] == 1:
                _check_lone(plan, row, k, sizes[0], get_dialect(dialect).letterbox_first)
            m = plan.matrix[row, k]
            np.testing.assert_allclose(m @ plan.inverse[row, k], np.eye(3), atol=2e-4)


def _check_lone(plan: AugmentPlan, row: int, k: int, size: tuple[int, int], letterboxed: bool) -> None:
    h, w = size
    if not letterboxed:
        assert plan.rects[row, k, 0].tolist() == [0, 0, w, h]
        assert plan.canvas[row, k].tolist() == [h, w]
        assert not plan.resize_hw[row].any()
        return
    box = geometry.letterbox(h, w, *plan.out_hw, scaleup=True)
    (nh, nw), left, top = box["size"], box["left"], box["top"]
    assert plan.rects[row, k, 0].tolist() == [left, top, left + nw, top + nh]
    assert plan.canvas[row, k].tolist() == list(plan.out_hw)
    assert plan.label_pads[row, k, 0].tolist() == list(box["offset"])
    np.testing.assert_allclose(plan.label_hw[row, k, 0], (h * box["ratio"], w * box["ratio"]))
    assert plan.resize_hw[row].tolist() == ([0, 0] if (nh, nw) == size else [nh, nw])


def test_rect_batches_have_their_shapes():
    shapes = np.array([(320, 192), (160, 320), (320, 320)])
    for augment in (False, True):
        planner = make_planner(40, augment=augment, mosaic=False, shapes=shapes)
        order = plan_order(40, seed=0, epoch=0, shuffle=False, batch=16)
        for b in range(3):
            plan = planner.plan(order, 0, 16 * b, min(16 * b + 16, 40))
            assert plan.out_hw == tuple(shapes[b])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_validation_plan(dialect):
    planner = make_planner(30, augment=False, dialect=dialect, hyp=ALL_ON)
    order = plan_order(30, seed=0, epoch=0, shuffle=False, batch=16)
    plan = planner.plan(order, 0, 4, 20)
    assert isinstance(plan, LetterboxPlan)
    assert len(plan) == 16
    np.testing.assert_array_equal(plan.index, np.arange(4, 20))
    for row, index in enumerate(plan.index):
        h, w = (int(v) for v in planner.tile_hw[index])
        want = geometry.letterbox(h, w, 320, 320, scaleup=False)
        assert plan.tile_hw[row].tolist() == [h, w]
        assert (plan.box.top[row], plan.box.left[row]) == (want["top"], want["left"])
        offset = want["offset"] if get_dialect(dialect).float_pads else (want["left"], want["top"])
        assert tuple(plan.box.pad[row]) == offset


def test_plans_keep_one_memory_layout():
    """The kernel is compiled once per combination of layouts and types; plans must not multiply them."""
    layouts = set()
    for dialect in DIALECTS:
        for hyp in ({}, ALL_ON, {"mosaic": 0.0, "mixup": 1.0}, {"scale": (0.5, 2.0), "hsv_h": 0.0}):
            plan = make_plan(make_planner(20, dialect=dialect, hyp=hyp), 20)[1]
            layouts.add(tuple((k, v.dtype.str, v.ndim, v.flags.c_contiguous) for k, v in sorted(arrays(plan).items())))
    assert len(layouts) == 1
    assert Hyp(scale=[0.5, 2.0]).scale_range() == (0.5, 2.0)
