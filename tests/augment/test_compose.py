"""Composed canvases: mosaics of nine, and objects that copy-paste adds."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.assemble import BatchJob, BatchMemory
from fastyolo_data.augment import Renderer
from fastyolo_data.augment.compose import GREY, CanvasMemory, compose_canvas
from fastyolo_data.augment.cutmix import cut_in
from fastyolo_data.augment.instances import Instances
from fastyolo_data.augment.pasting import CanvasPastes, make_instances
from fastyolo_data.plan import paste_order
from tests.conftest import paint
from tests.plan.planners import make_plan, make_planner
from tests.reference.warp import pack

RNG = np.random.default_rng(0)


def _tiles(plan, row):
    return [paint(RNG, int(h), int(w)) for h, w in plan.tile_hw[row, 0, : plan.counts[row, 0]]]


def test_later_tiles_cover_earlier_ones():
    _, plan = make_plan(make_planner(60, imgsz=64, dialect="yolov7"), 60)
    rows = np.flatnonzero(plan.counts[:, 0] == 9)
    memory, seen = CanvasMemory(), 0
    for row in rows:
        tiles = _tiles(plan, row)
        canvas = compose_canvas(plan, row, 0, [pack(t) for t in tiles], None, memory)
        want = np.full((3 * 64, 3 * 64, 3), 114, np.uint8)  # wide enough for every tile: the origin moves by 64
        for tile, (x, y) in zip(tiles, plan.pads[row, 0].astype(int), strict=True):
            for dy, dx in np.ndindex(*tile.shape[:2]):
                if 0 <= y + dy < 128 and 0 <= x + dx < 128:
                    want[y + dy, x + dx] = tile[dy, dx]
        np.testing.assert_array_equal(canvas & 0xFFFFFF, pack(want[:128, :128]) & 0xFFFFFF)
        seen += (canvas == GREY).any()
    assert len(rows) > 3
    assert seen > 0


@pytest.mark.parametrize("mirrored", [True, False])
def test_pasted_pixels_are_those_of_a_mask_of_the_whole_canvas(mirrored):
    _, plan = make_plan(make_planner(8, imgsz=96), 8)
    memory = CanvasMemory()
    for row in range(8):
        tiles = [pack(t) for t in _tiles(plan, row)]
        before = compose_canvas(plan, row, 0, tiles, None, CanvasMemory())
        polygons = []
        for _ in range(5):
            centre, radius = RNG.uniform(0, 192, 2), RNG.uniform(3, 60)
            angle = np.sort(RNG.uniform(0, 2 * np.pi, 9))
            points = centre + radius * np.stack((np.cos(angle), np.sin(angle)), 1)
            polygons.append(np.clip(points, 0, 192).astype(np.int32))
        canvas = compose_canvas(plan, row, 0, tiles, CanvasPastes(tuple(polygons), mirrored), memory)
        mask = np.zeros((192, 192), np.uint8)
        for polygon in polygons:
            cv2.drawContours(mask, [polygon], -1, 1, cv2.FILLED)
        mask = mask if mirrored else mask[:, ::-1]
        np.testing.assert_array_equal(canvas, np.where(mask > 0, before[:, ::-1], before))
        assert (canvas != before).any()


def test_objects_outside_the_canvas_paste_nothing():
    _, plan = make_plan(make_planner(1, imgsz=32), 1)
    tiles = [pack(t) for t in _tiles(plan, 0)]
    line = np.array([[64, 3], [64, 60], [64, 30]], np.int32)
    canvas = compose_canvas(plan, 0, 0, tiles, CanvasPastes((line,), True), CanvasMemory())
    np.testing.assert_array_equal(canvas, compose_canvas(plan, 0, 0, tiles, None, CanvasMemory()))


def test_order_is_random_but_fixed():
    first = np.zeros((7, 7), int)
    for key in range(7000):
        order = paste_order(np.uint64(key), 7)
        first[np.arange(7), order] += 1
        assert sorted(order) == list(range(7))
    assert (((first - 1000) ** 2 / 1000).sum(1) < 22.5).all()  # chi-square, 6 degrees of freedom, p = 0.001
    np.testing.assert_array_equal(paste_order(np.uint64(5), 9), paste_order(np.uint64(5), 9))
    assert paste_order(np.uint64(2**64 - 1), 0).shape == (0,)


def _batch(data_yaml, dialect, numerics="fast", **hyp):
    dataset = fy.build_dataset(
        data_yaml, dialect=dialect, numerics=numerics, hyp=hyp, batch=12, imgsz=128, seed=1, verbose=False
    )
    context = dataset.context()
    job = BatchJob(dataset.planner().plan(dataset.order(0), 0, 0, 12), context, BatchMemory(False, 0), None)
    renderer = Renderer(context)
    for row in RNG.permutation(12):
        job.run(int(row), renderer)
    batch = job.finish()
    if isinstance(batch, dict):
        return batch["img"].numpy(), np.concatenate((batch["batch_idx"][:, None], batch["cls"], batch["bboxes"]), 1)
    return batch[0].numpy(), batch[1].numpy()


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5", "yolov7", "yolov9"])
def test_copy_paste_adds_objects_and_moves_nothing_else(generated_polygons, dialect):
    plain, without = _batch(generated_polygons, dialect, copy_paste=0.0, mixup=0.4)
    pasted, labels = _batch(generated_polygons, dialect, copy_paste=0.7, mixup=0.4)
    exact, same = _batch(generated_polygons, dialect, "exact", copy_paste=0.7, mixup=0.4)
    np.testing.assert_array_equal(labels, same)
    difference = np.abs(pasted.astype(int) - exact)
    assert difference.mean() < 1.5
    assert (difference > 8).mean() < 0.03
    assert len(labels) > 1.1 * len(without)
    changed = [(a != b).any() for a, b in zip(plain, pasted, strict=True)]
    assert any(changed)
    for row in range(12):
        old, new = without[without[:, 0] == row], labels[labels[:, 0] == row]
        assert len(new) >= len(old)
        assert all(np.abs(new - box).max(1).min() < 1e-5 for box in old)
        # Pasting nothing changes nothing: pixels differ only where labels were added, but for tiles' seams.
        if len(new) == len(old):
            assert (np.abs(plain[row].astype(int) - pasted[row]) > 8).mean() < 0.01


def test_copy_paste_needs_outlines(generated_boxes):
    plain, without = _batch(generated_boxes, "yolov5", copy_paste=0.0)
    pasted, labels = _batch(generated_boxes, "yolov5", copy_paste=1.0)
    np.testing.assert_array_equal(plain, pasted)
    np.testing.assert_array_equal(without, labels)


@pytest.mark.parametrize(
    "hyp", [{"cutmix": 1.0}, {"copy_paste": 0.9, "copy_paste_mode": "mixup"}, {"cutmix": 0.7, "copy_paste": 0.7}]
)
def test_what_is_put_together_after_the_warp(generated_polygons, hyp):
    hyp = {"mosaic": 0.5, "mixup": 0.4, "flipud": 0.5, **hyp}
    _, without = _batch(generated_polygons, "ultralytics", mosaic=0.5, mixup=0.4, flipud=0.5)
    fast, labels = _batch(generated_polygons, "ultralytics", **hyp)
    exact, same = _batch(generated_polygons, "ultralytics", "exact", **hyp)
    np.testing.assert_array_equal(labels, same)
    assert len(labels) > len(without)
    difference = np.abs(fast.astype(int) - exact)
    assert difference.mean() < 1.5
    assert (difference > 8).mean() < 0.03


def _instances(xyxy, polygons: bool) -> Instances:
    xyxy = np.array(xyxy, float).reshape(-1, 4)
    n = len(xyxy)
    corners = xyxy[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 2) if polygons else np.zeros((0, 2))
    return Instances(np.arange(n, dtype=float), xyxy, np.arange(n + 1) * 4 * polygons, corners, np.zeros((n, 0, 3)))


@pytest.mark.parametrize("oriented", [False, True])
def test_cutmix_takes_a_free_area_and_crops_what_lies_in_it(oriented):
    labels = _instances([[0, 0, 40, 40]], True)
    other = _instances([[50, 50, 90, 70], [0, 0, 30, 30], [95, 95, 200, 200], [78, 78, 79, 79]], True)
    areas = np.array([[30, 30, 80, 80], [60, 40, 80, 90], [41, 0, 42, 1]])  # the first one touches a label
    out, area = cut_in(labels, other, areas, 0.3, oriented)
    assert area == (60, 40, 80, 90)
    assert out.cls.tolist() == [0, 0, 3]
    np.testing.assert_allclose(out.xyxy, [[0, 0, 40, 40], [60, 50, 80, 70], [78, 78, 79, 79]])
    points = out.points[out.offsets[1] : out.offsets[2]]
    np.testing.assert_allclose([points.min(0), points.max(0)], [[60, 50], [80, 70]], atol=1e-9)
    assert cut_in(labels, other, areas, 0.9, oriented) == (labels, None)  # nothing lies in the last area
    assert cut_in(labels, other, areas[:1], 0.0, oriented) == (labels, None)


def test_cutmix_without_polygons_wants_a_tenth_of_a_box():
    areas = np.array([[60, 40, 80, 90]])
    other = _instances([[0, 40, 61, 90], [50, 40, 62, 90]], False)
    out, _ = cut_in(_instances([[0, 0, 9, 9]], False), other, areas, 0.0, False)
    assert out.cls.tolist() == [0, 1]  # 1/61 of the first one lies in the area
    out, _ = cut_in(_instances([[0, 0, 9, 9]], True), other, areas, 0.0, False)
    assert out.cls.tolist() == [0, 0, 1]


HYP_IN = {"paste_in": 1.0, "flipud": 0.5, "mixup": 0.3, "mosaic": 0.7}


def test_paste_in_adds_boxes_where_it_changes_the_picture(generated_polygons):
    for numerics in ("fast", "exact"):
        plain, without = _batch(generated_polygons, "yolov7", numerics, **HYP_IN | {"paste_in": 0.0})
        pasted, labels = _batch(generated_polygons, "yolov7", numerics, **HYP_IN)
        assert len(labels) > len(without) + 5
        for row in range(12):
            old, new = without[without[:, 0] == row], labels[labels[:, 0] == row]
            np.testing.assert_allclose(new[: len(old)], old, atol=1e-6)
            free = np.ones((128, 128), bool)
            for x, y, w, h in new[len(old) :, 2:] * 128:
                x0, y0, x1, y1 = (round(float(v)) for v in (x - w / 2, y - h / 2, x + w / 2, y + h / 2))
                assert (pasted[row] != plain[row]).any(0)[y0:y1, x0:x1].mean() > 0.2
                free[y0:y1, x0:x1] = False
            np.testing.assert_array_equal(pasted[row][:, free], plain[row][:, free])


def test_paste_in_decodes_only_what_it_pastes(generated_polygons, generated_boxes):
    for yaml, acts in ((generated_polygons, True), (generated_boxes, False)):
        dataset = fy.build_dataset(
            yaml, dialect="yolov7", hyp={"paste_in": 1.0, "mosaic": 0.0}, batch=12, imgsz=160, verbose=False
        )
        plan, pasted = dataset.planner().plan(dataset.order(0), 0, 0, 12), 0
        for row in range(12):
            context = dataset.context()
            Renderer(context).run(plan, row, np.empty((3, 160, 160), np.uint8))
            inserts = make_instances(plan, row, dataset.table, dataset.rules)[1].inserts
            assert context.timer.count <= 1 + len(inserts)  # of up to 33 planned pictures
            pasted += len(inserts)
        assert (pasted > 0) == acts
