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
        corners: (n, 4, 2) corners of oriented boxes in pixels of `im`, which `xyxy` surrounds; None for upright boxes.
        keypoints: (n, K, 3) x, y in pixels of `im`, and visibility: 0 none, 1 hidden, 2 visible; None without.
        objects: (h', w') int32, k + 1 where the k-th object is on top, 0 where none is; of any size, it stands for the
            whole picture. None without masks.
    """

    im: U8Image
    cls: npt.NDArray[np.int64]
    xyxy: npt.NDArray[np.float64]
    im_file: str
    corners: npt.NDArray[np.float64] | None = None
    keypoints: npt.NDArray[np.float64] | None = None
    objects: npt.NDArray[np.int32] | None = None


def class_colour(cls: int) -> tuple[int, int, int]:
    """Bright BGR colour of a class: hues a golden section apart, so that neighbouring numbers differ most."""
    r, g, b = colorsys.hsv_to_rgb((0.33 + cls * 0.61803398875) % 1.0, 0.9 if cls % 2 else 1.0, 1.0)
    return int(b * 255), int(g * 255), int(r * 255)


def draw_sample(sample: Sample, names: Sequence[str]) -> U8Image:
    """Return a copy of the picture with its labels, and a strip below it with the file name.

    Masks are mixed half and half with the picture, in the colours of the classes; names stand at the highest corner of
    oriented boxes. Keypoints have a colour for each place in the list, so that left and right can be told apart: full
    dots where they are visible, circles where they are hidden, nothing where they are not known.

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
    if sample.objects is not None:
        _tint(im, sample.objects, sample.cls)
    anchors = _draw_boxes(im, sample, order, line)
    if sample.keypoints is not None:
        _draw_keypoints(im, sample.keypoints)
    plates: list[tuple[int, int, int, int, int]] = []
    for i in order:
        cls = int(sample.cls[i])
        name = _name(cls, names)
        plate = (cls, *_plate(im, name, int(anchors[i, 0]), int(anchors[i, 1]), scale))
        if len(order) <= CROWD or not any(_covers(plate, other) for other in plates):
            plates.append(plate)
            _draw_name(im, name, plate, scale)
    strip = np.full((_text_size("Xg", scale)[1] + 6, w, 3), GREY, np.uint8)
    caption = f"{Path(sample.im_file).name}  {len(order)} box{'' if len(order) == 1 else 'es'}"
    cv2.putText(strip, _ascii(caption), (4, len(strip) - 7), FONT, scale, INK, 1, cv2.LINE_AA)
    return np.concatenate((im, strip))


def _tint(im: U8Image, objects: npt.NDArray[np.int32], cls: npt.NDArray[np.int64]) -> None:
    """Mix the pixels of objects with the colours of their classes."""
    h, w = im.shape[:2]
    full = cv2.resize(objects, (w, h), interpolation=cv2.INTER_NEAREST)
    colours = np.array([(0, 0, 0), *(class_colour(int(c)) for c in cls)], np.uint16)
    inside = full > 0
    im[inside] = (im[inside] + colours[full[inside]]) // 2


def _draw_boxes(im: U8Image, sample: Sample, order: npt.NDArray[np.int64], line: int) -> npt.NDArray[np.int64]:
    """Draw the boxes in that order; return (n, 2) corners inside the picture at which their names belong."""
    h, w = im.shape[:2]
    limits = (w - 1, h - 1)
    if sample.corners is None:
        upright = np.clip(np.rint(sample.xyxy), 0, limits * 2).astype(int)
        for i in order:
            x1, y1, x2, y2 = upright[i].tolist()
            cv2.rectangle(im, (x1, y1), (x2, y2), class_colour(int(sample.cls[i])), line)
        return upright[:, :2]
    corners = np.rint(sample.corners).astype(np.int32)
    for i in order:
        cv2.polylines(im, [corners[i]], True, class_colour(int(sample.cls[i])), line)
    highest = corners[np.arange(len(corners)), corners[:, :, 1].argmin(1)]
    return np.clip(highest, 0, limits).astype(int)


def _draw_keypoints(im: U8Image, keypoints: npt.NDArray[np.float64]) -> None:
    radius = max(2, round(max(im.shape[:2]) / 200))
    for points in keypoints:
        for k, (x, y, visibility) in enumerate(points.tolist()):
            centre = (round(x), round(y))
            if visibility > 1:
                cv2.circle(im, centre, radius + 1, (0, 0, 0), -1)
                cv2.circle(im, centre, radius, class_colour(k), -1)
            elif visibility > 0:
                cv2.circle(im, centre, radius, class_colour(k), 1)


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
