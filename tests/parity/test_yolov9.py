"""The same random numbers through YOLOv9's own data set and through our plan; see tuples.py for the environment."""

from __future__ import annotations

import pytest

from tests.parity.tuples import assert_close, assert_exact, assert_validation, load_module

stock = load_module("YOLOV9_REPO", "/tmp/up/yolov9", "utils.dataloaders")
stock.Pool = stock.ThreadPool  # other processes could not import a module that goes by this name only here

SETS = ["boxes", "polygons", "bccd", "coco_ccby_seg"]
HYPS = {
    "default": {},
    "rotation": {"degrees": 30.0, "flipud": 0.5, "mosaic": 0.5},
    "mixup": {"mixup": 1.0, "perspective": 0.001},
    "copy_paste": {"copy_paste": 0.5, "degrees": 10.0, "mixup": 0.5},
}


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_exact_mode_equals_stock(data_yaml, hyp):
    assert_exact(stock.LoadImagesAndLabels, data_yaml, "yolov9", HYPS[hyp])


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_fast_mode_is_close_to_stock(data_yaml, hyp):
    assert_close(stock.LoadImagesAndLabels, data_yaml, "yolov9", HYPS[hyp])


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
def test_validation_equals_stock(data_yaml, rect):
    assert_validation(stock.LoadImagesAndLabels, data_yaml, "yolov9", rect)
