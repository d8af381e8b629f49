"""Tiny data sets and a Pillow probe for the tests of the labels room."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastyolo_data.datatypes import DataSpec, LabelTable
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.labels import load_labels


class CountingProbe:
    """Reads image sizes with Pillow and remembers which files it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str) -> tuple[int, int]:
        self.asked.append(path)
        try:
            with Image.open(path) as im:
                return im.size[1], im.size[0]
        except OSError as e:
            raise ImageDecodeError(f"{path}: {e}") from e

    def names(self) -> list[str]:
        """Return the file names asked for since the last call."""
        names = sorted(os.path.basename(p) for p in self.asked)
        self.asked.clear()
        return names


@pytest.fixture
def probe() -> CountingProbe:
    return CountingProbe()


def png_bytes(w: int = 16, h: int = 12) -> bytes:
    b = io.BytesIO()
    Image.fromarray(np.full((h, w, 3), 90, np.uint8)).save(b, "PNG")
    return b.getvalue()


Maker = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Return make(stem, label, image=…, folder=…): writes <tmp>/ds/images/train/<stem>.png and its label."""
    image_bytes = png_bytes()

    def _make(stem: str, label: str | bytes | None = None, image: bytes = image_bytes, ext: str = "png") -> Path:
        im = tmp_path / "ds/images/train" / f"{stem}.{ext}"
        im.parent.mkdir(parents=True, exist_ok=True)
        im.write_bytes(image)
        lb = tmp_path / "ds/labels/train" / f"{stem}.txt"
        lb.parent.mkdir(parents=True, exist_ok=True)
        if label is not None:
            lb.write_bytes(label.encode() if isinstance(label, str) else label)
        return im

    return _make


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's cache folder out of the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user_cache"))
    monkeypatch.delenv("FASTYOLO_CACHE_DIR", raising=False)
    return tmp_path / "user_cache/fastyolo_data/labels"


@pytest.fixture
def load(tmp_path: Path, probe: CountingProbe) -> Callable[..., LabelTable]:
    """Return load(**options) for <tmp>/ds with classes a, b, c."""

    def _load(names: str = "abc", **options: object) -> LabelTable:
        spec = DataSpec((tmp_path / "ds/images/train",), tuple(names), tmp_path / "ds", origin="data.yaml")
        return load_labels(spec, probe=options.pop("probe", probe), verbose=options.pop("verbose", False), **options)

    return _load
