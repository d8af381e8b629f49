"""The text of many label files to columns, at array speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import F32Array
from fastyolo_data.errors import LabelError
from fastyolo_data.labels.columns import Columns
from fastyolo_data.labels.parse import parse_label
from fastyolo_data.labels.rows import TOP, LabelRules, float32, gather_rows

__all__ = ["ParsedFiles", "parse_labels"]


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
        values = float32(self.values)
        starts = np.cumsum(width) - width
        columns, limited = gather_rows(values, starts, width, poly, counts, self.rules)
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


def _bad_rows(columns: Columns, limited: F32Array, rules: LabelRules) -> npt.NDArray[np.bool_]:
    """Return which rows may break a rule; the closer look decides."""
    top = columns.keypoints[..., :2].reshape(len(limited), -1) if rules.nkpt else limited
    c = columns.cls
    fine = np.isfinite(limited).all(1) & (top <= TOP).all(1) & (limited >= 0).all(1)
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
