"""Draw samples with their labels, and lay the pictures out in a grid."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ConfigError

__all__ = ["GAP", "GREY", "Sample", "class_colour", "draw_grid", "draw_sample"]

GAP = 4  # pixels between pictures
GREY, INK = (40, 40, 40), (235, 235, 235)
FONT = cv2.FONT_HERSHEY_SIMPLEX
CROWD = 60  # with more boxes: thin lines, and names that would cover the same name are left out
MAX_SIDE = 65_500  # what JPEG can hold; a PNG this large would not be looked at either


@dataclass(frozen=True)
class Sample:
    """One picture of a batch with its labels.

    Attributes:
        im: (h, w, 3) uint8 BGR, own memory.
        cls: (n,) class numbers.
        xyxy: (n, 4) boxes in pixels of `im`.
        im_file: path of the sample's own image (a mosaic shows three others as well).
    """

    im: U8Image
    cls: npt.NDArray[np.int64]
    xyxy: npt.NDArray[np.float64]
    im_file: str


def class_colour(cls: int) -> tuple[int, int, int]:
    """Bright BGR colour of a class: hues a golden section apart, so that neighbouring numbers differ most."""
    r, g, b = colorsys.hsv_to_rgb((0.33 + cls * 0.61803398875) % 1.0, 0.9 if cls % 2 else 1.0, 1.0)
    return int(b * 255), int(g * 255), int(r * 255)


def draw_sample(sample: Sample, names: Sequence[str]) -> U8Image:
    """Return a copy of the picture with its boxes, and a strip below it with the file name.

    Args:
        sample: picture and labels.
        names: class names; numbers are drawn for missing ones, and for those that OpenCV's font lacks (not ASCII).
    """
    im = sample.im.copy()
    h, w = im.shape[:2]
    scale = min(max(max(h, w) / 1280, 0.36), 0.6)
    line = 2 if max(h, w) >= 320 and len(sample.cls) <= CROWD else 1
    size = sample.xyxy[:, 2:] - sample.xyxy[:, :2]
    order = np.argsort(-size.prod(1), kind="stable")  # small boxes are not covered by large ones
    corners = np.clip(np.rint(sample.xyxy), 0, (w - 1, h - 1, w - 1, h - 1)).astype(int)
    for i in order:
        x1, y1, x2, y2 = corners[i].tolist()
        cv2.rectangle(im, (x1, y1), (x2, y2), class_colour(int(sample.cls[i])), line)
    plates: list[tuple[int, int, int, int, int]] = []
    for i in order:
        cls = int(sample.cls[i])
        name = _name(cls, names)
        plate = (cls, *_plate(im, name, int(corners[i, 0]), int(corners[i, 1]), scale))
        if len(order) <= CROWD or not any(_covers(plate, other) for other in plates):
            plates.append(plate)
            _draw_name(im, name, plate, scale)
    strip = np.full((_text_size("Xg", scale)[1] + 6, w, 3), GREY, np.uint8)
    caption = f"{Path(sample.im_file).name}  {len(order)} box{'' if len(order) == 1 else 'es'}"
    cv2.putText(strip, _ascii(caption), (4, len(strip) - 7), FONT, scale, INK, 1, cv2.LINE_AA)
    return np.concatenate((im, strip))


def _name(cls: int, names: Sequence[str]) -> str:
    name = str(names[cls]) if cls < len(names) else ""
    return name if name and name.isascii() else str(cls)


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _text_size(text: str, scale: float) -> tuple[int, int]:
    """Width and height of a text, the part below the line included."""
    (w, h), below = cv2.getTextSize(text, FONT, scale, 1)
    return w, h + below


def _plate(im: U8Image, text: str, x: int, y: int, scale: float) -> tuple[int, int, int, int]:
    """Corners of a name's plate: above the corner (x, y) of its box, or inside the box at the picture's edge."""
    w, h = _text_size(text, scale)
    left = max(0, min(x, im.shape[1] - w - 4))
    top = y - h - 1 if y > h else y
    return left, top, left + w + 3, top + h


def _covers(a: tuple[int, int, int, int, int], b: tuple[int, int, int, int, int]) -> bool:
    """Whether the plates (class, x1, y1, x2, y2) overlap and say the same."""
    return a[0] == b[0] and a[1] <= b[3] and b[1] <= a[3] and a[2] <= b[4] and b[2] <= a[4]


def _draw_name(im: U8Image, text: str, plate: tuple[int, int, int, int, int], scale: float) -> None:
    """Write a name on its plate (class, x1, y1, x2, y2), in black or white, whatever is easier to read."""
    cls, x1, y1, x2, y2 = plate
    blue, green, red = class_colour(cls)
    cv2.rectangle(im, (x1, y1), (x2, y2), (blue, green, red), -1)
    ink = (0, 0, 0) if 0.114 * blue + 0.587 * green + 0.299 * red > 110 else (255, 255, 255)
    (_, above), _ = cv2.getTextSize(text, FONT, scale, 1)
    cv2.putText(im, text, (x1 + 2, y1 + above + 1), FONT, scale, ink, 1, cv2.LINE_AA)


def draw_grid(pictures: Sequence[U8Image], columns: int) -> U8Image:
    """Lay pictures out in rows; every cell has the size of the largest picture, gaps of GAP pixels between cells."""
    rows = -(-len(pictures) // columns)
    h, w = max(p.shape[0] for p in pictures), max(p.shape[1] for p in pictures)
    height, width = rows * (h + GAP) - GAP, columns * (w + GAP) - GAP
    if max(height, width) > MAX_SIDE:
        raise ConfigError(f"the picture would have {width}x{height} pixels; use a smaller --n or --imgsz")
    grid = np.full((height, width, 3), GREY, np.uint8)
    for i, picture in enumerate(pictures):
        y, x = i // columns * (h + GAP), i % columns * (w + GAP)
        grid[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    return grid
