"""Data that travels between rooms: flat arrays in frozen dataclasses, no object per image."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

__all__ = ["TASKS", "DataSpec", "F32Array", "LabelTable", "PackedStrings", "U8Image"]

U8Image = npt.NDArray[np.uint8]
F32Array = npt.NDArray[np.float32]

TASKS = ("detect", "segment", "pose", "obb")


class PackedStrings(Sequence[str]):
    """An immutable list of strings in one byte array: a path costs its bytes plus 8, not a Python object.

    Args:
        blob: (total,) uint8, the UTF-8 texts (surrogateescape, so any file name survives) one after the other.
        offsets: (n + 1,) int64; string i is blob[offsets[i]:offsets[i + 1]].
    """

    __slots__ = ("blob", "offsets")

    def __init__(self, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        self.blob = blob
        self.offsets = offsets

    @classmethod
    def pack(cls, strings: Iterable[str]) -> PackedStrings:
        """Pack strings; the input is read once."""
        encoded = [s.encode("utf-8", "surrogateescape") for s in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"index {i} is out of range for {n} strings")
        i %= n
        return self.blob[self.offsets[i] : self.offsets[i + 1]].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def take(self, indices: npt.ArrayLike) -> PackedStrings:
        """Return the strings at `indices`, in that order."""
        return PackedStrings.pack(self[int(i)] for i in np.asarray(indices))


@dataclass(frozen=True)
class DataSpec:
    """What a data.yaml, folder or list says about one split.

    Attributes:
        sources: folders, image files or .txt lists of this split, absolute, in the given order.
        names: class names, index = class; empty when the input names none (a bare folder or list).
        root: folder that relative entries were resolved against.
        kpt_shape: (K, D) of pose data, else None.
        flip_idx: keypoint permutation for flips, else ().
        origin: the yaml or folder as given, for messages.
    """

    sources: tuple[Path, ...]
    names: tuple[str, ...]
    root: Path
    kpt_shape: tuple[int, int] | None = None
    flip_idx: tuple[int, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class LabelTable:
    """Every label of one split, as columns. n images, m boxes; rows of image i are box_offsets[i]:box_offsets[i + 1].

    Attributes:
        im_files: n paths as the user gave them (not resolved), one per kept image, duplicates allowed.
        hw: (n, 2) int32 original height and width in pixels, EXIF orientation applied.
        file_size: (n,) int64 bytes of each image file.
        mtime_ns: (n,) int64 modification time of each image file.
        box_offsets: (n + 1,) int64.
        cls: (m,) float32 class indices.
        xywhn: (m, 4) float32 centre x, centre y, width, height, divided by image width and height.
        point_offsets: (m + 1,) int64 into `points`; a box without polygon has an empty range. Shape (0,) when no box
            of the split has a polygon.
        points: (k, 2) float32 normalised polygon vertices (OBB rows: the four corners).
        keypoints: (m, K, 3) float32 x, y normalised, visibility; (0, 0, 3) unless task is "pose".
        skipped: path -> reason, for every file that was found but left out.
    """

    im_files: PackedStrings
    hw: npt.NDArray[np.int32]
    file_size: npt.NDArray[np.int64]
    mtime_ns: npt.NDArray[np.int64]
    box_offsets: npt.NDArray[np.int64]
    cls: F32Array
    xywhn: F32Array
    point_offsets: npt.NDArray[np.int64]
    points: F32Array
    keypoints: F32Array
    skipped: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.im_files)

    @property
    def has_polygons(self) -> bool:
        """Whether any box carries a polygon."""
        return len(self.point_offsets) > 0

    @functools.cached_property
    def longest_polygon(self) -> int:
        """Vertices of the polygon that has most; 0 without polygons."""
        return int(np.diff(self.point_offsets).max(initial=0))

    def boxes_of(self, i: int) -> F32Array:
        """Return the labels of image i as a new (n_i, 5) float32 array `cls xywhn`."""
        rows = slice(int(self.box_offsets[i]), int(self.box_offsets[i + 1]))
        return np.concatenate((self.cls[rows, None], self.xywhn[rows]), 1)

    def segments_of(self, i: int) -> list[F32Array]:
        """Return the polygons of image i as copies, one (k, 2) array per box; empty list when the image has none."""
        lo, hi = int(self.box_offsets[i]), int(self.box_offsets[i + 1])
        if not self.has_polygons or self.point_offsets[lo] == self.point_offsets[hi]:
            return []
        return [self.points[self.point_offsets[j] : self.point_offsets[j + 1]].copy() for j in range(lo, hi)]

    def take(self, indices: npt.ArrayLike) -> LabelTable:
        """Return a table of the images at `indices`, in that order (repeats allowed); `skipped` is kept."""
        idx = np.asarray(indices, np.int64)
        rows, box_offsets = _ranges(self.box_offsets, idx)
        point_offsets, points = self.point_offsets, self.points[:0]
        if self.has_polygons:
            picked, point_offsets = _ranges(self.point_offsets, rows)
            points = self.points[picked]
        return LabelTable(
            self.im_files.take(idx),
            self.hw[idx],
            self.file_size[idx],
            self.mtime_ns[idx],
            box_offsets,
            self.cls[rows],
            self.xywhn[rows],
            point_offsets,
            points,
            self.keypoints[rows] if len(self.keypoints) else self.keypoints,
            self.skipped,
        )

    def keep(self, rows: npt.NDArray[np.bool_]) -> LabelTable:
        """Return a table with the boxes where rows (m,) is True; every image stays."""
        kept = np.flatnonzero(rows)
        before = np.concatenate(([0], np.cumsum(rows)))
        point_offsets, points = self.point_offsets, self.points
        if self.has_polygons:
            picked, point_offsets = _ranges(self.point_offsets, kept)
            points = self.points[picked]
        return replace(
            self,
            box_offsets=before[self.box_offsets],
            cls=self.cls[kept],
            xywhn=self.xywhn[kept],
            point_offsets=point_offsets,
            points=points,
            keypoints=self.keypoints[kept] if len(self.keypoints) else self.keypoints,
        )


def _ranges(offsets: npt.NDArray[np.int64], idx: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray]:
    """Expand the ranges offsets[i]:offsets[i + 1] for i in idx; return flat positions and the new offsets."""
    counts = offsets[idx + 1] - offsets[idx]
    new = np.zeros(len(idx) + 1, np.int64)
    np.cumsum(counts, out=new[1:])
    flat = np.arange(new[-1]) + np.repeat(offsets[idx] - new[:-1], counts)
    return flat, new
