"""The create_dataloader functions of the YOLOv5 family: ours called directly, and in the place of a fork's."""

from __future__ import annotations

import logging
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.integrations import yolov5, yolov7, yolov9
from fastyolo_data.integrations.recognise import Recognised
from tests.loaders import fingerprint

HYP = {"mosaic": 1.0, "mixup": 0.1, "scale": 0.5, "box": 0.05, "anchor_t": 4.0}


@pytest.fixture
def images(generated_boxes):
    return str(generated_boxes.parent / "images" / "train")


def module(kind, function) -> ModuleType:
    """A fork's data module with this create_dataloader."""
    fork = ModuleType(f"{kind}_fork")
    fork.create_dataloader = function
    return fork


def replaced(integration, kind, function, rounding="ceil"):
    """Our replacement for a fork's function."""
    recognised = Recognised(kind, "detect", "7.0", rounding)
    return integration.replacements(module(kind, function), recognised)["create_dataloader"]


def stock_v5(path, imgsz, batch_size, stride, single_cls=False, hyp=None, augment=False, cache=False, pad=0.0,
             rect=False, rank=-1, workers=8, image_weights=False, quad=False, prefix="", shuffle=False, seed=0,
             letter=None):  # fmt: skip
    return "stock", path


def test_yolov5_train_and_val_calls(images):
    loader, dataset = yolov5.create_dataloader(
        images, 96, 8, 32, False, hyp=HYP, augment=True, cache="ram", rect=False, rank=-1, workers=8,
        image_weights=False, quad=False, prefix="train: ", shuffle=True, seed=3,
    )  # fmt: skip
    with loader:
        assert loader.dataset is dataset
        assert isinstance(dataset, fy.LoadImagesAndLabels)
        assert (len(loader), loader.batch_size, dataset.config.cache, dataset.config.seed) == (3, 8, "ram", 3)
        im, targets, paths, shapes = next(iter(loader))
        assert im.shape == (8, 3, 96, 96)
        assert targets.shape[1] == 6
        assert len(paths) == 8
        assert shapes == (None,) * 8
        dataset.indices = [5] * 24  # --image-weights
        assert set(sum((b[2] for b in loader), ())) == {dataset.im_files[5]}
    val = yolov5.create_dataloader(images, 96, 16, 32, pad=0.5, rect=True, workers=2, prefix="val: ")[0]
    with val:
        assert sorted(p for b in val for p in b[2]) == sorted(dataset.im_files)
        assert len({b[0].shape[2:] for b in val}) > 1


def test_rect_with_shuffle_warns_and_does_not_shuffle(images, caplog):
    create = replaced(yolov5, "yolov5", stock_v5)
    with caplog.at_level(logging.WARNING, "fastyolo_data"):
        loader, dataset = create(images, 96, 8, 32, augment=True, hyp=HYP, rect=True, shuffle=True)
    assert "rect" in caplog.text
    with loader:
        assert [p for b in loader for p in b[2]] == dataset.im_files


def test_image_weights_switch_rect_off(images):
    loader, dataset = yolov5.create_dataloader(images, 96, 8, 32, augment=True, hyp=HYP, rect=True, image_weights=True)
    loader.close()
    assert dataset.rect is False
    assert dataset.mosaic is True


def test_a_fork_keeps_its_signature_and_unknown_arguments_go_to_its_own_function(images, caplog):
    create = replaced(yolov5, "yolov5", stock_v5)
    assert create.__wrapped__ is stock_v5
    with pytest.raises(TypeError):
        create(images)
    with caplog.at_level(logging.WARNING, "fastyolo_data"):
        assert create(images, 96, 8, 32, letter="a") == ("stock", images)
    assert "letter='a'" in caplog.text
    loader, _ = create(images, 96, 8, 32)
    loader.close()


def test_rounding_follows_the_code_at_hand(generated_boxes):
    images = str(generated_boxes.parent / "images" / "train")
    sizes = []
    for rounding in ("ceil", "floor"):
        loader, dataset = replaced(yolov5, "yolov5", stock_v5, rounding)(images, 96, 8, 32)
        loader.close()
        sizes.append(dataset.tile_hw)
    assert (sizes[0] - sizes[1] == 1).any()
    assert (sizes[0] >= sizes[1]).all()


def test_what_we_refuse_goes_to_the_stock_function(images, caplog):
    create = replaced(yolov5, "yolov5", stock_v5)
    with caplog.at_level(logging.WARNING, "fastyolo_data"):
        assert create(images, 96, 2, 32, quad=True) == ("stock", images)
    assert "stock loader of YOLOv5 7.0 is used" in caplog.text


def test_variables_stand_above_the_arguments(images, monkeypatch):
    monkeypatch.setenv("FASTYOLO_CACHE", "ram")
    monkeypatch.setenv("FASTYOLO_WORKERS", "3")
    loader, dataset = replaced(yolov5, "yolov5", stock_v5)(images, 96, 8, 32, workers=0)
    loader.close()
    assert (dataset.config.cache, loader.num_workers) == ("ram", 3)
    monkeypatch.setenv("FASTYOLO_CACHE", "tape")
    with pytest.raises(fy.ConfigError, match="FASTYOLO_CACHE"):
        replaced(yolov5, "yolov5", stock_v5)(images, 96, 8, 32)


def test_yolov9_close_mosaic_and_min_items(images):
    loader, dataset = yolov9.create_dataloader(
        images, 96, 8, 32, False, hyp=HYP, augment=True, close_mosaic=True, min_items=2, shuffle=True
    )
    with loader:
        assert dataset.dialect.name == "yolov9"
        assert all(len(lb) >= 2 for lb in dataset.labels)
        assert next(iter(loader))[3][0] is None
        dataset.mosaic = False
        assert None not in next(iter(loader))[3]


def test_yolov7_reads_in_file_order_on_one_process(images):
    def stock_v7(path, imgsz, batch_size, stride, opt, hyp=None, augment=False, cache=False, pad=0.0, rect=False,
                 rank=-1, world_size=1, workers=8, image_weights=False, quad=False, prefix=""):  # fmt: skip
        raise AssertionError("not to be called")

    opt = SimpleNamespace(single_cls=True)
    for create in (yolov7.create_dataloader, replaced(yolov7, "yolov7", stock_v7, "floor")):
        loader, dataset = create(images, 96, 8, 32, opt, hyp=HYP, augment=True, world_size=1, workers=2)
        with loader:
            assert [p for b in loader for p in b[2]] == dataset.img_files
            assert {float(c) for lb in dataset.labels for c in lb[:, 0]} == {0.0}
            assert dataset.dialect.name == "yolov7"


def test_yolov7_constructor(images):
    ours = yolov7.LoadImagesAndLabels(images, 96, 8, False, None, True, False, False, True, 32, 0.5, "val: ")
    assert ours.img_files == ours.im_files
    assert (ours.config.pad, ours.config.single_cls, ours.rect) == (0.5, True, True)


def test_close_mosaic_of_v9_after_prefetch_reaches_the_next_epoch(images):
    loader, dataset = yolov9.create_dataloader(images, 96, 8, 32, hyp=HYP, augment=True, shuffle=True, workers=2)
    with loader:
        first = [fingerprint(b) for b in loader]  # the loader has begun the next epoch ahead of time
        dataset.mosaic = False
        second = list(loader)
    assert len(first) == len(second) == 3
    assert all(s is not None for b in second for s in b[3])
    assert np.isfinite([float(v) for b in second for v in b[1].flatten()]).all()


def test_classification_stays_stock_and_says_so_once(caplog):
    fork = module("yolov5", stock_v5)
    fork.create_classification_dataloader = lambda path, imgsz=224: ("stock", path, imgsz)
    ours = yolov5.replacements(fork, Recognised("yolov5", "detect", "7.0", "ceil"))
    with caplog.at_level(logging.WARNING, "fastyolo_data"):
        results = [ours["create_classification_dataloader"]("x", imgsz=64) for _ in range(2)]
    assert results == [("stock", "x", 64)] * 2
    assert caplog.text.count("classification is not accelerated") == 1
