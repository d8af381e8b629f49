"""Trainings and validations with a stock code base in one process: importing it takes longer than one of them.

    python -m fastyolo_data run stock_jobs.py '[{"do": "train", "module": "yolov5.train", "options": {"epochs": 1}}]'

Options are those of the script's command line. "train" runs the training, "validate" runs the validation with this
loader and, after unpatch(), once more with the stock loader; it must be the last. A line "RESULTS [...]" holds what
came out.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import fastyolo_data
from fastyolo_data.loader import FastLoader

COUNTS: Counter[str] = Counter()  # "ours": batches of fastyolo_data, "stock": samples of stock data sets


def count_batches() -> None:
    """Count the batches that fastyolo_data hands over."""
    original = FastLoader.__iter__

    @functools.wraps(original)
    def counted(self: FastLoader) -> Iterator[Any]:
        for batch in original(self):
            COUNTS["ours"] += 1
            yield batch

    FastLoader.__iter__ = counted


def count_samples() -> None:
    """Count the samples that data sets of the loaded stock code make in this process (workers=0: in no other)."""
    for module in list(sys.modules.values()):
        for name in ("LoadImagesAndLabels", "LoadImagesAndLabelsAndMasks"):
            kind = vars(module).get(name)
            if not isinstance(kind, type) or kind.__module__.startswith("fastyolo_data"):
                continue
            if "__getitem__" in vars(kind) and not hasattr(kind.__getitem__, "__wrapped__"):
                kind.__getitem__ = _counted(kind.__getitem__)


def _counted(original: Any) -> Any:
    @functools.wraps(original)
    def counted(self: Any, index: int) -> Any:
        COUNTS["stock"] += 1
        return original(self, index)

    return counted


def load(module: str) -> ModuleType:
    code = importlib.import_module(module)
    count_samples()
    COUNTS.clear()
    return code


def train(module: str, options: dict[str, Any]) -> dict[str, Any]:
    """One training; returns who loaded the batches."""
    code = load(module)
    opt = code.parse_opt(True)
    vars(opt).update(options)
    code.main(opt, code.Callbacks())  # the default would collect the loggers of all trainings
    return dict(COUNTS)


def validate(module: str, options: dict[str, Any]) -> dict[str, Any]:
    """Metrics and predictions of the same weights through both loaders, and who loaded the batches."""
    code = load(module)
    code.opt = SimpleNamespace(min_items=0)  # YOLOv9's validation reads this global
    found: dict[str, Any] = {}
    for name in ("ours", "stock"):
        COUNTS.clear()
        boxes: list[Any] = []
        with mock.patch.object(code, "non_max_suppression", _recorded(code.non_max_suppression, boxes)):
            (metrics, *_) = code.run(**options, name=name, plots=False)
        found[name] = {"metrics": [float(m) for m in metrics], "predictions": boxes, "counts": dict(COUNTS)}
        if name == "ours":
            found["unpatched"] = fastyolo_data.unpatch()
    found["same_predictions"] = found["ours"].pop("predictions") == found["stock"]["predictions"]
    found["predictions"] = [len(image) for image in found["stock"].pop("predictions")]
    return found


def _recorded(suppress: Any, boxes: list[Any]) -> Any:
    """The stock function that yields the predictions of a batch; they are added to `boxes`, image by image."""

    @functools.wraps(suppress)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = suppress(*args, **kwargs)
        boxes.extend(image.tolist() for image in found)
        return found

    return recorded


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=json.loads)
    parser.add_argument("--path", help="folder that holds the scripts, if they are not in a package")
    arguments = parser.parse_args()
    sys.argv[1:] = []
    if arguments.path:
        sys.path.insert(0, arguments.path)
    count_batches()
    steps = {"train": train, "validate": validate}
    print("RESULTS", json.dumps([steps[j["do"]](j["module"], j["options"]) for j in arguments.jobs]), flush=True)
