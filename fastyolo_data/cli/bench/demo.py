"""Data sets for the benchmark: generated photos with labels, and existing sets made larger by repetition.

The generated pictures are meant to cost what COCO photos cost: 640x480 JPEG files of about 180 kB whose spectrum falls
like that of a photo (so that Huffman decoding has as much to do), with textured shapes on them that the labels name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import yaml

from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ConfigError

__all__ = ["SHAPES", "DemoSpec", "make_demo", "paint_photo", "repeat_dataset", "write_yaml"]

SHAPES = ("disc", "box", "triangle")
LOGGER = logging.getLogger(__name__)
_VERSION = 1  # part of the folder name: raise it when the pictures change
_QUALITY = 95


@dataclass(frozen=True)
class DemoSpec:
    """What a demo set consists of; equal specs give byte-equal sets under the same OpenCV and NumPy.

    Attributes:
        train, val: number of images in each split.
        width, height: picture size in pixels.
        seed: everything drawn depends on this and on the image's index only.
    """

    train: int = 256
    val: int = 32
    width: int = 640
    height: int = 480
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train < 1 or self.val < 0 or min(self.width, self.height) < 32:
            raise ConfigError(f"demo set: train must be >= 1, val >= 0 and each side >= 32; found {self}")

    def folder_name(self) -> str:
        """Return a name that is different for every different spec."""
        key = json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True)
        return f"demo-{self.train}x{self.width}x{self.height}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def make_demo(root: Path, spec: DemoSpec) -> Path:
    """Return the data.yaml of the demo set `spec` below `root`, generating the set unless it is there already.

    The set is made in a temporary folder and renamed when it is whole, so an interrupted run leaves nothing half done.
    """
    final = root / spec.folder_name()
    if (final / "data.yaml").exists():
        return final / "data.yaml"
    root.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".demo-", dir=root))
    try:
        _fill(work, spec)
        os.replace(work, final)
    except OSError:
        if not (final / "data.yaml").exists():  # else another process made the same set meanwhile
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final / "data.yaml"


def paint_photo(spec: DemoSpec, index: int, shapes: bool = True) -> tuple[U8Image, list[tuple[int, ...]]]:
    """Paint picture `index` of a demo set.

    Args:
        spec: size and seed.
        index: the picture's number; the pictures of the val split follow those of train.
        shapes: False leaves the shapes out but keeps the background (tests compare the two).

    Returns:
        A new (h, w, 3) uint8 BGR picture, and for each shape (class, x1, y1, x2, y2) in pixels, x2 and y2 exclusive:
        the bounds of what was drawn, cut at the picture's edges.
    """
    rng = np.random.Generator(np.random.Philox(key=[spec.seed, index]))
    canvas = _background(rng, spec.height, spec.width)
    boxes = []
    for _ in range(int(rng.integers(1, 13))):
        cls = int(rng.integers(len(SHAPES)))
        mask = _shape_mask(rng, cls, spec.height, spec.width)
        x, y, w, h = cv2.boundingRect(mask)
        texture = _noise(rng, h, w, 3, (2, 8)) * 26 + rng.uniform(20, 235, 3)
        if w * h and shapes:
            inside = mask[y : y + h, x : x + w, None] > 0
            canvas[y : y + h, x : x + w] = np.where(inside, texture, canvas[y : y + h, x : x + w])
        if w * h:
            boxes.append((cls, x, y, x + w, y + h))
    grain = rng.normal(0, 6.5, (spec.height, spec.width, 1)) + rng.normal(0, 2.5, canvas.shape)
    return np.clip(canvas + grain, 0, 255).astype(np.uint8), boxes


def repeat_dataset(image_files: Sequence[Path], label_files: Sequence[Path], dst: Path, times: int) -> list[Path]:
    """Put images and labels `times` times below dst/images and dst/labels, each copy under a name of its own.

    Args:
        image_files: the images; equal base names from different folders don't collide.
        label_files: one path for each image; a path that doesn't exist means a background image.
        dst: the folder to fill; created.
        times: how often each image appears; 1 just copies.

    Returns:
        The new image files, in the order of `image_files`, the whole list repeated.

    The first image of each name is a true copy, never a hard link to the source: a loader that repairs or rewrites
    its input must not reach the user's file. Its repetitions are hard links to that copy where the file system can.
    """
    if times < 1:
        raise ConfigError(f"repeat: expected 1 or more, found {times}")
    (dst / "images").mkdir(parents=True, exist_ok=True)
    (dst / "labels").mkdir(parents=True, exist_ok=True)
    out = []
    for k in range(times):
        for i, (image, label) in enumerate(zip(image_files, label_files, strict=True)):
            stem = f"{i:06d}_{image.stem}"
            target = dst / "images" / f"r{k:03d}_{stem}{image.suffix}"
            first = dst / "images" / f"r000_{stem}{image.suffix}"
            if k == 0:
                shutil.copyfile(image, target)
            else:
                _link_or_copy(first, target)
            if label.exists():
                shutil.copyfile(label, dst / "labels" / f"r{k:03d}_{stem}.txt")
            out.append(target)
    return out


def write_yaml(folder: Path, train: str, val: str, names: Sequence[str], **keys: list[int]) -> Path:
    """Write folder/data.yaml with an absolute `path`, and more keys, and return its path."""
    spec = {"path": str(folder.resolve()), "train": train, "val": val, "names": dict(enumerate(names)), **keys}
    (folder / "data.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return folder / "data.yaml"


def _fill(folder: Path, spec: DemoSpec) -> None:
    """Write every image and label of the set below folder, and its data.yaml (with a relative path)."""
    for split in ("train", "val"):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)

    def one(index: int) -> None:
        split = "train" if index < spec.train else "val"
        im, boxes = paint_photo(spec, index)
        ok, data = cv2.imencode(".jpg", im, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        if not ok:
            raise OSError(f"OpenCV could not encode demo picture {index}")
        (folder / "images" / split / f"{index:06d}.jpg").write_bytes(data.tobytes())
        lines = [_label_line(box, spec.width, spec.height) for box in boxes]
        (folder / "labels" / split / f"{index:06d}.txt").write_text("".join(lines), encoding="utf-8")

    total = spec.train + spec.val
    LOGGER.info("generating %d demo pictures of %dx%d in %s", total, spec.width, spec.height, folder.parent)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(one, range(total)))
    text = {"path": ".", "train": "images/train", "val": "images/val", "names": dict(enumerate(SHAPES))}
    (folder / "data.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")


def _label_line(box: tuple[int, ...], width: int, height: int) -> str:
    """Return one YOLO label line for (class, x1, y1, x2, y2) in pixels."""
    cls, x1, y1, x2, y2 = box
    x, y, w, h = (x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height
    return f"{cls} {x:.6f} {y:.6f} {w:.6f} {h:.6f}\n"


def _noise(rng: np.random.Generator, h: int, w: int, channels: int, cells: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return (h, w, channels) float32 smooth noise of about unit variance: one octave for each cell size in pixels."""
    out = np.zeros((h, w, channels), np.float32)
    for cell in cells:
        grid = rng.standard_normal((h // cell + 2, w // cell + 2, channels), np.float32)
        out += cv2.resize(grid, (w, h), interpolation=cv2.INTER_CUBIC).reshape(out.shape)
    return out / np.float32(len(cells) ** 0.5)


def _background(rng: np.random.Generator, h: int, w: int) -> npt.NDArray[np.float32]:
    """Return a float32 (h, w, 3) scene: a gradient of two colours under 1/f brightness and colour noise."""
    top, bottom = rng.uniform(40, 215, (2, 3)).astype(np.float32)
    ramp = np.linspace(0, 1, h, dtype=np.float32)[:, None, None]
    scene = np.broadcast_to(top * (1 - ramp) + bottom * ramp, (h, w, 3)).copy()
    for cell, gain in ((128, 24), (48, 16), (16, 11), (6, 11), (2, 11)):
        scene += _noise(rng, h, w, 1, (cell,)) * np.float32(gain)
    return scene + _noise(rng, h, w, 3, (64, 12)) * np.float32(9)


def _shape_mask(rng: np.random.Generator, cls: int, h: int, w: int) -> U8Image:
    """Return a (h, w) uint8 mask, 255 inside one shape of class `cls` at a random place, turned and sized at random."""
    mask = np.zeros((h, w), np.uint8)
    size = float(np.exp(rng.uniform(np.log(0.04), np.log(0.35)))) * min(h, w)
    cx, cy, angle = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0, 360)
    rx, ry = size * rng.uniform(0.5, 1.0, 2)
    if SHAPES[cls] == "disc":
        cv2.ellipse(mask, (int(cx), int(cy)), (int(rx) + 1, int(ry) + 1), angle, 0, 360, 255, -1)
        return mask
    corners = cv2.boxPoints(((cx, cy), (2 * rx + 2, 2 * ry + 2), angle))
    if SHAPES[cls] == "triangle":
        corners = corners[:3]
    cv2.fillPoly(mask, [np.round(corners).astype(np.int32)], 255)
    return mask


def _link_or_copy(src: Path, dst: Path) -> None:
    """Hard-link src to dst, or copy it where the file system has no links."""
    try:
        os.link(src, dst)
    except OSError:
        shutil.copyfile(src, dst)
