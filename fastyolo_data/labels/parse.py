"""The text of one label file to columns, or an error that locates the fault.

What is accepted, and the values that come out, follow ultralytics 8.4.190, data/utils.py, verify_image_label.
Differences: non-finite numbers are always an error, and so are box rows in a segment or OBB set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import F32Array
from fastyolo_data.errors import LabelError
from fastyolo_data.labels.columns import Columns
from fastyolo_data.labels.rows import BOTTOM, TOP, LabelRules, float32, gather_rows

__all__ = ["parse_label"]

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def parse_label(text: bytes, where: str, rules: LabelRules) -> tuple[Columns, str]:
    """Parse one label file.

    Args:
        text: content of the file.
        where: its name, for messages.
        rules: what is allowed.

    Returns:
        Columns of this one file, and a note (duplicates were removed) or "".

    Raises:
        LabelError: names file and line, what was found and what was expected.
    """
    lines = [(number, words) for number, words in _words(text, where) if words]
    if not lines:
        return Columns.empty(1, rules.nkpt), ""
    if rules.task != "pose" and rules.pose_width:  # a pose set used for boxes
        lines = [(number, w[:5] if len(w) == rules.pose_width else w) for number, w in lines]
    polygons = _check_widths(lines, where, rules)
    numbers = [float32([_number(w, where, number) for w in words]) for number, words in lines]
    at = [f"{where}:{number}" for number, _ in lines]
    width = np.array([len(v) for v in numbers], np.int64)
    columns, limited = gather_rows(
        np.concatenate(numbers),
        np.cumsum(width) - width,
        width,
        np.full(len(numbers), polygons),
        np.array([len(numbers)], np.int32),
        rules,
    )
    _check_values(columns, limited, at, rules)
    keep = _first_of_equals(columns, limited)
    note = ""
    if keep is not None:
        note = f"{where}: {len(numbers) - len(keep)} duplicate rows removed"
        columns = _pick(columns, keep)
    return columns, note


def _words(text: bytes, where: str) -> list[tuple[int, list[str]]]:
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as e:
        line = text.count(b"\n", 0, e.start) + 1
        found = "UTF-16 text" if text[:2] in _UTF16 else f"byte 0x{text[e.start]:02X}, which is not UTF-8"
        raise LabelError(f"{where}:{line}: found {found}, expected plain numbers; save the file as UTF-8") from e
    return [(number, line.split()) for number, line in enumerate(lines, 1)]


def _number(word: str, where: str, line: int) -> float:
    try:
        value = float(word)
    except ValueError:
        hint = (
            "separate the columns by blanks and use a decimal point, not commas"
            if "," in word
            else ("class names and header rows are not allowed, write the class index")
        )
        raise LabelError(f"{where}:{line}: found {word[:40]!r}, expected a number; {hint}") from None
    if not math.isfinite(value):
        raise LabelError(f"{where}:{line}: found {word!r}, expected a finite number; remove or fix the row")
    return value


def _check_widths(lines: Sequence[tuple[int, list[str]]], where: str, rules: LabelRules) -> bool:
    """Check the number of columns of every row; return whether the rows are polygons."""
    for number, words in lines:  # text where numbers belong explains more than a column count
        for word in words:
            _number(word, where, number)
    if rules.task == "pose":
        k, d = rules.kpt_shape or (0, 0)
        want, form = rules.pose_width, f"class, box and {k} keypoints of {d} numbers, kpt_shape: [{k}, {d}]"
        polygons = False
    else:
        polygons = any(len(w) > 6 for _, w in lines)
        want, form = 5, "class x y w h"
        if polygons and any(len(w) == 5 for _, w in lines):
            number = next(n for n, w in lines if len(w) == 5)
            raise LabelError(
                f"{where}:{number}: found a box row among polygon rows, expected rows of one kind; "
                "write the box as a polygon, or every row as a box"
            )
    for number, words in lines:
        n = len(words)
        if polygons and (n % 2 == 0 or n < 3):
            raise LabelError(
                f"{where}:{number}: found {n} columns, expected class and x y pairs of a polygon; fix the row"
            )
        if not polygons and n != want:
            hint = "remove the confidence column" if (n, want) == (6, 5) else "fix the row"
            raise LabelError(f"{where}:{number}: expected {want} columns ({form}), found {n}; {hint}")
    if not polygons and rules.task in ("segment", "obb"):
        need = "the four corners x1 y1 … x4 y4" if rules.task == "obb" else "the vertices x1 y1 x2 y2 …"
        raise LabelError(
            f"{where}:{lines[0][0]}: found a box row, expected class and {need} (task {rules.task!r}); "
            "use labels of that task, or task='detect'"
        )
    return polygons


def _check_values(columns: Columns, limited: F32Array, at: Sequence[str], rules: LabelRules) -> None:
    """Check ranges and classes, with the tolerance of the stock code."""
    coords = columns.keypoints[..., :2].reshape(len(limited), -1) if rules.nkpt else limited
    low = min(limited.min(), columns.cls.min())
    tolerant = low >= BOTTOM and columns.xywhn[:, 2:].min() >= 0
    for i, place in enumerate(at):
        if not (np.isfinite(limited[i]).all() and np.isfinite(columns.cls[i])):  # beyond float32
            raise LabelError(f"{place}: found a number beyond the range of float32, expected 0 to 1; fix the row")
        high = coords[i].max()
        if high > TOP:
            hint = (
                "these look like pixels; divide x and w by the image width, y and h by its height"
                if high > 2
                else ("clip the box to the image")
            )
            raise LabelError(f"{place}: found coordinate {high:g}, expected 0 to 1 (normalised); {hint}")
        c = columns.cls[i]
        if c < 0 or c != math.floor(c):
            raise LabelError(f"{place}: found class {c:g}, expected a whole number from 0; fix the class column")
        if not tolerant and limited[i].min() < 0:
            hint = "the whole image is left out; clip the box to the image"
            raise LabelError(f"{place}: found negative value {limited[i].min():g}, expected 0 to 1; {hint}")
        if rules.nc and c >= rules.nc:
            raise LabelError(
                f"{place}: found class {c:.0f}, expected 0 to {rules.nc - 1} ({rules.nc} classes); "
                "add the missing names, or count classes from 0"
            )


def _first_of_equals(columns: Columns, limited: F32Array) -> npt.NDArray[np.int64] | None:
    """Return the rows to keep, or None when all differ. The order is the stock code's: sorted when any is removed.

    Polygons are compared vertex by vertex, since different ones may have the same extent.
    """
    rows = np.concatenate((columns.cls[:, None], limited), 1)
    _, first = np.unique(rows, axis=0, return_index=True)
    if len(first) < len(rows) and len(columns.points):
        ends = np.cumsum(columns.npoints)
        keys = [
            columns.cls[i].tobytes() + columns.points[e - n : e].tobytes()
            for i, (e, n) in enumerate(zip(ends.tolist(), columns.npoints.tolist(), strict=True))
        ]
        seen: dict[bytes, int] = {}
        for i, key in enumerate(keys):
            seen.setdefault(key, i)
        first = np.array([seen[key] for key in sorted(seen)], np.int64)
    return first if len(first) < len(rows) else None


def _pick(columns: Columns, rows: npt.NDArray[np.int64]) -> Columns:
    """Return a one-file table with only these boxes, in this order."""
    each = Columns(
        np.ones(len(columns.cls), np.int32),
        columns.cls,
        columns.xywhn,
        columns.npoints,
        columns.points,
        columns.keypoints,
    ).take(rows)
    return Columns(np.array([len(rows)], np.int32), each.cls, each.xywhn, each.npoints, each.points, each.keypoints)
