"""Options: every wrong one is refused with what was found and what is allowed; the defaults are the documented ones."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.config import LoaderConfig
from fastyolo_data.errors import ConfigError, FastYoloError
from fastyolo_data.machine import cpu_count

DEFAULTS = {
    k: p.default
    for k, p in inspect.signature(fy.build_loader).parameters.items()
    if k not in ("data", "device") and p.default is not inspect.Parameter.empty
}


def check(**options) -> LoaderConfig:
    return LoaderConfig.check(**{**DEFAULTS, **options})


# option, value, parts of the message
BAD = [
    ("cache", "redis", ["cache='redis'", "'ram'", "'lmdb'", "'memmap'", "'auto'", "None or False"]),
    ("cache", 1, ["cache=1", "'ram'"]),
    ("cache", ["ram"], ["cache=['ram']", "'ram'"]),
    ("cache", b"ram", ["cache=b'ram'"]),
    ("cache_dir", 5, ["cache_dir=5", "path"]),
    ("workers", -1, ["workers=-1", ">= 0"]),
    ("workers", True, ["workers=True", "whole number"]),
    ("workers", 2.0, ["workers=2.0", "whole number"]),
    ("workers", "4", ["workers='4'", "whole number"]),
    ("batch", 0, ["batch=0", ">= 1"]),
    ("batch", -4, ["batch=-4", ">= 1"]),
    ("batch", True, ["batch=True", "whole number"]),
    ("batch", 1.5, ["batch=1.5", "whole number"]),
    ("batch", None, ["batch=None", "whole number"]),
    ("imgsz", 650, ["imgsz=650", "stride=32", "640 or 672", "stride of your model"]),
    ("imgsz", 20, ["imgsz=20", "use 32"]),
    ("imgsz", 0, ["imgsz=0", ">= 10"]),
    ("imgsz", (640, 640), ["imgsz=(640, 640)", "whole number"]),
    ("imgsz", 640.0, ["imgsz=640.0", "whole number"]),
    ("imgsz", True, ["imgsz=True", "whole number"]),
    ("stride", 0, ["stride=0", ">= 1"]),
    ("pad", -0.1, ["pad=-0.1", "0 to 8"]),
    ("pad", float("nan"), ["pad=nan", "0 to 8"]),
    ("pad", True, ["pad=True", "0 to 8"]),
    ("pad", "0.5", ["pad='0.5'", "0 to 8"]),
    ("seed", None, ["seed=None", "whole number"]),
    ("seed", 0.5, ["seed=0.5", "whole number"]),
    ("rank", 1, ["rank=1", "world_size=None", "both or neither"]),
    ("world_size", 2, ["rank=None", "world_size=2", "both or neither"]),
    ("classes", 3, ["classes=3", "list of class numbers"]),
    ("classes", "person", ["classes='person'", "list of class numbers"]),
    ("classes", [0, -1], ["classes=-1", ">= 0"]),
    ("classes", [0.5], ["classes=0.5", "whole number"]),
    ("fraction", 0, ["fraction=0", "(0, 1]"]),
    ("fraction", -0.5, ["fraction=-0.5", "(0, 1]"]),
    ("fraction", 1.5, ["fraction=1.5", "whole number of images"]),
    ("fraction", float("nan"), ["fraction=nan", "(0, 1]"]),
    ("fraction", float("inf"), ["fraction=inf", "(0, 1]"]),
    ("fraction", True, ["fraction=True", "(0, 1]"]),
    ("fraction", "half", ["fraction='half'", "(0, 1]"]),
    ("image_weights", [1, -1], ["image_weights", ">= 0"]),
    ("image_weights", [0, 0], ["image_weights", "sum above 0"]),
    ("image_weights", [float("inf"), 1], ["image_weights", "finite"]),
    ("image_weights", [[1, 2]], ["image_weights", "(1, 2)"]),
    ("image_weights", ["a", "b"], ["image_weights", "number per image"]),
    ("image_weights", "even", ["image_weights", "'even'", "'balanced'"]),
    ("mosaic_pool", "all", ["mosaic_pool='all'", "'recent'", "'uniform'"]),
    ("numerics", "precise", ["numerics='precise'", "'fast'", "'exact'"]),
    ("numerics", None, ["numerics=None", "'fast'"]),
    ("dialect", "yolov8", ["dialect='yolov8'", "'ultralytics'", "'yolov5'", "'yolov9'"]),
    ("dialect", None, ["dialect=None", "'ultralytics'"]),
    ("dialect", ["yolov5"], ["dialect=['yolov5']", "'ultralytics'"]),
    ("task", "classify", ["task='classify'", "'detect'"]),
    ("split", "", ["split=''", "'train'"]),
    ("split", 1, ["split=1", "'train'"]),
    ("prefetch", 0, ["prefetch=0", ">= 1"]),
    ("imgsz", 16384, ["imgsz=16384", "8192"]),
    ("augment", 1, ["augment=1", "True or False"]),
    ("shuffle", "yes", ["shuffle='yes'", "True or False"]),
    ("rect", 0, ["rect=0", "True or False"]),
    ("drop_last", None, ["drop_last=None", "True or False"]),
    ("single_cls", 1, ["single_cls=1", "True or False"]),
    ("rescan", "no", ["rescan='no'", "True or False"]),
    ("verbose", 2, ["verbose=2", "True or False"]),
    ("hyp", {"mosiac": 1.0}, ["'mosiac'", "did you mean 'mosaic'"]),
    ("hyp", {"fliplr": 2}, ["fliplr=2", "0 to 1"]),
    ("hyp", 5, ["hyp=5", "dict"]),
    ("hyp", "missing_hyp.yaml", ["missing_hyp.yaml", "cannot be read"]),
]


@pytest.mark.parametrize(("option", "value", "parts"), BAD, ids=[f"{o}-{v!r}" for o, v, _ in BAD])
def test_bad_option(option, value, parts):
    with pytest.raises(ConfigError) as caught:
        check(**{option: value})
    for part in parts:
        assert part in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FastYoloError)


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0), (True, 2), (0, 1.0)])
def test_bad_ranks(rank, world):
    with pytest.raises(ConfigError, match=r"rank=|world_size="):
        check(rank=rank, world_size=world)


@pytest.mark.parametrize("other", [{"shuffle": True}, {"image_weights": [1, 2]}])
def test_rect_contradicts_shuffling(other):
    with pytest.raises(ConfigError, match="rect=True sorts"):
        check(rect=True, **other)


def test_options_are_checked_before_anything_is_read():
    """The data does not exist, yet the first complaint is about the option, from both entry points."""
    for build in (fy.build_loader, fy.build_dataset):
        with pytest.raises(ConfigError, match="batch=0"):
            build("/nowhere/data.yaml", batch=0)
    with pytest.raises(ConfigError, match="no option 'bacth'"):
        fy.build_dataset("/nowhere/data.yaml", bacth=4)
    with pytest.raises(TypeError, match="bacth"):
        fy.build_loader("/nowhere/data.yaml", bacth=4)


def test_defaults_of_training():
    c = check()
    assert (c.split, c.imgsz, c.batch, c.stride, c.seed, c.prefetch) == ("train", 640, 16, 32, 0, 2)
    assert (c.augment, c.shuffle, c.rect, c.drop_last, c.single_cls, c.rescan) == (
        True,
        True,
        False,
        False,
        False,
        False,
    )
    assert (c.cache, c.cache_dir, c.task, c.dialect, c.numerics) == ("auto", None, "detect", "ultralytics", "fast")
    assert (c.mosaic_pool, c.pad, c.fraction, c.classes, c.image_weights) == ("recent", 0.0, 1.0, None, None)
    assert (c.rank, c.world_size) == (0, 1)
    assert c.workers == min(cpu_count(), 8)
    assert c.hyp == fy.Hyp()
    assert c.verbose


def test_defaults_that_follow_from_others():
    val = check(split="val")
    assert (val.augment, val.shuffle, val.pad, val.mosaic_pool) == (False, False, 0.5, "uniform")
    assert check(split="val", augment=True).pad == 0.0
    assert not check(rect=True).shuffle
    assert check(shuffle=False).mosaic_pool == "uniform"
    assert check(shuffle=False, mosaic_pool="recent").mosaic_pool == "recent"
    weighted = check(shuffle=False, image_weights=[1, 2])
    assert weighted.shuffle
    assert weighted.mosaic_pool == "recent"


@pytest.mark.parametrize(
    ("given", "meant"),
    [(None, "none"), (False, "none"), ("none", "none"), ("", "none"), (True, "ram"), ("RAM", "ram"), ("disk", "memmap"),
     ("memmap", "memmap"), ("lmdb", "lmdb"), ("auto", "auto")],
)  # fmt: skip
def test_names_of_caches(given, meant):
    assert check(cache=given).cache == meant


def test_values_from_numpy_and_paths_are_taken():
    c = check(
        batch=np.int64(4), imgsz=np.int32(320), pad=np.float32(0.5), fraction=np.float64(0.5), cache_dir=Path("~/x"),
        rank=np.int64(1), world_size=np.int64(2), classes=np.array([0, 2]), seed=np.int64(-3), drop_last=np.bool_(True),
        image_weights=np.array([1, 2], np.int32),
    )  # fmt: skip
    assert (c.batch, c.imgsz, c.pad, c.fraction, c.classes, c.seed) == (4, 320, 0.5, 0.5, (0, 2), -3)
    assert (c.rank, c.world_size, c.drop_last) == (1, 2, True)
    assert {type(v) for v in (c.batch, c.imgsz, c.rank, c.world_size, c.seed)} == {int}
    assert c.cache_dir == Path.home() / "x"
    assert c.image_weights.dtype == np.float64


@pytest.mark.parametrize("fraction", [0.1, 1, 1.0, 20, 1e-9])
def test_fractions(fraction):
    assert check(fraction=fraction).fraction == fraction


def test_config_is_frozen():
    with pytest.raises(AttributeError):
        check().batch = 3
