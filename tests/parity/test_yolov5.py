"""The same random numbers through the installed YOLOv5 7.0 data set and through our plan; see tuples.py for how."""

from __future__ import annotations

import os
import tempfile

import pytest

from tests.parity.tuples import assert_close, assert_exact, assert_validation

os.environ.setdefault("YOLOV5_CONFIG_DIR", tempfile.mkdtemp(prefix="yolov5-config-"))
pytest.importorskip("yolov5", reason="parity with YOLOv5 needs yolov5==7.0.14 in an environment of its own")
from yolov5.utils.dataloaders import LoadImagesAndLabels

SETS = ["boxes", "polygons", "bccd", "coco_ccby_seg"]
HYPS = {
    "default": {},
    "no_mosaic": {"mosaic": 0.0},
    "rotation": {"degrees": 30.0, "flipud": 0.5, "mosaic": 0.5},
    "shear": {"shear": 10.0, "degrees": 5.0},
    "perspective": {"perspective": 0.001, "degrees": 10.0, "mosaic": 0.5},
    "mixup": {"mixup": 1.0},
    "copy_paste": {"copy_paste": 0.5, "degrees": 10.0, "mixup": 0.5},
}


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_exact_mode_equals_stock(data_yaml, hyp):
    assert_exact(LoadImagesAndLabels, data_yaml, "yolov5", HYPS[hyp])


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_fast_mode_is_close_to_stock(data_yaml, hyp):
    assert_close(LoadImagesAndLabels, data_yaml, "yolov5", HYPS[hyp])


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
def test_validation_equals_stock(data_yaml, rect):
    assert_validation(LoadImagesAndLabels, data_yaml, "yolov5", rect)
