"""What people reported about caches of other loaders (cases/reports.md: DSK-01, DSK-02, STO-01, RAM-13, CCH-04)."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data import build_dataset
from tests.store.support import BACKENDS, STORED, digest, select, write_pictures


@pytest.mark.parametrize("backend", STORED)
def test_damaged_between_two_runs(tmp_path: Path, backend: str, monkeypatch) -> None:
    """STO-01: cut to half, then 64 bytes overwritten in the middle; neither is trained on."""
    data = write_pictures(tmp_path, 12)
    cache = select(backend, monkeypatch)
    expected = digest(data, cache="none", workers=0)

    def stored() -> Path:
        return next(p for p in (tmp_path / ".fastyolo").iterdir() if p.suffix in (".tiles", ".lmdb"))

    assert digest(data, cache=cache, workers=2) == expected
    os.truncate(stored(), stored().stat().st_size // 2)
    assert digest(data, cache=cache, workers=2) == expected
    content = bytearray(stored().read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    stored().write_bytes(content)
    assert digest(data, cache=cache, workers=2) == expected
    assert digest(data, cache=cache, workers=2) == expected


@pytest.mark.parametrize("backend", ["none", *BACKENDS])
@pytest.mark.parametrize("content", ["cut", "empty", "junk", "stale"])
def test_npy_files_of_other_loaders_are_not_looked_at(tmp_path: Path, backend: str, content: str, monkeypatch) -> None:
    """DSK-01, DSK-02: arrays beside the images are none of our business, whatever is in them."""
    data = write_pictures(tmp_path, 6)
    expected = digest(data, cache="none", workers=0)
    for image in (tmp_path / "images" / "train").iterdir():
        beside = image.with_suffix(".npy")
        np.save(beside, np.full((40, 60, 3), 7, np.uint8))
        whole = beside.read_bytes()
        beside.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "junk": b"junk", "stale": whole}[content])
    before = {p: p.read_bytes() for p in (tmp_path / "images").rglob("*.npy")}
    assert digest(data, cache=select(backend, monkeypatch), workers=2) == expected
    assert before == {p: p.read_bytes() for p in (tmp_path / "images").rglob("*.npy")}


@pytest.mark.parametrize("backend", BACKENDS)
def test_image_replaced_by_one_of_another_size(tmp_path: Path, backend: str, monkeypatch) -> None:
    """CCH-04: shapes, pixels and cache follow; one file removed and one added keep the number of images."""
    data = write_pictures(tmp_path, 8)
    cache = select(backend, monkeypatch)
    digest(data, cache=cache, workers=2)
    folder = tmp_path / "images" / "train"
    changed, gone, *_ = sorted(folder.glob("*.jpg"))
    cv2.imwrite(str(changed), np.full((50, 90, 3), 200, np.uint8))
    gone.unlink()
    cv2.imwrite(str(folder / "zz.png"), np.full((30, 20, 3), 10, np.uint8))
    assert digest(data, cache=cache, workers=2) == digest(data, cache="none", workers=0)
    dataset = build_dataset(data, cache=cache, imgsz=96, verbose=False)
    where = [Path(f).name for f in dataset.im_files].index(changed.name)
    im, hw0, hw = dataset.load_image(where)
    assert (hw0, hw) == ((50, 90), (54, 96))
    assert abs(int(im.mean()) - 200) < 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_workers(tmp_path: Path, backend: str, monkeypatch) -> None:
    """RAM-13: three epochs with 1, 4 and 8 workers end, and give what workers=0 gives."""
    data = write_pictures(tmp_path, 10)
    cache = select(backend, monkeypatch)
    expected = digest(data, 3, cache="none", workers=0)
    assert [digest(data, 3, cache=cache, workers=w) for w in (1, 4, 8)] == [expected] * 3
