"""The same random numbers through YOLOv9's data set with masks and through our plan; see tuples.py."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool

import pytest

from tests.parity.tuples import assert_segment_validation, assert_segments, load_module

stock = load_module("YOLOV9_REPO", "/tmp/up/yolov9", "utils.segment.dataloaders")
# Other processes could not import a module that goes by this name only here.
stock.LoadImagesAndLabels.cache_labels.__globals__["Pool"] = ThreadPool

HYPS = {
    "default": {"mask_ratio": 2},
    "rotation": {"degrees": 30.0, "flipud": 0.5, "mosaic": 0.5, "overlap_mask": False},
    "mixup": {"mixup": 1.0, "copy_paste": 0.3},
}


@pytest.mark.parametrize("data_yaml", ["polygons"], indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_training_samples_equal_stock(data_yaml, hyp):
    assert_segments(stock.LoadImagesAndLabelsAndMasks, data_yaml, "yolov9", HYPS[hyp])


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", ["polygons"], indirect=True)
def test_validation_equals_stock(data_yaml, rect):
    assert_segment_validation(stock.LoadImagesAndLabelsAndMasks, data_yaml, "yolov9", rect, {})
