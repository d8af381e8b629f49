"""The package's public names, and what importing it costs and changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fastyolo_data


def test_every_public_name_is_there():
    for name in fastyolo_data.__all__:
        assert getattr(fastyolo_data, name) is not None
    assert dir(fastyolo_data) == sorted(fastyolo_data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'build_everything'"):
        fastyolo_data.build_everything  # noqa: B018


def test_importing_the_package_alone_loads_nothing_heavy():
    code = "import sys, fastyolo_data; print([m for m in ('torch', 'numba', 'cv2', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
