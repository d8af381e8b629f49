"""Reported faults of loaders (../shared/cases): identifiable images, mosaic colours, odd sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import fastyolo_data as fy
from tests.conftest import SHARED


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = SHARED / "cases" / "make_cases.py"
    if not script.exists():
        pytest.skip(f"{script} is not there; tests/test_loader.py has twins of these tests on generated sets")
    out = tmp_path_factory.mktemp("cases") / "out"
    for name in ("ids_23", "mosaic_colours", "letterbox_odd_sizes"):
        subprocess.run([sys.executable, script, out, "--only", name], check=True, capture_output=True)
    return out


def _image_ids(loader: fy.FastLoader) -> list[str]:
    return [Path(f).stem for batch in loader for f in batch["im_file"]]


def test_every_image_once_and_a_new_order_each_epoch(cases):
    data = cases / "ids_23" / "data.yaml"
    expected = {f"id{i:03d}" for i in range(23)}
    orders = {}
    for workers in (0, 1, 3):
        with fy.build_loader(data, imgsz=32, batch=4, workers=workers, verbose=False) as loader:
            orders[workers] = [_image_ids(loader) for _ in range(3)]
            assert len(loader) == 6
    assert orders[0] == orders[1] == orders[3]
    assert all(set(o) == expected and len(o) == 23 for o in orders[0])
    assert len({tuple(o) for o in orders[0]}) == 3
    with fy.build_loader(data, imgsz=32, batch=4, workers=2, verbose=False, seed=1) as loader:
        assert _image_ids(loader) != orders[0][0]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks(cases, world):
    data = cases / "ids_23" / "data.yaml"
    for split in ("train", "val"):
        every: list[list[list[str]]] = []
        for rank in range(world):
            with fy.build_loader(
                data, split=split, imgsz=32, batch=2, workers=1, rank=rank, world_size=world, verbose=False
            ) as loader:
                passes = []
                for epoch in (0, 1):
                    loader.sampler.set_epoch(epoch)
                    passes.append(_image_ids(loader))
                every.append(passes)
        for epoch in (0, 1):
            images = [i for passes in every for i in passes[epoch]]
            assert len(set(images)) == 23
            assert len(images) - 23 < (world if split == "train" else 1)
        assert (every[0][0] != every[0][1]) == (split == "train")


def test_more_ranks_than_validation_batches(tmp_path, cases):
    lists = tmp_path / "three.txt"
    root = cases / "ids_23" / "images" / "train"
    lists.write_text("\n".join(str(root / f"id{i:03d}.png") for i in range(3)))
    seen = []
    for rank in range(4):
        with fy.build_loader(
            lists, split="val", imgsz=32, batch=2, workers=1, rank=rank, world_size=4, verbose=False
        ) as loader:
            seen.append(_image_ids(loader))
    assert seen == [["id000", "id001"], ["id002"], [], []]


def _tiles_per_sample(batch: dict, palette: np.ndarray) -> list[int]:
    """Number of the set's flat colours in each image of a batch."""
    counts = []
    for image in batch["img"].numpy():
        pixels = image.reshape(3, -1).T[:, None].astype(int)
        nearest = np.abs(pixels - palette[None]).max(-1)
        hits = np.bincount(nearest.argmin(1)[nearest.min(1) <= 2], minlength=len(palette))
        counts.append(int((hits > 20).sum()))
    return counts


@pytest.mark.parametrize("resumed", [False, True])
def test_mosaic_ends_with_the_first_batch_after_it_is_closed(cases, resumed):
    root = cases / "mosaic_colours"
    palette = np.array([cv2.imread(str(root / f"images/train/m{i}.png"))[0, 0, ::-1] for i in range(8)]).astype(int)
    hyp = {"mosaic": 1.0, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0, "scale": 0.1}
    with fy.build_loader(root / "data.yaml", imgsz=64, batch=4, workers=2, hyp=hyp, verbose=False) as loader:
        if not resumed:
            opened = [n for _ in range(2) for batch in loader for n in _tiles_per_sample(batch, palette)]
            assert max(opened) > 1
        loader.set_epoch(2)
        loader.dataset.mosaic = False
        closed = [n for _ in range(2) for batch in loader for n in _tiles_per_sample(batch, palette)]
    assert set(closed) == {1}


@pytest.mark.parametrize("imgsz", [320, 640, 1280])
@pytest.mark.parametrize("rect", [False, True])
def test_odd_sizes(cases, imgsz, rect):
    root = cases / "letterbox_odd_sizes"
    expected = json.loads((root / "expected.json").read_text())
    with fy.build_loader(
        root / "data.yaml", split="val", imgsz=imgsz, rect=rect, batch=2, workers=1, verbose=False
    ) as loader:
        for batch in loader:
            height, width = batch["img"].shape[2:]
            assert height % 32 == width % 32 == 0
            for row, name in enumerate(batch["im_file"]):
                key = next(k for k in expected["shapes"] if name.endswith(k))
                h0, w0 = expected["shapes"][key]
                assert batch["ori_shape"][row] == (h0, w0)
                (gain_h, gain_w), (left, top) = batch["ratio_pad"][row]
                assert left >= 0
                assert top >= 0
                mine = batch["batch_idx"] == row
                cx, cy, w, h = (batch["bboxes"][mine].double().numpy() * (width, height, width, height)).T
                found = np.stack(((cx - left) / gain_w, (cy - top) / gain_h, w / gain_w, h / gain_h), 1)
                want = np.array([b[1:] for b in expected["boxes"][key]]) * (w0, h0, w0, h0)
                order, order_want = np.lexsort(found.round().T), np.lexsort(want.round().T)
                assert np.abs(found[order] - want[order_want]).max() <= 0.51
