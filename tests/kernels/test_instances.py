"""Instance kernels against the NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.augment.instances import Instances
from fastyolo_data.kernels.instances import finish_instances, letterbox_instances, place_instances, warp_instances
from tests.reference import geometry
from tests.reference import instances as reference

OUT = (100.0, 130.0)
SIDE = 60.0  # half of the canvas
VIEWS = {
    "same": {},
    "zoom_in": {"scale": 4.0, "translate": (0.4, 0.7)},
    "rotate": {"angle": 31.0, "scale": 0.9},
    "shear": {"shear": (25.0, -12.0)},
    "perspective": {"perspective": (0.002, -0.001), "angle": 7.0},
    "outside": {"translate": (9.0, 9.0)},
}


def labels(rng, n, kind):
    """n normalised labels: boxes, polygons, keypoints, or boxes of which every third has a polygon."""
    out = []
    for k in range(n):
        centre, size = rng.uniform(0.1, 0.9, 2), rng.uniform(0.02, 0.5, 2)
        polygon = np.zeros((0, 2), np.float32)
        if kind == "polygons" or (kind == "mixed" and k % 3 == 0):
            angle = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(3, 40))))
            polygon = np.clip(centre + np.stack((np.cos(angle), np.sin(angle)), 1) * size / 2, 0, 1).astype(np.float32)
        points = np.c_[rng.uniform(0, 1, (3, 2)), rng.integers(0, 3, 3)] if kind == "pose" else np.zeros((0, 3))
        xywhn = np.float32([*centre, *size])
        out.append({"cls": float(k), "xywhn": xywhn, "polygon": polygon, "keypoints": np.float32(points)})
    return out


def columns(images):
    """LabelTable columns of images, each a list of labels."""
    flat = [label for image in images for label in image]
    offsets = np.cumsum([0, *map(len, images)])
    lengths = [len(f["polygon"]) for f in flat]
    point_offsets = np.cumsum([0, *lengths]) if any(lengths) else np.zeros(0, np.int64)
    nkpt = len(flat[0]["keypoints"]) if flat else 0
    return (
        offsets, np.float32([f["cls"] for f in flat]), np.float32([f["xywhn"] for f in flat]).reshape(-1, 4),
        point_offsets, np.concatenate([f["polygon"] for f in flat] or [np.zeros((0, 2), np.float32)]),
        np.float32([f["keypoints"] for f in flat]).reshape(-1, nkpt, 3) if nkpt else np.zeros((0, 0, 3), np.float32),
    )  # fmt: skip


def room(n, points, nkpt):
    """Output arrays that show what was not written."""
    full = (np.full(s, np.nan) for s in ((n,), (n, 4), (points, 2), (n, nkpt, 3)))
    cls, xyxy, points, keypoints = full
    return Instances(cls, xyxy, np.full(n + 1, -1), points, keypoints)


def unpack(out: Instances, n: int) -> list[dict]:
    """The first n instances, as the twins have them."""
    head = out.head(n)
    parts = np.split(head.points, head.offsets[1:-1])
    rows = zip(head.cls, head.xyxy, parts, head.keypoints, strict=True) if n else ()
    return [dict(zip(("cls", "xyxy", "polygon", "keypoints"), row, strict=True)) for row in rows]


def check(got, want, box=1e-9, polygon=1e-4):
    assert [g["cls"] for g in got] == [w["cls"] for w in want]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g["xyxy"], w["xyxy"], atol=box)
        assert len(g["polygon"]) in (len(w["polygon"]), len(w["polygon"]) - 1)  # without the closing point
        np.testing.assert_allclose(g["polygon"], w["polygon"][: len(g["polygon"])], atol=polygon)
        np.testing.assert_allclose(g["keypoints"], w["keypoints"], atol=1e-9)


def scene(kind, mosaic, seed=0):
    """Images of a layer, their sizes and pads, and the canvas."""
    rng = np.random.default_rng(seed)
    n = 4 if mosaic else 1
    images = [labels(rng, int(rng.integers(0, 9)) if mosaic and k == 1 else 8, kind) for k in range(n)]
    hw = rng.uniform(40, 110, (n, 2)).round()
    if not mosaic:
        return images, hw, np.array([[3.0, 7.0]]), hw[0] + 20
    pads = SIDE - hw[:, ::-1] * ((1, 1), (0, 1), (1, 0), (0, 0))
    return images, hw, pads, np.array([2 * SIDE, 2 * SIDE])


def place(images, hw, pads, canvas, mosaic, total):
    cols = columns(images)
    n = len(cols[1])
    longest = int(np.diff(cols[3]).max(initial=0))
    out = room(n, n * (max(total, longest + 1) + 8), cols[5].shape[1])
    stop = place_instances(
        np.arange(len(images)), len(images), hw, pads, cols, canvas.astype(float), mosaic, total, False,
        np.full((3, 2 * longest + 8, 2), np.nan), *out.arrays,
    )  # fmt: skip
    assert np.isnan(out.cls[stop:]).all()
    return out, stop


KINDS = ["boxes", "polygons", "mixed", "pose"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mosaic", [True, False])
@pytest.mark.parametrize("total", [0, 25, 1000])
def test_place(kind, mosaic, total):
    images, hw, pads, canvas = scene(kind, mosaic)
    out, n = place(images, hw, pads, canvas, mosaic, total)
    want = reference.place(list(zip(hw, pads, images, strict=True)), canvas, mosaic, total)
    check(unpack(out, n), want)
    assert n > 3
    assert n < len(columns(images)[1]) or not mosaic  # some lie outside of the canvas


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("visible", [True, False])
def test_warp(kind, view, visible):
    images, hw, pads, canvas = scene(kind, True, seed=3)
    total = 1000 if visible else 0
    out, n = place(images, hw, pads, canvas, True, total)
    before = unpack(out, n)
    head = out.head(n)
    m, scale = geometry.matrix(canvas, OUT, **VIEWS[view]), VIEWS[view].get("scale", 1.0)
    warped = room(n, len(head.points) + 1000 * n, head.keypoints.shape[1])
    stop = warp_instances(
        *head.arrays, m, scale, np.array(OUT), visible, 0 if visible else 1000, False, 100.0, np.empty((3, 8, 2)),
        *warped.arrays,
    )  # fmt: skip
    want = reference.warp(before, m, scale, OUT, visible, 100.0)
    # The twin finds visible bounds by walking along the edges, and clips polygons into them.
    check(unpack(warped, stop), want, box=0.2 if visible else 1e-8, polygon=0.2 if visible else 1e-8)
    assert stop == 0 if view == "outside" else stop > 0 or view == "zoom_in"


@pytest.mark.parametrize("kind", ["polygons", "pose"])
@pytest.mark.parametrize("once", [True, False])
def test_letterbox(kind, once):
    rng = np.random.default_rng(0)
    images = [labels(rng, 3, kind), labels(rng, 5, kind)]
    cols = columns(images)
    out = room(5, 5 * 1000, cols[5].shape[1])
    hw, ratio, pad = np.array([64, 90]), 0.7311, np.array([4.5, 0.0])
    n = letterbox_instances(1, hw, ratio, pad, cols, once, 1000, np.empty((3, 100, 2)), *out.arrays)
    want = [reference.to_pixels(label, hw * ratio, pad, 1000) for label in images[1]]
    check(unpack(out, n), want)


@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("flip_points", [True, False])
def test_finish(flips, flip_points):
    rng = np.random.default_rng(1)
    xyxy = np.array([[10.0, 20.0, 40.0, 90.0]])
    points, keypoints = rng.uniform(0, 100, (7, 2)).astype(np.float32).astype(float), rng.uniform(0, 100, (1, 3, 3))
    flip_idx = np.array([1, 0, 2])
    want_points, want = points.copy(), keypoints[0].copy()
    for on, size, axis in ((flips[0], OUT[0], 1), (flips[1], OUT[1], 0)):
        if on:
            want_points[:, axis] = size - want_points[:, axis]
            want[:, axis] = size - want[:, axis]
            want = want[flip_idx]
    before = points.copy()
    finish_instances(xyxy, points, keypoints, np.array(OUT), -1.0, *flips, flip_points, flip_idx)
    np.testing.assert_allclose(points, want_points if flip_points else before, atol=1e-4)
    np.testing.assert_allclose(keypoints[0], want / (OUT[1], OUT[0], 1), atol=1e-12)
    centre = (1 - 25 / OUT[1] if flips[1] else 25 / OUT[1], 1 - 55 / OUT[0] if flips[0] else 55 / OUT[0])
    np.testing.assert_allclose(xyxy[0], (*centre, 30 / OUT[1], 70 / OUT[0]))
