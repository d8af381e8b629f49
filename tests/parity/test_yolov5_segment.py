"""The same random numbers through YOLOv5 7.0's data set with masks and through our plan; see tuples.py for how."""

from __future__ import annotations

import os
import tempfile

import pytest

from tests.parity.tuples import assert_segment_validation, assert_segments

os.environ.setdefault("YOLOV5_CONFIG_DIR", tempfile.mkdtemp(prefix="yolov5-config-"))
pytest.importorskip("yolov5", reason="parity with YOLOv5 needs yolov5==7.0.14 in an environment of its own")
from yolov5.utils.segment.dataloaders import LoadImagesAndLabelsAndMasks

SETS = ["polygons", "coco_ccby_seg"]
HYPS = {
    "default": {},
    "no_mosaic": {"mosaic": 0.0, "degrees": 10.0, "flipud": 0.5},
    "rotation": {"degrees": 30.0, "flipud": 0.5, "mosaic": 0.5, "overlap_mask": False},
    "perspective": {"perspective": 0.001, "degrees": 10.0, "mosaic": 0.5, "mask_ratio": 1},
    "mixup": {"mixup": 1.0, "mask_ratio": 2},
    "copy_paste": {"copy_paste": 0.5, "degrees": 10.0, "overlap_mask": False, "mask_ratio": 2, "flipud": 0.5},
}


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_training_samples_equal_stock(data_yaml, hyp):
    assert_segments(LoadImagesAndLabelsAndMasks, data_yaml, "yolov5", HYPS[hyp])


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("masks", [{}, {"overlap_mask": False, "mask_ratio": 1}], ids=str)
def test_validation_equals_stock(data_yaml, rect, masks):
    assert_segment_validation(LoadImagesAndLabelsAndMasks, data_yaml, "yolov5", rect, masks)
