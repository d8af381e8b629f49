"""Runs the tests of this folder that need YOLOv5 or YOLOv9 in an environment that has them."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.stock_env import ROOT

# Those of YOLOv7 need a checkout, and no old libraries.
FILES = sorted(str(f) for f in (ROOT / "tests" / "parity").glob("test_yolo*.py") if "yolov7" not in f.name)


@pytest.mark.skipif(importlib.util.find_spec("yolov5") is not None, reason="the tests run in this environment")
@pytest.mark.timeout(1200)
def test_parity_in_stock_env(stock_env, tmp_path):
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=8", *FILES]
    extra = {"YOLOV9_REPO": str(stock_env.packages / "yolov9"), "TMPDIR": str(tmp_path)}
    done = stock_env.run(command, ROOT, extra, timeout=1180)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-8000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 100
