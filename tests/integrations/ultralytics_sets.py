"""Data sets and arguments in the form in which Ultralytics wants them, and comparisons with what it makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ultralytics.cfg import get_cfg
from ultralytics.data.build import build_dataloader as stock_dataloader
from ultralytics.data.build import build_yolo_dataset as stock_dataset
from ultralytics.data.utils import check_det_dataset

from fastyolo_data.integrations.ultralytics import build_dataloader, build_yolo_dataset

QUICK = {"imgsz": 96, "batch": 5, "workers": 2, "deterministic": False}


def absolute(yaml: Path) -> Path:
    """A yaml that Ultralytics understands: it takes `path: .` for the working directory."""
    lines = ["path: " + str(yaml.parent) if line.startswith("path:") else line for line in _lines(yaml)]
    copy = yaml.with_name(yaml.stem + "_absolute.yaml")
    copy.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return copy


def _lines(yaml: Path) -> list[str]:
    return yaml.read_text(encoding="utf-8").splitlines()


class Arguments:
    """What Ultralytics passes to its two build functions."""

    def __init__(self, yaml: Path, **overrides: Any) -> None:
        self.cfg = get_cfg(overrides={**QUICK, "task": "detect", "mode": "train", **overrides})
        self.data = check_det_dataset(str(absolute(yaml)))

    def dataset(self, mode: str, stock: bool = False, **kw: Any) -> Any:
        """Data set of a split, as the trainers build it."""
        build = stock_dataset if stock else build_yolo_dataset
        kw = {"rect": mode == "val", "stride": 32, **kw}
        return build(self.cfg, self.data[mode], self.cfg.batch, self.data, mode=mode, **kw)

    def loader(self, dataset: Any, stock: bool = False, **kw: Any) -> Any:
        """Loader of a data set, as the trainers build it."""
        build = stock_dataloader if stock else build_dataloader
        defaults = {"workers": 0 if stock else self.cfg.workers, "shuffle": getattr(dataset, "augment", False)}
        return build(dataset, self.cfg.batch, **{**defaults, "device": "cpu", **kw})


def assert_same_value(ours: Any, stock: Any, key: str) -> None:
    """Equal kind, shape and content; labels to 1e-6, everything else exactly."""
    if isinstance(stock, torch.Tensor):
        assert (ours.dtype, ours.shape) == (stock.dtype, stock.shape), key
        ours, stock = ours.numpy(), stock.numpy()
        if key in ("bboxes", "keypoints"):
            np.testing.assert_allclose(ours, stock, rtol=0, atol=1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(ours, stock, err_msg=key)
    elif isinstance(stock, (tuple, list)):
        assert len(ours) == len(stock), key
        for a, b in zip(ours, stock, strict=True):
            assert_same_value(a, b, key)
    elif isinstance(stock, np.ndarray):
        assert tuple(np.ravel(ours)) == tuple(stock.ravel()), key
    else:
        assert ours == stock, key


def assert_same_batches(ours: Any, stock: Any) -> int:
    """All batches of two loaders are equal; returns how many there were."""
    count = 0
    for mine, theirs in zip(ours, stock, strict=True):
        assert list(mine) == list(theirs)
        for key, value in theirs.items():
            assert type(mine[key]) is type(value), key
            assert_same_value(mine[key], value, key)
        count += 1
    return count
