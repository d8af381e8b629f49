"""What we do not do faithfully is left to the stock pipeline, with one line that says why."""

from __future__ import annotations

import importlib
import logging
import shutil
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

pytest.importorskip("ultralytics", reason="the drop-in needs the package: pip install ultralytics")

from ultralytics.data import build as stock_build
from ultralytics.data import dataset as stock_datasets
from ultralytics.data.build import InfiniteDataLoader
from ultralytics.data.dataset import ClassificationDataset, YOLOConcatDataset, YOLODataset, YOLOMultiModalDataset
from ultralytics.models.rtdetr.val import RTDETRDataset
from ultralytics.utils import LOGGER

import fastyolo_data
from fastyolo_data.integrations.ultralytics import (
    FastDataLoader,
    FastYOLODataset,
    build_dataloader,
    build_yolo_dataset,
    reasons,
)
from tests.integrations.ultralytics_sets import Arguments


class Shade:
    """A user's own transform."""

    def __call__(self, labels):
        labels["img"] = torch.full_like(labels["img"], 7)
        return labels


@pytest.fixture
def said(monkeypatch):
    """Our lines in the log of Ultralytics."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    LOGGER.addHandler(handler)
    monkeypatch.setattr(reasons, "_SAID", set())
    yield lines
    LOGGER.removeHandler(handler)


def ours(lines):
    """Those that come from us, but for the one that Albumentations calls for where it happens to be installed."""
    return [line for line in lines if line.startswith("fastyolo_data: ") and "default list" not in line]


def assert_stock(args, said, words, mode="train", kind=YOLODataset, **kw):
    """The data set and the loader are stock ones, and one line says why."""
    dataset = args.dataset(mode, **kw)
    assert type(dataset) is kind
    loader = args.loader(dataset)
    assert type(loader) is InfiniteDataLoader
    assert next(iter(loader))["img"].shape[0] == 5
    loader.close()
    args.dataset(mode, **kw)
    assert len(ours(said)) == 1
    assert words in ours(said)[0]


def test_text_prompts(generated_boxes, said):
    assert_stock(Arguments(generated_boxes), said, "multi-modal", kind=YOLOMultiModalDataset, multi_modal=True)


def test_grey_images(generated_boxes, said):
    args = Arguments(generated_boxes)
    args.data["channels"] = 1
    assert_stock(args, said, "1 channels")


def test_semantic_segmentation(generated_polygons, said):
    args = Arguments(generated_polygons, task="semantic")
    assert_stock(args, said, "task=semantic", kind=stock_datasets.PolygonSemanticDataset)


def test_values_outside_our_range(generated_boxes, said):
    args = Arguments(generated_boxes, perspective=0.001)
    args.cfg.perspective = 0.5
    assert_stock(args, said, "perspective=0.5")


def test_replaced_class_and_methods(generated_boxes, said, monkeypatch):
    class Mine(YOLODataset):
        pass

    with monkeypatch.context() as patch:
        patch.setattr(stock_build, "YOLODataset", Mine)
        assert_stock(Arguments(generated_boxes), said, "Mine", kind=Mine)
    said.clear()
    monkeypatch.setattr(YOLODataset, "load_image", lambda self, i, **kw: stock_datasets.BaseDataset.load_image(self, i))
    assert_stock(Arguments(generated_boxes), said, "YOLODataset.load_image was replaced")


def test_replaced_transform_methods(generated_boxes, said, monkeypatch):
    from ultralytics.data import augment

    monkeypatch.setattr(augment.RandomHSV, "__call__", lambda self, labels: labels)
    args = Arguments(generated_boxes)
    loader = args.loader(args.dataset("train"))
    assert next(iter(loader))["img"].shape[0] == 5
    assert loader.stats() == {}
    assert "RandomHSV.__call__ was replaced" in ours(said)[0]
    loader.close()


@pytest.mark.parametrize("when", ["before", "after", "between"])
def test_a_users_own_transforms(generated_boxes, said, when):
    args = Arguments(generated_boxes)
    dataset = args.dataset("train")
    if when == "before":
        dataset.transforms.append(Shade())
    loader = args.loader(dataset)
    assert isinstance(loader, FastDataLoader)
    if when == "between":
        assert not any((b["img"] == 7).all() for b in loader)
        assert loader.stats()["batches"] >= 5
    if when != "before":
        dataset.transforms.append(Shade())
    batches = list(loader)
    assert all((b["img"] == 7).all() for b in batches)
    assert sum(len(b["im_file"]) for b in batches) == len(dataset)
    assert len(ours(said)) == 1
    assert "transforms was changed" in ours(said)[0]
    assert (dataset[0]["img"] == 7).all()
    dataset.close_mosaic(hyp=args.cfg)  # builds new transforms, without the user's: the stock class loses them too
    loader.reset()
    assert not any((b["img"] == 7).all() for b in loader)
    assert loader.stats()["batches"] >= 5
    loader.close()


def test_letterbox_shape_changed_by_the_exporter(generated_boxes):
    args = Arguments(generated_boxes)
    dataset = args.dataset("val", rect=False)
    dataset.transforms.transforms[0].new_shape = (64, 128)
    loader = build_dataloader(dataset, batch=5, workers=0, drop_last=True)
    assert {tuple(b["img"].shape) for b in loader} == {(5, 3, 64, 128)}
    loader.close()


def test_edited_labels(generated_boxes, said):
    args = Arguments(generated_boxes)
    dataset = args.dataset("train")
    loader = args.loader(dataset)
    for label in dataset.labels:
        label["cls"] = np.full_like(label["cls"], 2)
    assert {float(c) for b in loader for c in b["cls"].ravel()} == {2}
    assert "labels was edited" in ours(said)[0]
    loader.close()


def test_other_data_sets_are_untouched(generated_boxes, said, tmp_path):
    args = Arguments(generated_boxes)
    fast = args.dataset("train")
    rtdetr = RTDETRDataset(
        img_path=args.data["train"], imgsz=96, batch_size=5, augment=False, hyp=args.cfg, rect=False, data=args.data
    )
    concat = YOLOConcatDataset([args.dataset("train", stock=True)])
    for kind in ("a", "b"):
        folder = tmp_path / "classes" / kind
        folder.mkdir(parents=True)
        for i in range(3):
            shutil.copy(fast.im_files[i], folder / f"{i}.jpg")
    classes = ClassificationDataset(str(tmp_path / "classes"), args=Arguments(generated_boxes, task="classify").cfg)
    for dataset in (rtdetr, concat, classes):
        loader = args.loader(dataset, shuffle=False)
        assert type(loader) is InfiniteDataLoader
        assert len(next(iter(loader))["img"]) == 5
    kinds = ("RTDETRDataset", "YOLOConcatDataset", "ClassificationDataset")
    assert all(kind in line for kind, line in zip(kinds, ours(said), strict=True))


def test_a_users_subclass(generated_boxes, said):
    class Mine(YOLODataset):
        pass

    args = Arguments(generated_boxes)
    mine = Mine(img_path=args.data["train"], imgsz=96, batch_size=5, hyp=args.cfg, data=args.data)
    assert type(args.loader(mine)) is InfiniteDataLoader
    assert "Mine is not accelerated" in ours(said)[0]


def test_user_augmentations(generated_boxes, said):
    pytest.importorskip("albumentations", reason="Ultralytics ignores augmentations= without it, and so do we")
    import albumentations as A

    args = Arguments(generated_boxes)
    assert isinstance(args.dataset("train"), FastYOLODataset)
    assert sum("its default list" in line for line in said) == 1
    assert ours(said) == []
    args.cfg.augmentations = [A.Blur(p=1.0)]
    assert_stock(args, said, "augmentations=")


def test_nothing_is_said_when_all_is_well(generated_boxes, said):
    args = Arguments(generated_boxes)
    for mode in ("train", "val"):
        loader = args.loader(args.dataset(mode))
        assert sum(1 for _ in loader) == len(loader)
        loader.close()
    assert ours(said) == []


def test_unpatch_leaves_what_a_program_imported_from_us(monkeypatch):
    build_module = importlib.import_module("ultralytics.data.build")
    stock = build_module.build_yolo_dataset
    program = ModuleType("program")
    program.ours = build_yolo_dataset
    monkeypatch.setitem(sys.modules, "program", program)
    fastyolo_data.patch("ultralytics")
    try:
        program.patched = build_module.build_yolo_dataset
        assert program.patched.__wrapped__ is stock
    finally:
        fastyolo_data.unpatch()
    assert program.patched is build_module.build_yolo_dataset is stock
    assert program.ours is build_yolo_dataset
