"""Validation batches of YOLOv5's and YOLOv9's create_dataloader and of what patch() puts in its place, whole sets."""

from __future__ import annotations

import importlib
import os
import tempfile

import numpy as np
import pytest

from fastyolo_data.integrations import yolov5, yolov9
from fastyolo_data.integrations.recognise import Recognised, recognise
from tests.parity.tuples import load_module

os.environ.setdefault("YOLOV5_CONFIG_DIR", tempfile.mkdtemp(prefix="yolov5-config-"))
CODE = ["yolov5", "yolov5 segment", "yolov9", "yolov9 segment"]
HYP = {"mosaic": 1.0, "mixup": 0.1, "degrees": 10.0, "hsv_h": 0.1, "fliplr": 0.5, "copy_paste": 0.0}
SETTINGS = {
    "while training": {"batch_size": 16, "hyp": HYP, "cache": "ram", "rect": True, "rank": -1, "pad": 0.5},
    "standalone": {"batch_size": 7, "rect": True, "pad": 0.5, "single_cls": True},
    "speed": {"batch_size": 4, "rect": False, "pad": 0.0},
}
MASKS = {
    "while training": {"mask_downsample_ratio": 4, "overlap_mask": True},
    "standalone": {"mask_downsample_ratio": 1, "overlap_mask": False},
    "speed": {"mask_downsample_ratio": 2, "overlap_mask": False},
}


@pytest.fixture(scope="module", params=CODE)
def loaders(request):
    """(stock create_dataloader, ours, is it for segmentation)"""
    kind, *segment = request.param.split()
    name = "utils.segment.dataloaders" if segment else "utils.dataloaders"
    if kind == "yolov5":
        pytest.importorskip("yolov5", reason="needs yolov5==7.0.14 in an environment of its own")
        module, integration = importlib.import_module(f"yolov5.{name}"), yolov5
    else:
        module, integration = load_module("YOLOV9_REPO", "/tmp/up/yolov9", name), yolov9
        # Other processes could not import a module that goes by this name only here.
        of_labels = module.LoadImagesAndLabels.cache_labels.__globals__
        of_labels["Pool"] = of_labels["ThreadPool"]
    found = recognise(module)
    assert isinstance(found, Recognised)
    assert found.kind == kind
    return module.create_dataloader, integration.replacements(module, found)["create_dataloader"], bool(segment)


@pytest.mark.parametrize("data_yaml", ["boxes", "polygons", "bccd", "coco_ccby_seg"], indirect=True)
@pytest.mark.parametrize("setting", SETTINGS)
def test_batches_are_equal(loaders, data_yaml, setting):
    stock, ours, segment = loaders
    if segment and not data_yaml.parent.name.startswith(("polygons", "coco_ccby_seg")):
        pytest.skip("no polygons")
    path = str(data_yaml.parent / "images" / "val")
    options = {"imgsz": 320, "stride": 32, "workers": 0, **SETTINGS[setting], **(MASKS[setting] if segment else {})}
    theirs, their_set = stock(path, **options)
    mine, my_set = ours(path, **options)
    assert my_set.im_files == [str(f) for f in their_set.im_files]
    assert len(mine) == len(theirs)
    for batch, want in zip(mine, theirs, strict=True):
        assert len(batch) == len(want)
        np.testing.assert_array_equal(batch[0].numpy(), want[0].numpy())
        assert batch[1].dtype == want[1].dtype
        np.testing.assert_allclose(batch[1].numpy(), want[1].numpy(), atol=1e-6)
        assert batch[2] == want[2]
        for shape, wanted in zip(batch[3], want[3], strict=True):
            assert shape[0] == wanted[0]
            np.testing.assert_allclose(np.hstack(shape[1]), np.hstack(wanted[1]), rtol=1e-12)
        if segment:
            assert batch[4].dtype == want[4].dtype
            np.testing.assert_array_equal(batch[4].numpy(), want[4].numpy())
