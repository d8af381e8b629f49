"""Hyper-parameters: ranges, sources, misspellings; and the table of dialects."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from types import SimpleNamespace

import numpy as np
import pytest

from fastyolo_data.errors import ConfigError
from fastyolo_data.hyp import DIALECTS, Hyp, get_dialect

RANGES = {
    "hsv_h": 1, "hsv_s": 1, "hsv_v": 1, "degrees": 180, "translate": 1, "scale": 0.99, "shear": 89,
    "perspective": 0.01, "flipud": 1, "fliplr": 1, "bgr": 1, "mosaic": 1, "mixup": 1, "cutmix": 1,
    "copy_paste": 1, "paste_in": 1,
}  # fmt: skip


def test_defaults_are_those_of_ultralytics():
    assert Hyp() == Hyp(
        hsv_h=0.015, hsv_s=0.7, hsv_v=0.4, degrees=0.0, translate=0.1, scale=0.5, shear=0.0, perspective=0.0,
        flipud=0.0, fliplr=0.5, bgr=0.0, mosaic=1.0, mixup=0.0, cutmix=0.0, copy_paste=0.0, paste_in=0.0,
    )  # fmt: skip


def test_every_value_has_a_range():
    assert {f.name for f in fields(Hyp)} == {*RANGES, "mask_ratio", "overlap_mask", "copy_paste_mode"}


def test_mask_options():
    assert Hyp(copy_paste_mode="mixup").copy_paste_mode == "mixup"
    with pytest.raises(ConfigError, match="copy_paste_mode='flop': expected 'flip' or 'mixup'"):
        Hyp(copy_paste_mode="flop")
    assert (Hyp(mask_ratio=2, overlap_mask=False).mask_ratio, Hyp(mask_ratio=np.int64(1)).mask_ratio) == (2, 1)
    for bad in (0, -4, 4.0, "4", True, None):
        with pytest.raises(ConfigError, match="hyp mask_ratio="):
            Hyp(mask_ratio=bad)
    for bad in (1, "yes", None):
        with pytest.raises(ConfigError, match="hyp overlap_mask="):
            Hyp(overlap_mask=bad)


def test_tasks_of_dialects():
    assert get_dialect("ultralytics", "obb") is get_dialect("ultralytics")
    for name in ("yolov5", "yolov9"):
        assert not get_dialect(name, "segment").shuffle_tiles
        assert get_dialect(name).shuffle_tiles
    for name, task in (("yolov5", "pose"), ("yolov9", "obb"), ("yolov7", "segment")):
        with pytest.raises(ConfigError, match=f"task='{task}' with dialect='{name}': this dialect has 'detect'"):
            get_dialect(name, task)


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name):
    high = RANGES[name]
    for good in (0, 0.0, high, high / 2, np.float32(high / 4), np.float64(high), np.int64(0)):
        assert getattr(Hyp(**{name: good}), name) == good
    for bad in (-1e-9, high * 1.0001, float("nan"), float("inf"), True, "0.5", None, [0.5], 1j):
        with pytest.raises(ConfigError, match=f"hyp {name}="):
            Hyp(**{name: bad})


def test_zoom_range():
    assert Hyp(scale=0.25).scale_range() == (0.75, 1.25)
    assert Hyp(scale=0.25).scale_range(0.1) == (0.75, 1.35)
    assert Hyp(scale=(0.5, 2.0)).scale_range(0.1) == (0.5, 2.0)
    for given in ((0.5, 2), [0.5, 2.0], (np.float32(0.5), np.int64(2))):
        assert Hyp(scale=given).scale_range() == (0.5, 2.0)
    assert Hyp(scale=[1, 1]) == Hyp(scale=(1.0, 1.0))
    for bad in (
        (0, 1),
        (2, 1),
        (1,),
        (1, 2, 3),
        (-1, 1),
        ("a", 1),
        (1, None),
        (1, float("inf")),
        (float("nan"), 1),
        (),
    ):
        with pytest.raises(ConfigError, match=r"scale=.*0 < low <= high"):
            Hyp(scale=bad)


def test_frozen_and_hashable():
    hyp = Hyp(scale=[0.5, 1.5])
    with pytest.raises(FrozenInstanceError):
        hyp.mosaic = 0.0
    assert hash(hyp) == hash(Hyp(scale=(0.5, 1.5)))


def test_parse_sources(tmp_path):
    path = tmp_path / "hyp ä.yaml"
    path.write_text("\ufefflr0: 0.01\nmosaic: 0.5\nbox: 7.5\nscale: [0.5, 1.5]\n", encoding="utf-8")
    want = Hyp(mosaic=0.5, scale=(0.5, 1.5))
    assert Hyp.parse(path) == want
    assert Hyp.parse(str(path)) == want
    assert Hyp.parse({"mosaic": 0.5, "scale": (0.5, 1.5), "lr0": 0.1, "cls": 0.5}) == want
    assert Hyp.parse(SimpleNamespace(mosaic=0.5, scale=(0.5, 1.5), epochs=3, fliplr=None)) == want
    assert Hyp.parse(want) is want
    assert Hyp.parse(None) == Hyp()


OTHER = [
    "lr0", "lrf", "momentum", "weight_decay", "warmup_epochs", "warmup_momentum", "warmup_bias_lr", "box",
    "cls", "cls_pw", "obj", "obj_pw", "iou_t", "anchor_t", "anchors", "fl_gamma", "label_smoothing",
    "loss_ota", "dfl", "dfl_pw", "close_mosaic", "erasing", "auto_augment",
    "dropout", "pose", "kobj", "nbs", 3,
]  # fmt: skip


def test_other_keys_of_hyp_files_are_no_misspellings():
    assert Hyp.parse(dict.fromkeys(OTHER, 0.5)) == Hyp()


def test_all_of_the_stock_arguments_are_accepted():
    cfg = pytest.importorskip("ultralytics.cfg", reason="reads the installed Ultralytics' arguments")
    assert Hyp.parse(cfg.DEFAULT_CFG) == Hyp()


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("mosiac", "mosaic"), ("mix_up", "mixup"), ("fliprl", "fliplr"), ("hsvh", "hsv_h"), ("degree", "degrees"),
     ("translation", "translate"), ("copypaste", "copy_paste"), ("Mosaic", "mosaic")],
)  # fmt: skip
def test_misspellings(typo, meant):
    with pytest.raises(ConfigError, match=f"{typo!r}.*did you mean {meant!r}"):
        Hyp.parse({typo: 0.1})


@pytest.mark.parametrize("text", ["- a\n- b\n", "", "just text", "a: [1, 2\n", "\x00"])
def test_broken_hyp_files(tmp_path, text):
    path = tmp_path / "hyp.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"hyp\.yaml"):
        Hyp.parse(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "hyp.yaml"
    path.write_bytes(b"mosaic: \xff\xfe")
    with pytest.raises(ConfigError, match=r"hyp\.yaml.*cannot be read"):
        Hyp.parse(path)


@pytest.mark.parametrize("bad", [3, 1.5, [("mosaic", 1)], ("mosaic",), b"hyp"])
def test_other_types(bad):
    with pytest.raises(ConfigError, match="hyp="):
        Hyp.parse(bad)


def test_dialects():
    assert list(DIALECTS) == ["ultralytics", "yolov5", "yolov7", "yolov9"]
    u, v5, v7, v9 = (get_dialect(n) for n in DIALECTS)
    assert [d.name for d in (u, v5, v7, v9)] == list(DIALECTS)
    assert [d.rounding for d in (u, v5, v7, v9)] == ["ceil_cap", "ceil", "floor", "floor"]
    assert (v7.max_aspect, v7.mosaic9, v7.mix_beta, v7.box_margin) == (20.0, 0.2, 8.0, -1.0)
    assert (u.additive_hue, v5.additive_hue) == (True, False)
    assert (u.max_aspect, v5.max_aspect) == (100.0, 100.0)
    assert (u.batch_dict, v5.batch_dict, v9.batch_dict) == (True, False, False)
    with pytest.raises(ConfigError, match="expected one of 'ultralytics', 'yolov5', 'yolov7', 'yolov9'"):
        get_dialect("yolov8")
