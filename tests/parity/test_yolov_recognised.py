"""The installed YOLOv5 and YOLOv9 are recognised, patched and restored; see tuples.py for the environment."""

from __future__ import annotations

import importlib

import pytest

import fastyolo_data as fy
from fastyolo_data.integrations.recognise import Recognised, Refused, recognise
from tests.parity.tuples import load_module

pytest.importorskip("yolov5", reason="needs yolov5 7.0.14 in an environment of its own, see tuples.py")


@pytest.mark.parametrize(
    ("name", "variant"), [("yolov5.utils.dataloaders", "detect"), ("yolov5.utils.segment.dataloaders", "segment")]
)
def test_yolov5_package(name, variant):
    found = recognise(importlib.import_module(name))
    assert found == Recognised("yolov5", variant, "PyPI 7.0.14", "ceil")


@pytest.mark.parametrize(
    ("name", "variant"), [("utils.dataloaders", "detect"), ("utils.segment.dataloaders", "segment")]
)
def test_yolov9_code(name, variant):
    found = recognise(load_module("YOLOV9_REPO", "/tmp/up/yolov9", name))
    assert isinstance(found, Recognised), found
    assert (found.kind, found.variant, found.rounding) == ("yolov9", variant, "floor")


def test_yolov9_panoptic_is_left_alone():
    found = recognise(load_module("YOLOV9_REPO", "/tmp/up/yolov9", "utils.panoptic.dataloaders"))
    assert isinstance(found, Refused)
    assert "panoptic" in found.reason


def test_one_changed_method_is_noticed(monkeypatch):
    data = importlib.import_module("yolov5.utils.dataloaders")
    monkeypatch.setattr(data.LoadImagesAndLabels, "load_mosaic", data.LoadImagesAndLabels.load_mosaic9)
    found = recognise(data)
    assert isinstance(found, Refused)
    assert found.reason.endswith(": LoadImagesAndLabels.load_mosaic")


def test_patched_and_restored():
    data = importlib.import_module("yolov5.utils.dataloaders")
    segment = importlib.import_module("yolov5.utils.segment.dataloaders")
    train = importlib.import_module("yolov5.train")  # copied the name when it was imported
    before = {m: dict(vars(m)) for m in (data, segment, train)}
    names = fy.patch("yolov5")
    try:
        assert names == (
            "yolov5.utils.dataloaders.create_classification_dataloader",  # to say that it keeps its own loader
            "yolov5.utils.dataloaders.create_dataloader",
            "yolov5.utils.segment.dataloaders.create_dataloader",
        )
        assert train.create_dataloader is data.create_dataloader
        assert data.create_dataloader.__wrapped__ is before[data]["create_dataloader"]
    finally:
        fy.unpatch()
    for module, names in before.items():
        assert [n for n in names if vars(module).get(n) is not names[n]] == []
