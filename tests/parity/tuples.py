"""Runs our plans through the stock data sets of YOLOv5, YOLOv7 and YOLOv9, whose batches are tuples.

None of them is part of the [test] extra, as they need old libraries. In an environment of its own:
pip install "yolov5==7.0.14" "setuptools<81" "numpy<2.3" "pillow<10" ipython pytest, and for YOLOv7 and YOLOv9
a checkout of their repositories, named by YOLOV7_REPO and YOLOV9_REPO.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.assemble import BatchJob, BatchMemory
from fastyolo_data.augment import Renderer
from fastyolo_data.augment.instances import InstanceRules, place_layer
from fastyolo_data.augment.pastein import SHARE
from fastyolo_data.augment.pasting import _choose
from fastyolo_data.plan import AugmentPlan, paste_order
from fastyolo_data.plan import draws as slots

SIZE = 320


def load_module(variable: str, default: str, name: str) -> ModuleType:
    """Import a module of a checkout whose packages are called `utils` and `models`, apart from those of others.

    Args:
        variable: environment variable that names the checkout.
        default: folder to look at otherwise.
        name: module, such as utils.datasets.
    """
    root = Path(os.environ.get(variable, default))
    if not root.is_dir():
        pytest.skip(f"{root} is not there: {variable} names a checkout of the repository", allow_module_level=True)
    others = _take_modules()
    try:
        with mock.patch.object(sys, "path", [str(root), *sys.path]):
            return importlib.import_module(name)
    except ImportError as e:
        pytest.skip(f"{root} needs libraries that are missing here: {e}", allow_module_level=True)
    finally:
        _take_modules()
        sys.modules.update(others)


def _take_modules() -> dict[str, ModuleType]:
    """Remove and return all modules of packages called `utils` and `models`."""
    return {k: sys.modules.pop(k) for k in list(sys.modules) if k.split(".")[0] in ("utils", "models")}


class Script:
    """Feeds the stock code the numbers of one sample's stream, in the order in which it asks."""

    def __init__(self, u: np.ndarray, plan: AugmentPlan, row: int, dataset: fy.LoadImagesAndLabels) -> None:
        self.plan, self.row, self.u, self.dataset = plan, row, u, dataset
        self.v7 = dataset.dialect.name == "yolov7"
        self.layers = np.flatnonzero(plan.counts[row]).tolist()
        self.mosaics = iter([k for k in self.layers if plan.counts[row, k] > 1])
        self.layer = 0
        self.heads = iter(plan.tiles[row, self.layers[1:], 0].tolist())
        self.spot: Iterator[float] | None = None
        self.randoms = self._randoms()
        self.uniforms = self._uniforms()

    def _randoms(self) -> Iterator[float]:
        yield self.u[slots.GATE]
        if self.plan.counts[self.row, 0] > 1:
            yield from self._nine(0)
            yield self.u[slots.MIX_GATE]
            if self.plan.counts[self.row, 1]:
                yield from self._nine(1)
        if self.v7:
            yield self.u[slots.PASTE_IN]
            for i in range(20 if self.layers[-1] >= slots.SOURCES else 0):
                at = slots.SPOTS + i * slots.SPOT
                self.spot = iter(self.u[at + 1 : at + slots.SPOT])
                yield self.u[at]
            self.spot = None
        yield self.u[slots.FLIPUD]
        yield self.u[slots.FLIPLR]

    def _nine(self, k: int) -> Iterator[float]:
        if self.v7:
            yield self.u[slots.BASE + k * slots.MORE_LAYER + slots.NINE]

    def _uniforms(self) -> Iterator[float]:
        for k, u in enumerate(slots.layer_slots(self.u[None], slots.ROLES)[0]):
            if self.plan.counts.shape[1] <= k or not self.plan.counts[self.row, k]:
                continue
            if self.plan.counts[self.row, k] > 1:
                yield from u[slots.CENTRE : slots.CENTRE + 2]
            if k < 2:
                yield from u[slots.PERSPECTIVE : slots.TRANSLATE + 2]

    def _uniform(self, a: float, b: float) -> float:
        return a + (b - a) * next(self.uniforms)

    def _tiles(self) -> list[int]:
        """The images of the next mosaic."""
        self.layer = next(self.mosaics)
        return self.plan.tiles[self.row, self.layer, : self.plan.counts[self.row, self.layer]].tolist()

    def _choices(self, pool: object, k: int) -> list[int]:
        # Where tiles are shuffled, that comes after the choice.
        partners = [0] * k if self.dataset.dialect.shuffle_tiles else self._tiles()[1:]
        assert len(partners) == k
        return partners

    def _randint(self, a: int, b: int) -> int:
        if self.spot is None:
            return next(self.heads)
        return a + int(next(self.spot) * (b - a + 1))

    def _shuffle(self, indices: list[int]) -> None:
        indices[:] = self._tiles()

    def _sample(self, population: object, k: int) -> list[int]:
        """Objects that copy-paste tries, by their numbers in the stock code, which counts boxes without area too."""
        layer, rules = self.layer, InstanceRules(self.dataset.dialect, "detect", np.zeros(0, np.int64))
        placed = place_layer(self.plan, self.row, layer, self.dataset.table, rules)
        number = np.flatnonzero(~flat_boxes(self.plan, self.row, layer, self.dataset))
        assert len(number) == len(placed)
        if rules.dialect.paste_rule == "spared":
            return number[_choose(placed, self.plan, self.row, layer, rules)].tolist()
        tries = paste_order(self.plan.paste_key[self.row, layer], len(placed))
        share = SHARE if layer >= slots.SOURCES else self.plan.copy_paste
        return number[tries[: round(share * len(placed))]].tolist()

    def run(self, stock: object, index: int) -> tuple:
        """The stock sample of image `index`, which is the plan's row."""
        patches = {
            (random, "random"): lambda: next(self.randoms),
            (random, "uniform"): self._uniform,
            (random, "choices"): self._choices,
            (random, "shuffle"): self._shuffle,
            (random, "sample"): self._sample,
            (random, "randint"): self._randint,
            (np.random, "beta"): lambda a, b: float(self.plan.ratio[self.row]),
            (np.random, "uniform"): lambda a, b, n: 2.0 * self.u[slots.HSV : slots.HSV + 3] - 1.0,
        }
        with ExitStack() as stack:
            for (module, name), function in patches.items():
                stack.enter_context(mock.patch.object(module, name, function))
            return stock[index]  # type: ignore[index]


def make_stock(kind: type, data_yaml: Path, dialect: str, split: str = "train", batch: int = 12, **kw) -> object:
    """A stock data set; its label cache is not used again, as YOLOv7 trusts any and newer torch refuses it."""
    (data_yaml.parent / "labels" / f"{split}.cache").unlink(missing_ok=True)
    hyp = {k: getattr(fy.Hyp(), k) for k in fy.Hyp.__dataclass_fields__} | kw.pop("hyp", {})
    return kind(str(data_yaml.parent / "images" / split), SIZE, batch, hyp=hyp, **kw)


def samples(kind: type, data_yaml: Path, dialect: str, numerics: str, hyp: dict, n: int = 12, task: str = "detect"):
    """Yield (ours, stock, boxes without area) for the first samples of an epoch; ours and stock are tuples of 4 or 5.

    Task segment: `kind` is a data set with masks, in the form that hyp's mask_ratio and overlap_mask ask for.
    """
    dataset = fy.build_dataset(
        data_yaml, dialect=dialect, numerics=numerics, hyp=hyp, batch=n, seed=3, verbose=False, imgsz=SIZE, task=task
    )
    stock = make_stock(kind, data_yaml, dialect, augment=True, hyp=hyp, **mask_options(dataset))
    files = stock.im_files if hasattr(stock, "im_files") else stock.img_files
    assert [str(f) for f in files] == dataset.im_files
    order, planner = dataset.order(1), dataset.planner()
    n = min(n, len(dataset))
    plan = planner.plan(order, 1, 0, n)
    u, _ = planner._draw(order, 1, 0, n)
    context = dataset.context()
    job = BatchJob(plan, context, BatchMemory(False, 0), None)
    renderer = Renderer(context)
    for row in range(n):
        job.run(row, renderer)
    images, targets, paths, shapes, *masks = job.finish()
    for row in range(n):
        mine = targets[targets[:, 0] == row]
        part = [m[row : row + 1] if dataset.hyp.overlap_mask else m[targets[:, 0] == row] for m in masks]
        expected = Script(u[row], plan, row, dataset).run(stock, int(plan.index[row]))
        flat = sum(int(flat_boxes(plan, row, k, dataset).sum()) for k in range(2) if plan.counts[row, k] > 1)
        yield (images[row], mine, paths[row], shapes[row], *part), expected, flat


def mask_options(dataset: fy.LoadImagesAndLabels) -> dict:
    """Arguments of a stock data set with masks; none for one without."""
    if dataset.config.task == "detect":
        return {}
    return {"downsample_ratio": dataset.hyp.mask_ratio, "overlap": dataset.hyp.overlap_mask}


def flat_boxes(plan: AugmentPlan, row: int, k: int, dataset: fy.LoadImagesAndLabels) -> np.ndarray:
    """Which labels of a mosaic have no area on its canvas: the stock code can keep them when the warp turns."""
    flat = [np.zeros(0, bool)]
    for t in range(plan.counts[row, k]):
        (h, w), pad = plan.label_hw[row, k, t], plan.label_pads[row, k, t]
        box = dataset.table.boxes_of(int(plan.tiles[row, k, t]))[:, 1:].astype(float)
        low = np.clip((box[:, :2] - box[:, 2:] / 2) * (w, h) + pad, 0, plan.canvas[row, k][::-1])
        high = np.clip((box[:, :2] + box[:, 2:] / 2) * (w, h) + pad, 0, plan.canvas[row, k][::-1])
        flat.append((high <= low).any(1))
    return np.concatenate(flat)


def assert_labels(ours, stock, tolerance: float, flat: int) -> None:
    """Same classes in the same order, boxes within a number of pixels; stock may have `flat` boxes more."""
    if len(stock) > len(ours):
        assert len(stock) - len(ours) <= flat
        near = (stock[:, None, 1:] - ours[None, :, 1:]).abs().amax(-1).argmin(0) if len(ours) else []
        stock = stock[near]
    assert ours.shape == stock.shape
    assert ours[:, 1].tolist() == stock[:, 1].tolist()
    assert (ours[:, 2:] - stock[:, 2:]).abs().max() * SIZE <= tolerance if len(ours) else True


def assert_exact(kind: type, data_yaml: Path, dialect: str, hyp: dict, unequal: float = 0.0) -> None:
    """numerics="exact": pixels equal but for a share of them, labels within 1e-3 pixel, paths and shapes equal."""
    for ours, stock, flat in samples(kind, data_yaml, dialect, "exact", hyp):
        if unequal:
            assert (ours[0] != stock[0]).float().mean() <= unequal
        else:
            np.testing.assert_array_equal(ours[0].numpy(), stock[0].numpy())
        assert_labels(ours[1], stock[1], 1e-3, flat)
        assert ours[2] == stock[2]
        assert (ours[3] is None) == (stock[3] is None)
        if ours[3] is not None:
            assert ours[3][0] == stock[3][0]
            np.testing.assert_allclose(ours[3][1][0], stock[3][1][0], rtol=1e-12)
            np.testing.assert_allclose(ours[3][1][1], stock[3][1][1], rtol=1e-12)


def assert_close(kind: type, data_yaml: Path, dialect: str, hyp: dict) -> None:
    """numerics="fast": pixels close, labels within 0.01 pixel."""
    for ours, stock, flat in samples(kind, data_yaml, dialect, "fast", hyp):
        assert_labels(ours[1], stock[1], 0.01, flat)
        difference = np.abs(ours[0].numpy().astype(int) - stock[0].numpy())
        # Seams are counted here: at 320 px a tile edge touches up to 1 % of the pixels, mixup doubles that.
        assert difference.mean() <= 1.5
        assert (difference > 8).mean() <= 0.02


def assert_validation(kind: type, data_yaml: Path, dialect: str, rect: bool, batch: int = 5) -> None:
    """Validation batches equal those of the stock data set, with pad 0.5 as in stock validation."""
    stock = make_stock(kind, data_yaml, dialect, "val", batch, rect=rect, pad=0.5)
    n = len(stock)  # type: ignore[arg-type]
    with fy.build_loader(
        data_yaml, split="val", dialect=dialect, imgsz=SIZE, batch=batch, rect=rect, workers=2, verbose=False
    ) as loader:
        starts = range(0, n, batch)
        for ours, start in zip(loader, starts, strict=True):
            want = kind.collate_fn([stock[i] for i in range(start, min(start + batch, n))])  # type: ignore[index]
            np.testing.assert_array_equal(ours[0].numpy(), want[0].numpy())
            assert ours[1].dtype == want[1].dtype
            np.testing.assert_allclose(ours[1].numpy(), want[1].numpy(), atol=1e-6)
            assert ours[2] == want[2]
            for mine, theirs in zip(ours[3], want[3], strict=True):
                assert mine[0] == theirs[0]
                np.testing.assert_allclose(np.hstack(mine[1]), np.hstack(theirs[1]), rtol=1e-12)


def assert_segments(kind: type, data_yaml: Path, dialect: str, hyp: dict) -> None:
    """Training samples with masks: pixels equal, labels within 1e-3 pixel, masks equal but for a few border pixels."""
    seen = unequal = 0
    for ours, stock, flat in samples(kind, data_yaml, dialect, "exact", hyp, task="segment"):
        np.testing.assert_array_equal(ours[0].numpy(), stock[0].numpy())
        assert_labels(ours[1], stock[1], 1e-3, flat)
        assert (ours[3] is None) == (stock[3] is None)
        if len(ours[1]) == len(stock[1]):  # an object that only the stock code keeps shifts the numbers of the others
            assert ours[4].shape == stock[4].shape
            # A vertex that falls on a whole pixel can be rounded to either side: other order of the same operations.
            unequal += int((ours[4].float() != stock[4].float()).sum())
            seen += len(ours[1])
    assert seen > 20
    assert unequal <= 0.2 * seen


def assert_segment_validation(kind: type, data_yaml: Path, dialect: str, rect: bool, hyp: dict) -> None:
    """Validation batches with masks equal those of the stock data set."""
    options = {"task": "segment", "dialect": dialect, "imgsz": SIZE, "batch": 5, "rect": rect, "hyp": hyp}
    with fy.build_loader(data_yaml, split="val", workers=2, verbose=False, **options) as loader:
        more = mask_options(loader.dataset)
        stock = make_stock(kind, data_yaml, dialect, "val", 5, rect=rect, pad=0.5, **more)
        n = len(stock)  # type: ignore[arg-type]
        for ours, start in zip(loader, range(0, n, 5), strict=True):
            want = kind.collate_fn([stock[i] for i in range(start, min(start + 5, n))])  # type: ignore[index]
            assert len(ours) == len(want) == 5
            np.testing.assert_array_equal(ours[0].numpy(), want[0].numpy())
            np.testing.assert_allclose(ours[1].numpy(), want[1].numpy(), atol=1e-6)
            assert ours[2] == want[2]
            assert ours[4].dtype == want[4].dtype
            np.testing.assert_array_equal(ours[4].numpy(), want[4].numpy())
