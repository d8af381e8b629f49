"""The kernel tests again in processes of their own: with bounds checks, and as plain Python.

Each with a fresh cache folder: a warm cache holds code without bounds checks and would be used silently.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

HERE = Path(__file__).parent
FILES = [f"test_{k}.py" for k in ("warp", "warp_colour", "boxes", "pack", "instances", "masks", "oriented")]
# NumPy scalars warn where unsigned arithmetic wraps, which the packed blends do on purpose.
WARNINGS = {"NUMBA_BOUNDSCHECK": [], "NUMBA_DISABLE_JIT": ["-W", "ignore::RuntimeWarning"]}


@pytest.mark.skipif(bool(config.DISABLE_JIT or config.BOUNDSCHECK), reason="already inside such a mode")
@pytest.mark.parametrize("mode", WARNINGS)
def test_kernels(mode, tmp_path):
    env = {**os.environ, mode: "1", "NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *WARNINGS[mode]]
    done = subprocess.run(
        [*command, *(str(HERE / f) for f in FILES)],
        cwd=HERE.parents[1], env=env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
