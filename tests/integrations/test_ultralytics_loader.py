"""Data set and loader of the Ultralytics drop-in against the installed package."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("ultralytics", reason="the drop-in needs the package: pip install ultralytics")

from ultralytics.data.build import ContiguousDistributedSampler

from fastyolo_data.errors import ConfigError
from fastyolo_data.integrations.options import FastOptions
from fastyolo_data.integrations.ultralytics import FastDataLoader, FastYOLODataset
from fastyolo_data.plan import plan_order, share_size
from tests.conftest import write_set
from tests.integrations.ultralytics_sets import Arguments, assert_same_batches

SETS = [
    ("detect", "boxes"), ("detect", "polygons"), ("detect", "bccd"), ("detect", "coco_ccby_seg"),
    ("segment", "polygons"), ("segment", "coco_ccby_seg"), ("pose", "pose"), ("pose", "coco_ccby_pose"),
    ("pose", "mouse_pose"), ("obb", "obb"), ("obb", "hit_uav_obb"), ("obb", "pklot_obb"),
]  # fmt: skip
each_set = pytest.mark.parametrize(("task", "data_yaml"), SETS, indirect=["data_yaml"])
PLAIN = {"translate": 0.0, "scale": 0.0, "fliplr": 0.0, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}


@pytest.mark.parametrize("rect", [False, True])
@each_set
def test_validation_batches_equal_stock(task, data_yaml, rect):
    args = Arguments(data_yaml, task=task)
    ours, stock = args.dataset("val", rect=rect), args.dataset("val", stock=True, rect=rect)
    assert isinstance(ours, FastYOLODataset)
    loader = args.loader(ours)
    assert assert_same_batches(loader, args.loader(stock, stock=True)) == len(loader) == -(-len(stock) // 5)
    assert loader.stats()["samples"] == len(stock)
    loader.close()


@pytest.mark.parametrize(
    "options",
    [{}, {"rect": True}, {"classes": [0, 2]}, {"classes": [1], "rect": True}, {"single_cls": True}, {"fraction": 0.4}],
)
@each_set
def test_labels_and_files_equal_stock(task, data_yaml, options):
    options = dict(options)
    rect = options.pop("rect", False)
    args = Arguments(data_yaml, task=task, **options)
    ours, stock = args.dataset("train", rect=rect), args.dataset("train", stock=True, rect=rect)
    assert ours.im_files == stock.im_files
    assert len(ours) == len(stock)
    for mine, theirs in zip(ours.labels, stock.labels, strict=True):
        assert mine.keys() == theirs.keys()
        for key in ("im_file", "normalized", "bbox_format", "shape"):
            assert mine.get(key) == theirs.get(key)
        assert (mine["keypoints"] is None) == (theirs["keypoints"] is None) == (task != "pose")
        for key in ("cls", "bboxes", "keypoints")[: 3 if task == "pose" else 2]:
            assert (mine[key].dtype, mine[key].shape) == (theirs[key].dtype, theirs[key].shape)
            np.testing.assert_allclose(mine[key], theirs[key], rtol=0, atol=1e-6)
        assert len(mine["segments"]) == len(theirs["segments"])
        for a, b in zip(mine["segments"], theirs["segments"], strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    if rect:
        np.testing.assert_array_equal(ours.batch_shapes, stock.batch_shapes)
        np.testing.assert_array_equal(ours.batch, stock.batch)


@pytest.mark.parametrize(
    ("task", "data_yaml"), [("detect", "boxes"), ("segment", "polygons"), ("pose", "pose"), ("obb", "obb")],
    indirect=["data_yaml"],
)  # fmt: skip
def test_one_sample_has_the_stock_form(task, data_yaml):
    args = Arguments(data_yaml, task=task)
    for mode in ("train", "val"):
        ours, stock = args.dataset(mode), args.dataset(mode, stock=True)
        mine, theirs = ours[1], stock[1]
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            if isinstance(value, torch.Tensor):
                assert (mine[key].dtype, mine[key].shape[1:]) == (value.dtype, value.shape[1:]), key
        batch = ours.collate_fn([ours[0], ours[1]])  # the stock function: it takes our samples
        assert batch["img"].shape[0] == 2
        assert len(batch["cls"]) == len(batch["batch_idx"])
    with pytest.raises(IndexError):
        ours[len(ours)]


def _train_loader(yaml: Path, **overrides):
    args = Arguments(yaml, **overrides)
    dataset = args.dataset("train")
    return dataset, args.loader(dataset), args


def test_closing_mosaic_as_the_trainer_does(generated_boxes):
    dataset, loader, args = _train_loader(generated_boxes, **PLAIN, mixup=0.5)
    first = {f: im for b in loader for f, im in zip(b["im_file"], b["img"].clone(), strict=True)}
    early = enumerate(loader)  # made before mosaic is closed, as the trainer does (trap 1)
    dataset.close_mosaic(hyp=args.cfg)
    loader.reset()
    passes = [
        {f: im for _, b in batches for f, im in zip(b["im_file"], b["img"].clone(), strict=True)}
        for batches in (enumerate(loader), early)
    ]
    loader.close()
    assert passes[0].keys() == passes[1].keys() == first.keys()
    assert all(torch.equal(im, passes[1][f]) for f, im in passes[0].items())  # nothing random is left
    assert sum(torch.equal(im, passes[0][f]) for f, im in first.items()) < 3  # before, there was


def test_seed_decides_and_workers_do_not(generated_boxes):
    def run(**overrides):
        _, loader, _ = _train_loader(generated_boxes, **overrides)
        with_images = [(b["im_file"], int(b["img"].sum())) for b in loader]
        loader.close()
        return with_images

    first = run(seed=0)
    assert run(seed=0, workers=0) == first
    assert run(seed=1) != first


def test_what_the_trainer_reads_from_a_loader(generated_boxes, monkeypatch):
    dataset, loader, args = _train_loader(generated_boxes)
    assert isinstance(loader, FastDataLoader)
    assert bool(loader)
    assert len(loader) == 5
    assert (loader.batch_size, loader.drop_last, len(loader.sampler)) == (5, False, 24)
    assert loader.dataset is dataset
    assert loader.num_workers == 2
    assert args.loader(dataset, drop_last=True).drop_last
    assert len(args.loader(dataset, drop_last=True)) == 4
    args.cfg.batch = 100  # more than there are: one batch, made inline, kept although incomplete
    assert len(args.loader(dataset, drop_last=True)) == 1
    assert args.loader(dataset, drop_last=True).num_workers == 0
    args.cfg.batch = 5
    assert args.loader(dataset, workers=0).num_workers == 0
    monkeypatch.setenv("FASTYOLO_WORKERS", "3")
    assert args.loader(args.dataset("train"), workers=0).num_workers == 3
    loader.close()
    loader.close()
    assert len(loader) == 5
    assert sum(1 for _ in loader) == 5  # a closed loader starts again, as the stock one after reset
    loader.close()


def test_partial_passes(generated_boxes):
    _, loader, _ = _train_loader(generated_boxes)
    next(iter(loader))  # comet's callback looks at one batch and goes
    assert sum(len(b["im_file"]) for b in loader) == 24
    loader.close()


def test_batches_belong_to_the_caller_also_in_inference_mode(generated_boxes):
    args = Arguments(generated_boxes)
    with args_loader(args) as loader, torch.inference_mode():
        kept = list(loader)
        copies = [b["img"].clone() for b in kept]
        for b in kept:
            assert not b["img"].is_inference()
            b["bboxes"].mul_(2)
    again = list(args_loader(args))
    for b, copy, other in zip(kept, copies, again, strict=True):
        assert torch.equal(b["img"], copy)
        assert torch.equal(b["bboxes"], other["bboxes"] * 2)


class args_loader:
    """Validation loader that is closed at the end of a with block."""

    def __init__(self, args: Arguments) -> None:
        self._loader = args.loader(args.dataset("val"))

    def __enter__(self):
        return self._loader

    def __exit__(self, *_):
        self._loader.close()

    def __iter__(self):
        yield from self._loader
        self._loader.close()


def test_rect_training(generated_boxes):
    args = Arguments(generated_boxes, rect=True)
    dataset = args.dataset("train")
    loader = args.loader(dataset, shuffle=False)
    shapes = [tuple(b["img"].shape[2:]) for b in loader]
    loader.close()
    assert shapes == [tuple(s) for s in dataset.batch_shapes.tolist()]


def test_rect_training_with_equal_shapes_may_be_shuffled(tmp_path):
    yaml = write_set(tmp_path, "boxes", n=2)  # one batch only, so one shape
    args = Arguments(yaml, rect=True, batch=2)
    loader = args.loader(args.dataset("train"), shuffle=True)
    assert [b["img"].shape[0] for b in loader] == [2]
    loader.close()


def test_data_set_can_be_pickled(generated_boxes):
    dataset = Arguments(generated_boxes).dataset("train")
    before = dataset[3]
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.im_files == dataset.im_files
    assert torch.equal(copy[3]["img"], before["img"])  # a fresh copy begins with the first augmentation


def test_update_labels(generated_boxes):
    args = Arguments(generated_boxes)
    dataset = args.dataset("val")
    loader = args.loader(dataset)
    assert {float(c) for b in loader for c in b["cls"].ravel()} == {0, 1, 2}
    dataset.update_labels([0, 1])  # validation of a model with fewer classes does it
    stock = args.dataset("val", stock=True)
    stock.update_labels([0, 1])
    assert_same_batches(loader, args.loader(stock, stock=True))
    loader.close()


def test_errors_are_those_of_the_stock_class(tmp_path, generated_boxes):
    args = Arguments(generated_boxes)
    args.data["train"] = str(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        args.dataset("train")
    yaml = write_set(tmp_path, "boxes", n=4)
    for label in (tmp_path / "labels").rglob("*.txt"):
        label.unlink()
    with pytest.raises(ValueError, match="label"):
        Arguments(yaml).dataset("train")
    assert len(Arguments(yaml).dataset("val").labels) == 2


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 4, 7, 16])
def test_validation_shares_equal_the_stock_sampler(world, batch):
    for n in (1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 65):
        for rank in range(world):
            stock = ContiguousDistributedSampler(range(n), num_replicas=world, batch_size=batch, rank=rank)
            ours = plan_order(n, seed=0, epoch=0, shuffle=False, batch=min(batch, n), rank=rank, world_size=world)
            assert ours.mine.tolist() == list(stock)
            assert share_size(n, min(batch, n), rank, world, False) == len(stock)


def test_balanced_weights_reach_the_order(generated_boxes, monkeypatch):
    monkeypatch.setenv("FASTYOLO_IMAGE_WEIGHTS", "balanced")
    _, loader, _ = _train_loader(generated_boxes)
    seen = [f for _ in range(3) for b in loader for f in b["im_file"]]
    loader.close()
    assert len(seen) == 72
    assert len(set(seen[:24])) < 24  # drawn with replacement


def test_mistakes_in_our_own_options_are_told(generated_boxes, monkeypatch):
    """They do not lead to the stock loader, which would do without what the user asked for."""
    args = Arguments(generated_boxes)
    for weights, word in (([1.0, 2.0], "24 images"), ("equal", "balanced")):
        dataset = args.dataset("train", options=FastOptions(image_weights=weights))
        with pytest.raises(ConfigError, match=word):
            args.loader(dataset)
    dataset = args.dataset("train", rect=True, options=FastOptions(image_weights="balanced"))
    with pytest.raises(ConfigError, match="rect"):
        args.loader(dataset, shuffle=False)
    with pytest.raises(ConfigError, match="numerics"):
        args.dataset("train", options=FastOptions(numerics="sloppy"))
    monkeypatch.setenv("FASTYOLO_CACHE", "tape")
    with pytest.raises(ConfigError, match="FASTYOLO_CACHE"):
        args.dataset("train")


def test_image_weights_from_a_callable(generated_boxes):
    args = Arguments(generated_boxes)
    only = FastOptions(image_weights=lambda dataset: [float("im003" in f) for f in dataset.im_files])
    loader = args.loader(args.dataset("train", options=only))
    assert {Path(f).stem for b in loader for f in b["im_file"]} == {"im003"}
    loader.close()
