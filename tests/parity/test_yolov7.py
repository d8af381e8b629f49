"""The same random numbers through YOLOv7's own data set and through our plan; see tuples.py for the environment."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.augment import Renderer
from tests.parity.tuples import assert_close, assert_exact, assert_validation, load_module

stock = load_module("YOLOV7_REPO", "/tmp/up/yolov7", "utils.datasets")

SETS = ["boxes", "polygons", "bccd", "coco_ccby_seg"]
HYPS = {
    "default": {},
    "no_mosaic": {"mosaic": 0.0},
    "rotation": {"degrees": 30.0, "flipud": 0.5, "mosaic": 0.5},
    "perspective": {"perspective": 0.001, "degrees": 10.0, "shear": 5.0},
    "mixup": {"mixup": 1.0},
    "no_colour": {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0},
}


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_exact_mode_equals_stock(data_yaml, hyp):
    assert_exact(stock.LoadImagesAndLabels, data_yaml, "yolov7", HYPS[hyp])


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_fast_mode_is_close_to_stock(data_yaml, hyp):
    assert_close(stock.LoadImagesAndLabels, data_yaml, "yolov7", HYPS[hyp])


@pytest.fixture
def no_black(monkeypatch):
    """Pictures without the value 0, which YOLOv7 does not paste: it takes it for a hole in the object."""
    ours, theirs = Renderer._load, stock.load_image

    def load_image(self, index):
        im, *sizes = theirs(self, index)
        return np.maximum(im, 1), *sizes

    monkeypatch.setattr(Renderer, "_load", lambda self, index: np.maximum(ours(self, index), 1))
    monkeypatch.setattr(stock, "load_image", load_image)


@pytest.mark.parametrize("data_yaml", ["polygons", "coco_ccby_seg"], indirect=True)
def test_copy_paste_equals_stock(data_yaml, no_black):
    hyp = {"copy_paste": 0.5, "degrees": 10.0, "mixup": 0.5}
    # In mosaics of nine the stock code rounds outlines to float32 before it cuts the window out: single pixels differ.
    assert_exact(stock.LoadImagesAndLabels, data_yaml, "yolov7", hyp, 2e-4)
    assert_close(stock.LoadImagesAndLabels, data_yaml, "yolov7", hyp)


@pytest.mark.parametrize("data_yaml", ["polygons", "coco_ccby_seg"], indirect=True)
def test_paste_in_equals_stock(data_yaml, no_black, monkeypatch):
    sample_segments = stock.sample_segments

    def with_masks(*args, **kw):
        """The stock masks turn into pictures, as both are views of one array, and lose dark borders when resized."""
        labels, images, _ = sample_segments(*args, **kw)
        return labels, images, [np.where(im > 0, 255, 0).astype(np.uint8) for im in images]

    monkeypatch.setattr(stock, "sample_segments", with_masks)
    hyp = {"paste_in": 0.9, "mosaic": 0.7, "mixup": 0.2, "flipud": 0.5, "degrees": 10.0}
    assert_exact(stock.LoadImagesAndLabels, data_yaml, "yolov7", hyp)
    assert_close(stock.LoadImagesAndLabels, data_yaml, "yolov7", hyp)


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
def test_validation_equals_stock(data_yaml, rect):
    assert_validation(stock.LoadImagesAndLabels, data_yaml, "yolov7", rect)
