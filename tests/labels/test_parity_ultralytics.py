"""Labels equal those of the installed Ultralytics: on real data, and on thousands of generated label files."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastyolo_data.datatypes import DataSpec
from fastyolo_data.errors import LabelError
from fastyolo_data.labels import LabelRules, load_labels, parse_label, resolve_data
from fastyolo_data.labels.columns import Columns

os.environ.setdefault("YOLO_AUTOINSTALL", "False")
os.environ.setdefault("YOLO_OFFLINE", "True")
os.environ.setdefault("YOLO_CONFIG_DIR", "/tmp/yolo")
Path(os.environ["YOLO_CONFIG_DIR"]).mkdir(parents=True, exist_ok=True)
stock_utils = pytest.importorskip("ultralytics.data.utils", reason="ultralytics is not installed")
stock_dataset = pytest.importorskip("ultralytics.data.dataset", reason="ultralytics is not installed")

DATA = Path(__file__).resolve().parents[2].parent / "shared/data"
SETS = [
    ("bccd", "train", "detect"),
    ("bccd", "val", "detect"),
    ("bccd", "test", "detect"),
    ("aquarium", "train", "detect"),
    ("aquarium", "val", "detect"),
    ("neon_trees", "train", "detect"),
    ("neon_trees", "val", "detect"),
    ("coco_ccby_seg", "train", "segment"),
    ("coco_ccby_seg", "train", "detect"),
    ("coco_ccby_seg", "val", "segment"),
    ("hit_uav_obb", "train", "obb"),
    ("hit_uav_obb", "val", "obb"),
    ("pklot_obb", "train", "obb"),
    ("coco_ccby_pose", "train", "pose"),
    ("coco_ccby_pose", "train", "detect"),
    ("coco_ccby_pose", "val", "pose"),
    ("mouse_pose", "train", "pose"),
    ("mouse_pose", "val", "pose"),
]


def _stock_labels(root: Path, spec: DataSpec, task: str, **options: Any) -> list[dict[str, Any]]:
    data = {"names": dict(enumerate(spec.names)), "nc": len(spec.names), "channels": 3, "path": str(root)}
    if spec.kpt_shape:
        data["kpt_shape"] = list(spec.kpt_shape)
    path = [str(s) for s in spec.sources]
    return stock_dataset.YOLODataset(
        img_path=path, data=data, task=task, augment=False, imgsz=64, batch_size=1, **options
    ).labels


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")
@pytest.mark.parametrize(("name", "split", "task"), SETS)
def test_real_data_equals_stock(name: str, split: str, task: str, tmp_path: Path, probe: Any) -> None:
    root = tmp_path / name
    shutil.copytree(DATA / name, root)
    spec = resolve_data(root / f"{name}.yaml", split)
    for table in (load_labels(spec, probe=probe, task=task), load_labels(spec, probe=probe, task=task)):
        _assert_equal(table, _stock_labels(root, spec, task), task)


def _assert_equal(table: Any, stock: list[dict[str, Any]], task: str) -> None:
    assert list(table.im_files) == [lb["im_file"] for lb in stock]
    assert sum(len(lb["cls"]) for lb in stock) == len(table.cls) > 0
    for i, lb in enumerate(stock):
        assert tuple(table.hw[i]) == tuple(lb["shape"])
        want = np.concatenate((lb["cls"], lb["bboxes"]), 1)
        np.testing.assert_array_equal(table.boxes_of(i), want)
        segments = table.segments_of(i)
        assert len(segments) == len(lb["segments"])
        for ours, theirs in zip(segments, lb["segments"], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if task == "pose":
            rows = slice(table.box_offsets[i], table.box_offsets[i + 1])
            np.testing.assert_array_equal(table.keypoints[rows], lb["keypoints"])


@pytest.mark.parametrize("options", [{"single_cls": True}, {"classes": [0, 2]}, {"fraction": 0.3}, {"fraction": 4}])
def test_options_equal_stock(options: dict[str, Any], tmp_path: Path, make: Any, probe: Any) -> None:
    for i in range(13):
        make(f"i{i:02}", "".join(f"{(i + k) % 4} 0.{k + 2}1 0.5 0.125 0.25\n" for k in range(i % 5)))
    names = tuple("abcd")
    spec = DataSpec((tmp_path / "ds/images/train",), names, tmp_path / "ds")
    _assert_equal(load_labels(spec, probe=probe, **options), _stock_labels(tmp_path, spec, "detect", **options), "")


def test_mixed_files_equal_stock(tmp_path: Path, make: Any, probe: Any, caplog: pytest.LogCaptureFixture) -> None:
    make("a", "0 0.5 0.5 0.2 0.2\n")
    make("b", "1 0.1 0.1 0.4 0.1 0.4 0.5\n0 0.2 0.2 0.3 0.2 0.3 0.3 0.2 0.3\n")
    spec = DataSpec((tmp_path / "ds/images/train",), ("x", "y"), tmp_path / "ds")
    _assert_equal(load_labels(spec, probe=probe), _stock_labels(tmp_path, spec, "detect"), "detect")
    assert "1 of 3 boxes have no polygon" in caplog.text


# ------------------------------------------------------------------------------------------- generated label files


def _number(rng: random.Random) -> str:
    """Return a coordinate: mostly ordinary, sometimes on a border, sometimes wrong."""
    if rng.random() < 0.93:
        return f"{rng.random():.{rng.randint(1, 7)}f}"
    odd = ["0", "1", "-0.0", "1.01", "1.0100001", "1.0101", "-0.01", "-0.0099", "-0.02", "1e-3", ".5", "5", "0.5,", "x"]
    return rng.choice(odd)


def _row(rng: random.Random, kind: str, pose: int) -> list[str]:
    cls = (
        rng.choice(["0", "1", "2", "2.0", "3"]) if rng.random() < 0.98 else rng.choice(["4", "-1", "1.5", "cat", "-0"])
    )
    lengths = {"box": 4, "poly": 2 * rng.randint(3, 6), "pose": 4 + pose, "obb": 8, "odd": rng.randint(0, 12)}
    return [cls, *(_number(rng) for _ in range(lengths[kind]))]


def _text(rng: random.Random, pose: int) -> str:
    """Return a label file of one kind of rows, or of several, some of them twice, in a random layout."""
    kind = rng.choice(["box", "box", "poly", "poly", "obb", "pose", "pose"])
    rows = [_row(rng, kind if rng.random() < 0.99 else "odd", pose) for _ in range(rng.randint(0, 6))]
    rows += [rng.choice(rows) for _ in range(rng.choice([0, 0, 0, 1, 2])) if rows]
    if rng.random() < 0.1:
        rows += [_row(rng, rng.choice(["box", "poly"]), pose)]
    rng.shuffle(rows)
    blank, end = rng.choice([" ", "  ", "\t", "\u00a0"]), rng.choice(["\n", "\n", "\r\n", "\r", "\n\n", " \n \n"])
    return rng.choice(["", "", "\ufeff", "\n"]) + end.join(blank.join(r) for r in rows) + rng.choice(["", end])


def _stock_parse(im_file: str, lb_file: Path, text: str, task: str, kpt: tuple[int, int]) -> list[Any] | None:
    lb_file.write_bytes(text.encode())
    result = stock_utils.verify_image_label((im_file, str(lb_file), "", task == "pose", 4, *kpt, False))
    return None if result[0] is None else list(result[1:5])


def _our_parse(text: str, rules: LabelRules) -> tuple[Columns | None, str]:
    try:
        return parse_label(text.encode(), "a.txt", rules)[0], ""
    except LabelError as e:
        return None, str(e)


@pytest.mark.parametrize("kpt", [(0, 0), (5, 2), (2, 3)])
@pytest.mark.parametrize("task", ["detect", "pose", "segment"])
def test_generated_files_equal_stock(task: str, kpt: tuple[int, int], tmp_path: Path, make: Any) -> None:
    if task == "pose" and kpt == (0, 0):
        pytest.skip("a pose set has keypoints")
    rng = random.Random(f"{task}{kpt}")
    im_file, lb_file = str(make("a")), tmp_path / "a.txt"
    rules = LabelRules(task, 4, kpt if kpt[0] else None)
    accepted = rejected = 0
    for _ in range(1200):
        text = _text(rng, kpt[0] * kpt[1])
        stock = _stock_parse(im_file, lb_file, text, task, kpt)
        ours, error = _our_parse(text, rules)
        if ours is None:
            rejected += 1
            box_rows = task == "segment" and "found a box row, expected class and the vertices" in error
            assert stock is None or box_rows, f"{text!r}: {error}"
            continue
        assert stock is not None, f"stock rejects {text!r}"
        accepted += 1
        lb, _, segments, keypoints = stock
        np.testing.assert_array_equal(ours.cls, lb[:, 0])
        np.testing.assert_array_equal(ours.xywhn, lb[:, 1:])
        ends = np.cumsum(ours.npoints)
        assert len(segments) == np.count_nonzero(ours.npoints)
        for end, n, theirs in zip(ends, ours.npoints, segments, strict=False):
            np.testing.assert_array_equal(ours.points[end - n : end], theirs)
        if task == "pose":
            np.testing.assert_array_equal(ours.keypoints, keypoints)
    assert accepted > 100
    assert rejected > 100
