"""Data sets for all tests: real photos from ../shared/data where they are, generated ones always."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.stock_env import StockEnv, make_stock_env

# Ultralytics must neither install packages, nor ask the network, nor write into the home folder.
os.environ.setdefault("YOLO_AUTOINSTALL", "False")
os.environ.setdefault("YOLO_OFFLINE", "True")
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.mkdtemp(prefix="yolo-config-"))

SHARED = Path(__file__).resolve().parents[2] / "shared"


def paint(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """A smooth picture with edges, (h, w, 3) uint8 BGR; interpolation errors on it are like those on a photo."""
    im = cv2.resize(rng.integers(30, 226, (5, 6, 3), dtype=np.uint8), (w, h), interpolation=cv2.INTER_CUBIC)
    for _ in range(6):
        x, y = int(rng.integers(0, w)), int(rng.integers(0, h))
        radius = int(rng.integers(4, max(5, min(h, w) // 4)))
        cv2.circle(im, (x, y), radius, tuple(int(v) for v in rng.integers(0, 256, 3)), -1, cv2.LINE_AA)
    noise = rng.normal(0, 4, im.shape)
    return np.clip(im + noise, 0, 255).astype(np.uint8)


def polygon(rng: np.random.Generator, cx: float, cy: float, rx: float, ry: float) -> np.ndarray:
    """(k, 2) normalised vertices around a centre, inside the picture."""
    k = int(rng.integers(5, 40))
    angle = np.sort(rng.uniform(0, 2 * np.pi, k))
    r = rng.uniform(0.5, 1.0, k)
    return np.clip(np.stack((cx + rx * r * np.cos(angle), cy + ry * r * np.sin(angle)), 1), 0, 1)


def keypoints(rng: np.random.Generator, cx: float, cy: float, rx: float, ry: float) -> np.ndarray:
    """(5, 3) normalised keypoints in a box and a little around it, with visibility 0, 1 or 2."""
    xy = np.clip((cx, cy) + rng.uniform(-1.2, 1.2, (5, 2)) * (rx, ry), 0, 1)
    return np.concatenate((xy, rng.integers(0, 3, (5, 1))), 1)


def corners(rng: np.random.Generator, cx: float, cy: float, rx: float, ry: float, h: int, w: int) -> np.ndarray:
    """(4, 2) normalised corners of a turned rectangle that is not quite a square."""
    angle = rng.uniform(0, np.pi)
    along = np.array([np.cos(angle), np.sin(angle)]) * 0.7 * min(rx * w, ry * h)
    across = np.array([-along[1], along[0]]) * rng.uniform(0.2, 0.8)
    pixels = np.array([along + across, along - across, -along - across, across - along])
    return np.clip((cx, cy) + pixels / (w, h), 0, 1)


def label_numbers(rng: np.random.Generator, kind: str, cx: float, cy: float, rx: float, ry: float, h: int, w: int):
    """What follows the class in a label row of an object."""
    box = (cx, cy, 2 * rx, 2 * ry)
    if kind == "boxes":
        return box
    if kind == "pose":
        return (*box, *keypoints(rng, cx, cy, rx, ry).ravel())
    return (polygon(rng, cx, cy, rx, ry) if kind == "polygons" else corners(rng, cx, cy, rx, ry, h, w)).ravel()


def write_set(root: Path, kind: str, n: int = 24, seed: int = 0) -> Path:
    """Write a small data set; kind is "boxes", "polygons", "pose" or "obb".

    Sizes, orientations and formats vary; two backgrounds.
    """
    rng = np.random.default_rng(seed)
    sizes = [(480, 640), (640, 427), (333, 500), (101, 640), (700, 900), (64, 48)]
    for split in ("train", "val"):
        for i in range(n if split == "train" else n // 2):
            h, w = sizes[i % len(sizes)]
            image = root / "images" / split / f"im{i:03d}.{'png' if i % 5 == 4 else 'jpg'}"
            label = root / "labels" / split / f"im{i:03d}.txt"
            image.parent.mkdir(parents=True, exist_ok=True)
            label.parent.mkdir(parents=True, exist_ok=True)
            im = paint(rng, h, w)
            cv2.imwrite(str(image), cv2.cvtColor(im, cv2.COLOR_BGR2GRAY) if i % 7 == 3 else im)
            rows = []
            for _ in range(0 if i % 8 == 6 else int(rng.integers(1, 9))):
                cx, cy, rx, ry = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), *rng.uniform(0.02, 0.3, 2)
                rx, ry = min(rx, cx, 1 - cx), min(ry, cy, 1 - cy)
                values = label_numbers(rng, kind, cx, cy, rx, ry, h, w)
                rows.append(f"{int(rng.integers(0, 3))} " + " ".join(f"{v:.6f}" for v in values))
            label.write_text("\n".join(rows) + "\n")
    path = root / "data.yaml"
    pose = "kpt_shape: [5, 3]\nflip_idx: [1, 0, 2, 4, 3]\n" if kind == "pose" else ""
    path.write_text("path: .\ntrain: images/train\nval: images/val\nnames: [a, b, c]\n" + pose)
    return path


@pytest.fixture(scope="session")
def generated_boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of a generated set with boxes."""
    return write_set(tmp_path_factory.mktemp("boxes"), "boxes")


@pytest.fixture(scope="session")
def generated_polygons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of a generated set with polygons."""
    return write_set(tmp_path_factory.mktemp("polygons"), "polygons", seed=1)


@pytest.fixture(scope="session")
def generated_pose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of a generated set with keypoints."""
    return write_set(tmp_path_factory.mktemp("pose"), "pose", seed=2)


@pytest.fixture(scope="session")
def generated_obb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of a generated set with oriented boxes."""
    return write_set(tmp_path_factory.mktemp("obb"), "obb", seed=3)


@pytest.fixture(scope="session")
def shared_copy(tmp_path_factory: pytest.TempPathFactory):
    """Function: name of a set in ../shared/data -> yaml of a writable copy; skips where it is absent."""
    copies: dict[str, Path] = {}

    def copy(name: str) -> Path:
        source = SHARED / "data" / name
        if not source.is_dir():
            pytest.skip(f"{source} is not there; the generated sets stand in for it")
        if name not in copies:
            copies[name] = Path(shutil.copytree(source, tmp_path_factory.mktemp("shared") / name)) / f"{name}.yaml"
        return copies[name]

    return copy


@pytest.fixture
def data_yaml(request: pytest.FixtureRequest) -> Path:
    """Parametrised indirectly with a kind of generated set, or the name of a set in ../shared/data."""
    if request.param in ("boxes", "polygons", "pose", "obb"):
        return request.getfixturevalue(f"generated_{request.param}")
    return request.getfixturevalue("shared_copy")(request.param)


@pytest.fixture(scope="session")
def stock_env() -> StockEnv:
    """An environment with the training code of YOLOv5 and YOLOv9."""
    return make_stock_env()
