"""Runs the tests of this folder that need YOLOv5 or YOLOv9 in an environment that has them."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.stock_env import ROOT

FILES = sorted(f.name for f in (ROOT / "tests" / "parity").glob("test_yolo*.py") if "yolov7" not in f.name)


@pytest.mark.skipif(importlib.util.find_spec("yolov5") is not None, reason="the tests run in this environment")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.timeout(600)
def test_parity_in_stock_env(stock_env, name, tmp_path):
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=250", f"tests/parity/{name}"]
    extra = {"YOLOV9_REPO": str(stock_env.packages / "yolov9"), "TMPDIR": str(tmp_path)}
    done = stock_env.run(command, ROOT, extra, timeout=580)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(r"\d+ passed", done.stdout), done.stdout[-2000:]
