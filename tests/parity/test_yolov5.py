"""The same random numbers through the installed YOLOv5 7.0 data set and through our plan: pixels, labels, shapes.

YOLOv5 needs old libraries, so it is not part of the [test] extra. In an environment of its own:
pip install "yolov5==7.0.14" "setuptools<81" "numpy<2.3" "pillow<10" ipython, then
python -m pytest tests/parity/test_yolov5.py
"""

from __future__ import annotations

import os
import random
import tempfile
from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.assemble import BatchJob, BatchMemory
from fastyolo_data.augment import Renderer
from fastyolo_data.plan import sample as slots

os.environ.setdefault("YOLOV5_CONFIG_DIR", tempfile.mkdtemp(prefix="yolov5-config-"))
pytest.importorskip("yolov5", reason="parity with YOLOv5 needs yolov5==7.0.14 in an environment of its own")
from yolov5.utils.dataloaders import LoadImagesAndLabels, create_dataloader

SETS = ["boxes", "polygons", "bccd", "coco_ccby_seg"]
HYPS = {
    "default": {},
    "no_mosaic": {"mosaic": 0.0},
    "rotation": {"degrees": 30.0, "flipud": 0.5, "mosaic": 0.5},
    "shear": {"shear": 10.0, "degrees": 5.0},
    "perspective": {"perspective": 0.001, "degrees": 10.0, "mosaic": 0.5},
    "mixup": {"mixup": 1.0},
}


class Script:
    """Feeds the stock code the numbers of one sample's stream, in the order in which it asks."""

    def __init__(self, u: np.ndarray, plan: slots.AugmentPlan, row: int) -> None:
        self.plan, self.row, self.u = plan, row, u
        self.layer = 0
        self.randoms = self._randoms()
        self.uniforms = self._uniforms()

    def _randoms(self):
        yield self.u[slots.GATE]
        if self.plan.counts[self.row, 0] == 4:
            yield self.u[slots.MIX_GATE]
        yield self.u[slots.FLIPUD]
        yield self.u[slots.FLIPLR]

    def _uniforms(self):
        for k in range(2):
            at = k * slots.LAYER
            if self.plan.counts[self.row, k] == 4:
                yield from self.u[at + slots.CENTRE : at + slots.CENTRE + 2]
            yield from self.u[at + slots.PERSPECTIVE : at + slots.PERSPECTIVE + 2]
            yield self.u[at + slots.ANGLE]
            yield self.u[at + slots.SCALE]
            yield from self.u[at + slots.SHEAR : at + slots.SHEAR + 2]
            yield from self.u[at + slots.TRANSLATE : at + slots.TRANSLATE + 2]

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * next(self.uniforms)

    def shuffle(self, indices: list[int]) -> None:
        indices[:] = [int(i) for i in self.plan.tiles[self.row, self.layer]]
        self.layer += 1

    def run(self, stock: LoadImagesAndLabels, index: int):
        patches = {
            (random, "random"): lambda: next(self.randoms),
            (random, "uniform"): self.uniform,
            (random, "choices"): lambda pool, k: [0] * k,
            (random, "shuffle"): self.shuffle,
            (random, "randint"): lambda a, b: 0,
            (np.random, "beta"): lambda a, b: float(self.plan.ratio[self.row]),
            (np.random, "uniform"): lambda a, b, n: 2.0 * self.u[slots.HSV : slots.HSV + 3] - 1.0,
        }
        with ExitStack() as stack:
            for (module, name), function in patches.items():
                stack.enter_context(mock.patch.object(module, name, function))
            return stock[index]


def _samples(data_yaml, numerics: str, hyp: dict, n: int = 12):
    dataset = fy.build_dataset(
        data_yaml, dialect="yolov5", numerics=numerics, hyp=hyp, batch=n, seed=3, verbose=False, imgsz=320
    )
    full = {f: getattr(dataset.hyp, f) for f in dataset.hyp.__dataclass_fields__}
    stock = LoadImagesAndLabels(str(data_yaml.parent / "images" / "train"), 320, n, augment=True, hyp=full)
    assert [str(f) for f in stock.im_files] == dataset.im_files
    order, planner = dataset.order(1), dataset.planner()
    n = min(n, len(dataset))
    plan = planner.plan(order, 1, 0, n)
    u, _ = planner._draw(order, 1, 0, n)
    context = dataset.context()
    job = BatchJob(plan, context, BatchMemory(False, 0), None)
    renderer = Renderer(context)
    for row in range(n):
        job.run(row, renderer)
    images, targets, paths, shapes = job.finish()
    for row in range(n):
        mine = targets[targets[:, 0] == row]
        expected = Script(u[row], plan, row).run(stock, int(plan.index[row]))
        yield (images[row], mine, paths[row], shapes[row]), expected, _flat_boxes(plan, row, dataset)


def _flat_boxes(plan: slots.AugmentPlan, row: int, dataset: fy.LoadImagesAndLabels) -> int:
    """Boxes of a sample without area on the mosaic canvas: YOLOv5 can keep them when the warp turns, we never do."""
    flat = 0
    for k in range(2):
        if plan.counts[row, k] != 4:
            continue
        for index, (h, w), pad in zip(plan.tiles[row, k], plan.label_hw[row, k], plan.label_pads[row, k], strict=True):
            box = dataset.table.boxes_of(int(index))[:, 1:].astype(float)
            low = np.clip((box[:, :2] - box[:, 2:] / 2) * (w, h) + pad, 0, plan.canvas[row, k][::-1])
            high = np.clip((box[:, :2] + box[:, 2:] / 2) * (w, h) + pad, 0, plan.canvas[row, k][::-1])
            flat += int((high <= low).any(1).sum())
    return flat


def _assert_labels(ours, stock, tolerance, flat):
    if len(stock) > len(ours):
        assert len(stock) - len(ours) <= flat
        near = (stock[:, None, 1:] - ours[None, :, 1:]).abs().amax(-1).argmin(0) if len(ours) else []
        stock = stock[near]
    assert ours.shape == stock.shape
    assert ours[:, 1].tolist() == stock[:, 1].tolist()
    assert (ours[:, 2:] - stock[:, 2:]).abs().max() * 320 <= tolerance if len(ours) else True


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_exact_mode_equals_stock(data_yaml, hyp):
    for ours, stock, flat in _samples(data_yaml, "exact", HYPS[hyp]):
        np.testing.assert_array_equal(ours[0].numpy(), stock[0].numpy())
        _assert_labels(ours[1], stock[1], 1e-3, flat)
        assert ours[2] == stock[2]
        assert (ours[3] is None) == (stock[3] is None)
        if ours[3] is not None:
            assert ours[3][0] == stock[3][0]
            np.testing.assert_allclose(ours[3][1][0], stock[3][1][0], rtol=1e-12)
            np.testing.assert_allclose(ours[3][1][1], stock[3][1][1], rtol=1e-12)


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_fast_mode_is_close_to_stock(data_yaml, hyp):
    for ours, stock, flat in _samples(data_yaml, "fast", HYPS[hyp]):
        _assert_labels(ours[1], stock[1], 0.01, flat)
        difference = np.abs(ours[0].numpy().astype(int) - stock[0].numpy())
        # Seams are counted here: at 320 px a tile edge touches up to 1 % of the pixels, mixup doubles that.
        assert difference.mean() <= 1.5
        assert (difference > 8).mean() <= 0.02


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
def test_validation_equals_stock(data_yaml, rect):
    path = str(data_yaml.parent / "images" / "val")
    stock, _ = create_dataloader(path, 320, 5, 32, rect=rect, pad=0.5, workers=0)
    with fy.build_loader(
        data_yaml, split="val", dialect="yolov5", imgsz=320, batch=5, rect=rect, workers=2, verbose=False
    ) as loader:
        for ours, want in zip(loader, stock, strict=True):
            np.testing.assert_array_equal(ours[0].numpy(), want[0].numpy())
            assert ours[1].dtype == want[1].dtype
            np.testing.assert_allclose(ours[1].numpy(), want[1].numpy(), atol=1e-6)
            assert ours[2] == want[2]
            for mine, theirs in zip(ours[3], want[3], strict=True):
                assert mine[0] == theirs[0]
                np.testing.assert_allclose(np.hstack(mine[1]), np.hstack(theirs[1]), rtol=1e-12)
