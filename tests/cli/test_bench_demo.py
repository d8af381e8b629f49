"""The generated demo set and the repeated set."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from fastyolo_data.cli.bench.dataset import private_copy, read_source
from fastyolo_data.cli.bench.demo import SHAPES, DemoSpec, make_demo, paint_photo, repeat_dataset
from fastyolo_data.errors import ConfigError

SMALL = DemoSpec(train=4, val=2, width=160, height=120)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by relative name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_photos_are_as_large_as_coco_photos() -> None:
    sizes = []
    for index in range(12):
        im, _ = paint_photo(DemoSpec(), index)
        assert im.shape == (480, 640, 3)
        assert im.dtype == np.uint8
        sizes.append(len(cv2.imencode(".jpg", im, [cv2.IMWRITE_JPEG_QUALITY, 95])[1]))
    assert 150_000 < np.mean(sizes) < 215_000


@pytest.mark.parametrize("index", range(8))
def test_boxes_are_the_bounds_of_what_was_drawn(index: int) -> None:
    spec = DemoSpec()
    im, boxes = paint_photo(spec, index)
    plain, same_boxes = paint_photo(spec, index, shapes=False)
    assert boxes == same_boxes
    changed = np.abs(im.astype(int) - plain).max(2) > 0
    inside = np.zeros_like(changed)
    for cls, x1, y1, x2, y2 in boxes:
        assert 0 <= cls < len(SHAPES)
        assert 0 <= x1 < x2 <= spec.width
        assert 0 <= y1 < y2 <= spec.height
        inside[y1:y2, x1:x2] = True
        # a shape reaches all four sides of its box; where it meets a side, some pixel differs from the background
        box = changed[y1:y2, x1:x2]
        assert box[:, 0].any()
        assert box[:, -1].any()
        assert box[0].any()
        assert box[-1].any()
    assert not (changed & ~inside).any(), "something was drawn outside every box"


def test_demo_is_whole_deterministic_and_cached(tmp_path: Path) -> None:
    first = make_demo(tmp_path / "a", SMALL)
    second = make_demo(tmp_path / "b", SMALL)
    assert files_of(first.parent) == files_of(second.parent)
    spec = yaml.safe_load(first.read_text())
    assert spec["names"] == dict(enumerate(SHAPES))
    for split, number in (("train", SMALL.train), ("val", SMALL.val)):
        images = sorted((first.parent / spec[split]).glob("*.jpg"))
        assert len(images) == number
        for image in images:
            label = np.loadtxt(first.parent / "labels" / split / f"{image.stem}.txt", ndmin=2)
            assert label.shape[1] == 5
            assert label[:, 1:].min() >= 0
            assert label[:, 1:].max() <= 1
    made = first.stat().st_mtime_ns
    assert make_demo(tmp_path / "a", SMALL) == first
    assert first.stat().st_mtime_ns == made, "an existing set must not be made again"
    assert [p.name for p in (tmp_path / "a").iterdir()] == [first.parent.name], "no temporary folder may stay"


def test_another_seed_or_size_is_another_folder(tmp_path: Path) -> None:
    a = make_demo(tmp_path, DemoSpec(train=1, val=0, width=64, height=64, seed=1))
    b = make_demo(tmp_path, DemoSpec(train=1, val=0, width=64, height=64, seed=2))
    assert a.parent != b.parent
    assert files_of(a.parent)["images/train/000000.jpg"] != files_of(b.parent)["images/train/000000.jpg"]


@pytest.mark.parametrize("bad", [{"train": 0}, {"val": -1}, {"width": 8}])
def test_bad_demo_spec(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="demo set"):
        DemoSpec(**bad)


def test_repeat_gives_every_copy_its_name_and_label(tmp_path: Path) -> None:
    demo = make_demo(tmp_path, SMALL).parent
    images = sorted((demo / "images").rglob("*.jpg"))
    labels = [demo / "labels" / p.parent.name / f"{p.stem}.txt" for p in images]
    labels[1].unlink()  # a background image
    out = repeat_dataset(images, labels, tmp_path / "out", 3)
    assert len(out) == len(set(out)) == 3 * len(images)
    for k, path in enumerate(out):
        source, label = images[k % len(images)], labels[k % len(images)]
        copied = tmp_path / "out" / "labels" / f"{path.stem}.txt"
        assert path.read_bytes() == source.read_bytes()
        assert copied.exists() == label.exists()
        assert not label.exists() or copied.read_text() == label.read_text()
        assert path.stat().st_ino != source.stat().st_ino, "a loader that repairs images must not reach the source"


def test_repeat_needs_a_positive_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="repeat"):
        repeat_dataset([], [], tmp_path, 0)


def test_source_joins_splits_and_keeps_to_the_limit(tmp_path: Path) -> None:
    data = str(make_demo(tmp_path, SMALL))
    assert len(read_source(data, ["train"], 100).images) == 4
    both = read_source(data, ["train", "val"], 100)
    assert (len(both.images), both.found, both.names) == (6, 6, SHAPES)
    limited = read_source(data, ["train", "val"], 3)
    assert (len(limited.images), limited.found) == (3, 6)
    copy = yaml.safe_load(Path(private_copy(limited, tmp_path / "copy", 2)).read_text())
    assert len(list(Path(copy["path"], copy["train"]).iterdir())) == 6


def test_folder_without_names_gets_numbered_ones(tmp_path: Path) -> None:
    folder = make_demo(tmp_path, SMALL).parent / "images" / "train"
    source = read_source(str(folder), ["train"], 100)
    assert source.names == tuple(f"class{i}" for i in range(len(source.names)))
    assert 1 <= len(source.names) <= len(SHAPES)
