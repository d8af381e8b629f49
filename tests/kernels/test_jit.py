"""Where compiled kernels are kept, and what happens where they cannot be."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys

import numba.core.caching
import pytest

from fastyolo_data.kernels import _jit
from fastyolo_data.kernels._jit import kernel


def test_without_a_writable_folder_kernels_still_compile(monkeypatch, caplog):
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("nothing is compiled with NUMBA_DISABLE_JIT=1")
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    with caplog.at_level(logging.WARNING, "fastyolo_data"):
        twice = kernel(lambda x: 2 * x)
    assert twice(21) == 42
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_an_edited_helper_of_another_file_is_compiled_again(tmp_path):
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("nothing is compiled with NUMBA_DISABLE_JIT=1")
    room = tmp_path / "room"
    room.mkdir()
    shutil.copy(_jit.__file__, room / "_jit.py")
    (room / "entry.py").write_text(
        "from room._jit import kernel\nfrom room.helper import half\n\n@kernel\ndef entry(x):\n    return half(x)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    code = "from room.entry import entry; print(entry(12.0), sum(entry.stats.cache_hits.values()))"

    def run(divisor):
        helper = f"from room._jit import inline\n\n@inline\ndef half(x):\n    return x / {divisor}\n"
        (room / "helper.py").write_text(helper)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert run(2) == ["6.0", "0"]
    assert run(2) == ["6.0", "1"]
    assert run(3) == ["4.0", "0"]


@pytest.mark.slow
def test_after_warming_up_a_new_process_compiles_nothing(tmp_path, generated_polygons):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    warm = [sys.executable, "-m", "fastyolo_data", "warmup"]
    first = subprocess.run(warm, env=environment, capture_output=True, text=True, check=True, timeout=280)
    assert "kernels are ready" in first.stdout
    before = sorted(tmp_path.rglob("*.nbc"))
    code = f"""
import fastyolo_data as fy
for dialect in ("ultralytics", "yolov5"):
    for split in ("train", "val"):
        for hyp in ({{}}, {{"mixup": 1.0, "degrees": 9.0, "mosaic": 0.5}}):
            for _ in range(2):  # the labels come from a scan, then from the cache
                with fy.build_loader({str(generated_polygons)!r}, split=split, hyp=hyp, dialect=dialect, imgsz=64,
                                     batch=4, workers=2, verbose=False) as loader:
                    for batch in loader:
                        pass
"""
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=200)
    assert sorted(tmp_path.rglob("*.nbc")) == before, "every signature that training uses was compiled by warmup"
