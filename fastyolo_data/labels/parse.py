"""Label text to columns. One file with exact error messages, or many files at array speed.

What is accepted, and the values that come out, follow ultralytics 8.4.190, data/utils.py, verify_image_label.
Differences: non-finite numbers are always an error, and so are box rows in a segment or OBB set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import F32Array
from fastyolo_data.errors import LabelError
from fastyolo_data.labels.columns import Columns

__all__ = ["LabelRules", "ParsedFiles", "parse_label", "parse_labels"]

_TOP = np.float32(1.01)  # 1 % of tolerance on both sides, as in the stock code
_BOTTOM = np.float32(-0.01)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class LabelRules:
    """What rows have to look like.

    Attributes:
        task: "detect", "segment", "pose" or "obb".
        nc: number of classes; 0 when any index is allowed.
        kpt_shape: (K, D) of the data set, else None.
    """

    task: str = "detect"
    nc: int = 0
    kpt_shape: tuple[int, int] | None = None

    @property
    def nkpt(self) -> int:
        """Keypoints per box in the result."""
        return self.kpt_shape[0] if self.task == "pose" and self.kpt_shape else 0

    @property
    def pose_width(self) -> int:
        """Numbers in a row with keypoints, 0 when the data set has none."""
        return 5 + self.kpt_shape[0] * self.kpt_shape[1] if self.kpt_shape else 0


@dataclass
class ParsedFiles:
    """Result of parse_labels: columns of all files (bad ones without boxes), position -> error, position -> note."""

    columns: Columns
    errors: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)


def parse_labels(texts: Sequence[bytes], where: Sequence[str], rules: LabelRules) -> ParsedFiles:
    """Parse many label files.

    All files are checked at once; the few that break a rule or hold duplicates go through parse_label, which knows
    how to explain it.

    Args:
        texts: contents of the files; empty for a background.
        where: their names, for messages.
        rules: what is allowed.
    """
    loose = _Loose(rules)
    for i, text in enumerate(texts):
        loose.add(i, text)
    columns, suspects = loose.finish(len(texts))
    if not suspects:
        return ParsedFiles(columns)
    result = ParsedFiles(columns)
    parts, at = [], 0
    for i in suspects:
        parts.append(columns.take(np.arange(at, i)))
        at = i + 1
        try:
            one, note = parse_label(texts[i], where[i], rules)
            if note:
                result.notes[i] = note
        except LabelError as e:
            one = Columns.empty(1, rules.nkpt)
            result.errors[i] = str(e)
        parts.append(one)
    parts.append(columns.take(np.arange(at, len(texts))))
    result.columns = Columns.concat(parts)
    return result


class _Loose:
    """Collects the rows of many files and finds the files that need a closer look."""

    def __init__(self, rules: LabelRules) -> None:
        self.rules = rules
        self.width = rules.pose_width if rules.task == "pose" else 5
        self.polygons = rules.task != "pose"
        self.boxes = rules.task not in ("segment", "obb")
        self.values: list[float] = []  # rows of `width`, or class and vertices of polygons
        self.kinds: list[tuple[int, int, bool]] = []  # file, rows, polygons?
        self.lens: list[int] = []  # numbers in each polygon row
        self.suspects: list[int] = []

    def add(self, i: int, text: bytes) -> None:
        """Take the rows of file i."""
        if not text:
            return
        start = len(self.values)
        try:
            rows = _split(text)
            lens = {len(r) for r in rows}
            if not rows:
                return
            if self.boxes and self.rules.pose_width in lens and self.width == 5:
                rows = [r[:5] if len(r) == self.rules.pose_width else r for r in rows]
                lens = {len(r) for r in rows}
            if lens == {self.width} and (self.boxes or not self.polygons):
                self.values.extend(map(float, [v for r in rows for v in r]))
                self.kinds.append((i, len(rows), False))
            elif self.polygons and min(lens) > 6 and all(n % 2 for n in lens):
                self.values.extend(map(float, [v for r in rows for v in r]))
                self.kinds.append((i, len(rows), True))
                self.lens.extend(map(len, rows))
            else:
                self.suspects.append(i)
        except ValueError:
            del self.values[start:]
            self.suspects.append(i)

    def finish(self, n: int) -> tuple[Columns, list[int]]:
        """Return the columns of n files, suspects empty, and the suspects in order."""
        counts = np.zeros(n, np.int32)
        if not self.kinds:
            return Columns.empty(n, self.rules.nkpt), self.suspects
        kinds = np.array(self.kinds, np.int64)
        counts[kinds[:, 0]] = kinds[:, 1]
        poly = np.repeat(kinds[:, 2].astype(bool), kinds[:, 1])
        width = np.full(len(poly), self.width, np.int64)
        width[poly] = self.lens
        values = _float32(self.values)
        starts = np.cumsum(width) - width
        columns, limited = _gather(values, starts, width, poly, counts, self.rules)
        owner = np.repeat(kinds[:, 0], kinds[:, 1])
        bad = _bad_rows(columns, limited, self.rules)
        suspects = set(owner[bad].tolist()) | set(_files_with_repeats(columns.cls, limited, owner))
        if suspects or self.suspects:
            clean = ~np.isin(owner, list(suspects))
            columns = columns.keep(clean)
        return columns, sorted(suspects | set(self.suspects))


def _split(text: bytes) -> list[list[str]]:
    """Return the words of each line that has any. Raises ValueError when the text is not UTF-8."""
    return [words for line in text.decode("utf-8-sig").splitlines() if (words := line.split())]


def _float32(values: Sequence[float]) -> F32Array:
    """Round to float32; what is too large becomes inf, which the checks reject."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def _gather(
    values: F32Array,
    starts: npt.NDArray[np.int64],
    width: npt.NDArray[np.int64],
    poly: npt.NDArray[np.bool_],
    counts: npt.NDArray[np.int32],
    rules: LabelRules,
) -> tuple[Columns, F32Array]:
    """Spread a flat list of rows over columns.

    Returns:
        The columns, and per row all numbers that rules limit: (m, 4) boxes, or (m, 4 + K * D) in a pose set.
    """
    m = len(starts)
    xywhn = np.empty((m, 4), np.float32)
    box_rows = np.flatnonzero(~poly)
    xywhn[box_rows] = values[starts[box_rows, None] + np.arange(1, 5)]
    npoints = np.zeros(m, np.int32)
    points = np.zeros((0, 2), np.float32)
    rows = np.flatnonzero(poly)
    if len(rows):
        is_vertex = np.ones(len(values), bool)
        is_vertex[starts] = False
        is_vertex[(starts[box_rows, None] + np.arange(5)).ravel()] = False
        points = values[is_vertex].reshape(-1, 2)
        npoints[rows] = (width[rows] - 1) // 2
        first = np.cumsum(npoints[rows]) - npoints[rows]
        xywhn[rows] = polygon_boxes(points, first)
    keypoints = np.zeros((0, 0, 3), np.float32)
    limited = xywhn
    if rules.nkpt:
        limited = values.reshape(m, -1)[:, 1:]
        keypoints = _keypoints(limited[:, 4:], rules)
    return Columns(counts, values[starts], xywhn, npoints, points, keypoints), limited


def polygon_boxes(points: F32Array, first: npt.NDArray[np.integer]) -> F32Array:
    """Return the (p, 4) xywh extents of polygons that start at `first` in (k, 2) points."""
    lo, hi = np.minimum.reduceat(points, first), np.maximum.reduceat(points, first)
    return np.concatenate(((lo + hi) / 2, hi - lo), 1)


def _keypoints(flat: F32Array, rules: LabelRules) -> F32Array:
    """Return (m, K, 3) keypoints of (m, K * D) numbers; without visibility, 1 where neither x nor y is negative."""
    k, d = rules.kpt_shape or (0, 0)
    out = np.ones((len(flat), k, 3), np.float32)
    out[..., :d] = flat.reshape(-1, k, d)
    if d == 2:
        out[..., 2] = (out[..., 0] >= 0) & (out[..., 1] >= 0)
    return out


def _bad_rows(columns: Columns, limited: F32Array, rules: LabelRules) -> npt.NDArray[np.bool_]:
    """Return which rows may break a rule; the closer look decides."""
    top = columns.keypoints[..., :2].reshape(len(limited), -1) if rules.nkpt else limited
    c = columns.cls
    fine = np.isfinite(limited).all(1) & (top <= _TOP).all(1) & (limited >= 0).all(1)
    fine &= (c >= 0) & (c == np.floor(c)) & (c < (rules.nc or np.inf))
    if len(columns.points):
        owner = np.repeat(np.arange(len(c)), columns.npoints)
        fine[owner[~np.isfinite(columns.points).all(1)]] = False
    return ~fine


def _files_with_repeats(cls: F32Array, limited: F32Array, owner: npt.NDArray[np.int64]) -> list[int]:
    """Return the files that may hold equal rows, by a 64-bit hash of file and row (a collision costs a closer look)."""
    bits = np.ascontiguousarray(np.concatenate((cls[:, None], limited), 1) + np.float32(0)).view(np.uint32)
    h = owner.astype(np.uint64)
    for k in range(bits.shape[1]):
        h = (h ^ bits[:, k]) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    order = np.argsort(h)
    same = np.flatnonzero(h[order[1:]] == h[order[:-1]])
    return np.unique(owner[order[same]]).tolist()


# ---------------------------------------------------------------------------------------------- one file, explained


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
    numbers = [_float32([_number(w, where, number) for w in words]) for number, words in lines]
    at = [f"{where}:{number}" for number, _ in lines]
    width = np.array([len(v) for v in numbers], np.int64)
    columns, limited = _gather(
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
    tolerant = low >= _BOTTOM and columns.xywhn[:, 2:].min() >= 0
    for i, place in enumerate(at):
        if not (np.isfinite(limited[i]).all() and np.isfinite(columns.cls[i])):  # beyond float32
            raise LabelError(f"{place}: found a number beyond the range of float32, expected 0 to 1; fix the row")
        high = coords[i].max()
        if high > _TOP:
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
