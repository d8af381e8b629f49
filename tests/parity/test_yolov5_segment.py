"""The same random numbers through YOLOv5 7.0's data set with masks and through our plan; see tuples.py for how."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest

import fastyolo_data as fy
from tests.parity.tuples import SIZE, assert_labels, make_stock, mask_options, samples

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
    "each": {"overlap_mask": False, "mask_ratio": 2, "flipud": 0.5},
}


@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_training_samples_equal_stock(data_yaml, hyp):
    seen = unequal = 0
    for ours, stock, flat in samples(
        LoadImagesAndLabelsAndMasks, data_yaml, "yolov5", "exact", HYPS[hyp], task="segment"
    ):
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


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize("data_yaml", SETS, indirect=True)
@pytest.mark.parametrize("masks", [{}, {"overlap_mask": False, "mask_ratio": 1}], ids=str)
def test_validation_equals_stock(data_yaml, rect, masks):
    batch = 5
    with fy.build_loader(
        data_yaml, split="val", dialect="yolov5", task="segment", imgsz=SIZE, batch=batch, rect=rect, workers=2,
        verbose=False, hyp=masks,
    ) as loader:  # fmt: skip
        stock = make_stock(
            LoadImagesAndLabelsAndMasks, data_yaml, "yolov5", "val", batch, rect=rect, pad=0.5,
            **mask_options(loader.dataset),
        )  # fmt: skip
        n = len(stock)
        for ours, start in zip(loader, range(0, n, batch), strict=True):
            want = LoadImagesAndLabelsAndMasks.collate_fn([stock[i] for i in range(start, min(start + batch, n))])
            assert len(ours) == len(want) == 5
            np.testing.assert_array_equal(ours[0].numpy(), want[0].numpy())
            np.testing.assert_allclose(ours[1].numpy(), want[1].numpy(), atol=1e-6)
            assert ours[2] == want[2]
            assert ours[4].dtype == want[4].dtype
            np.testing.assert_array_equal(ours[4].numpy(), want[4].numpy())
