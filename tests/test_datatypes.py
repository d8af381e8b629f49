"""Columns: packed strings and label tables."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fastyolo_data.datatypes import LabelTable, PackedStrings

NAMES = ["a.jpg", "", "ünïcode.jpg", "图像.jpg", "🐈" * 3, "bad \udcff\udc80 byte", "new\nline", "\x00nul", "x" * 5000]


def test_strings_come_back():
    packed = PackedStrings.pack(iter(NAMES))
    assert len(packed) == len(NAMES)
    assert list(packed) == NAMES
    assert packed[0] == "a.jpg"
    assert packed[-1] == NAMES[-1]
    assert packed[np.int64(3)] == NAMES[3]
    assert packed[2:7:2] == NAMES[2:7:2]
    assert packed[::-1] == NAMES[::-1]
    assert packed.index("图像.jpg") == 3
    assert "a.jpg" in packed
    assert "a" not in packed


@pytest.mark.parametrize("names", [[], [""], ["", "", ""]])
def test_empty_lists_and_empty_strings(names):
    packed = PackedStrings.pack(names)
    assert list(packed) == names
    assert list(packed.take([])) == []


@pytest.mark.parametrize("i", [9, -10, 1 << 40])
def test_out_of_range(i):
    packed = PackedStrings.pack(NAMES)
    with pytest.raises(IndexError, match="out of range for 9"):
        packed[i]


def test_take():
    packed = PackedStrings.pack(NAMES)
    assert list(packed.take([5, 0, 5, 8])) == [NAMES[i] for i in (5, 0, 5, 8)]
    assert list(packed.take(np.array([], np.int64))) == []


def test_packed_strings_travel_between_processes():
    assert list(pickle.loads(pickle.dumps(PackedStrings.pack(NAMES)))) == NAMES


def make_table(n: int, seed: int = 0, polygons: bool = True, keypoints: bool = False) -> LabelTable:
    """A table with 0 to 5 boxes per image; some boxes without polygon."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, n)
    m = int(counts.sum())
    vertices = rng.integers(0, 9, m) * (rng.random(m) < 0.8) if polygons else np.zeros(0, int)
    offsets = np.r_[0, np.cumsum(vertices)].astype(np.int64) if polygons else np.zeros(0, np.int64)
    return LabelTable(
        im_files=PackedStrings.pack(f"/data/images/{i:012d}.jpg" for i in range(n)),
        hw=rng.integers(10, 999, (n, 2)).astype(np.int32),
        file_size=rng.integers(1, 1 << 40, n),
        mtime_ns=rng.integers(1, 1 << 60, n),
        box_offsets=np.r_[0, np.cumsum(counts)].astype(np.int64),
        cls=rng.integers(0, 80, m).astype(np.float32),
        xywhn=rng.random((m, 4), np.float32),
        point_offsets=offsets,
        points=rng.random((int(vertices.sum()), 2), np.float32),
        keypoints=rng.random((m, 17, 3), np.float32) if keypoints else np.zeros((0, 0, 3), np.float32),
        skipped={"/data/images/broken.jpg": "because"},
    )


def image(table: LabelTable, i: int) -> tuple:
    """Everything about image i, in plain Python."""
    lo, hi = (int(v) for v in table.box_offsets[i : i + 2])
    polygons = []
    if len(table.point_offsets):
        polygons = [table.points[table.point_offsets[j] : table.point_offsets[j + 1]].tolist() for j in range(lo, hi)]
    return (
        table.im_files[i], table.hw[i].tolist(), int(table.file_size[i]), int(table.mtime_ns[i]),
        table.cls[lo:hi].tolist(), table.xywhn[lo:hi].tolist(), polygons,
        table.keypoints[lo:hi].tolist() if len(table.keypoints) else [],
    )  # fmt: skip


@pytest.mark.parametrize("keypoints", [False, True])
@pytest.mark.parametrize("polygons", [False, True])
@pytest.mark.parametrize("indices", [[], [0], [19, 3, 3, 0], list(range(20)), np.arange(20)[::-1], [7] * 40])
def test_take_of_images(indices, polygons, keypoints):
    table = make_table(20, 3, polygons, keypoints)
    taken = table.take(indices)
    assert len(taken) == len(indices)
    for k, i in enumerate(indices):
        assert image(taken, k) == image(table, int(i))
    assert taken.skipped == table.skipped
    assert taken.has_polygons == polygons
    assert (len(taken.box_offsets), taken.box_offsets[0]) == (len(indices) + 1, 0)
    assert taken.box_offsets[-1] == len(taken.cls) == len(taken.xywhn)
    if polygons:
        assert (len(taken.point_offsets), taken.point_offsets[-1]) == (len(taken.cls) + 1, len(taken.points))
    for name in ("hw", "file_size", "mtime_ns", "box_offsets", "cls", "xywhn", "point_offsets", "points", "keypoints"):
        assert getattr(taken, name).dtype == getattr(table, name).dtype, name


@pytest.mark.parametrize("keypoints", [False, True])
@pytest.mark.parametrize("polygons", [False, True])
@pytest.mark.parametrize("every", [1, 2, 3, 10_000])
def test_keep_some_boxes(every, polygons, keypoints):
    table = make_table(20, 3, polygons, keypoints)
    rows = np.arange(len(table.cls)) % every == 0
    kept = table.keep(rows)
    assert (len(kept), kept.box_offsets[-1]) == (20, rows.sum())
    for i in range(20):
        mine = rows[table.box_offsets[i] : table.box_offsets[i + 1]]
        for before, after in zip(image(table, i), image(kept, i), strict=True):
            per_box = isinstance(before, list) and len(before) == len(mine) and before != table.hw[i].tolist()
            assert after == ([b for b, k in zip(before, mine, strict=True) if k] if per_box else before)
    for name in ("box_offsets", "cls", "xywhn", "point_offsets", "points", "keypoints"):
        assert getattr(kept, name).dtype == getattr(table, name).dtype, name


def test_boxes_and_segments_of_an_image():
    table = make_table(30)
    for i in range(30):
        boxes, segments = table.boxes_of(i), table.segments_of(i)
        _, _, _, _, cls, xywhn, polygons, _ = image(table, i)
        assert boxes.dtype == np.float32
        assert boxes.shape == (len(cls), 5)
        np.testing.assert_array_equal(boxes[:, 0], cls)
        assert boxes[:, 1:].tolist() == xywhn
        assert [s.tolist() for s in segments] == (polygons if any(polygons) else [])


def test_what_is_handed_out_is_a_copy():
    table = make_table(30)
    before = table.cls.copy(), table.xywhn.copy(), table.points.copy()
    for i in range(30):
        table.boxes_of(i)[:] = -1
        for segment in table.segments_of(i):
            segment[:] = -1
    taken = table.take(range(30))
    taken.cls[:] = -1
    taken.points[:] = -1
    for a, b in zip(before, (table.cls, table.xywhn, table.points), strict=True):
        np.testing.assert_array_equal(a, b)


def test_memory_per_image():
    """Detection labels with paths of 28 characters: no Python object per image or box."""
    n = 20_000
    table = make_table(n, polygons=False)
    size = sum(getattr(table, f).nbytes for f in vars(table) if f not in ("im_files", "skipped"))
    size += table.im_files.blob.nbytes + table.im_files.offsets.nbytes
    assert size < 200 * n + 20 * len(table.cls)
    assert size < 75 * n + 20.1 * len(table.cls)  # what it is: path 28 + 8, size 8, time 8, shape 8, offset 8
