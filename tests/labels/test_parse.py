"""Parsing: error messages that locate the fault, and many files at once equal to one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fastyolo_data.errors import LabelError
from fastyolo_data.labels.columns import Columns
from fastyolo_data.labels.parse import parse_label
from fastyolo_data.labels.parse_many import parse_labels
from fastyolo_data.labels.rows import LabelRules

DETECT2 = LabelRules("detect", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"0 0.5 0.5 0.1 0.1\n\n1 0.5 0.5 0.1\n", ["f.txt:3:", "5 columns", "found 4"]),
        (b"0 0.5 0.5 0.1 0.1 0.9\n", ["f.txt:1:", "5 columns", "found 6", "confidence"]),
        (b"0,0.5,0.5,0.1,0.1\n", ["f.txt:1:", "commas"]),
        (b"0 0,5 0,5 0,1 0,1\n", ["f.txt:1:", "'0,5'", "decimal point"]),
        (b"cat 0.5 0.5 0.1 0.1\n", ["f.txt:1:", "'cat'", "class index"]),
        (b"0 0.5 0.5 0.1 0.1\r0 16 12 32 24\r", ["f.txt:2:", "pixels", "32"]),
        (b"0 0.5 0.5 0.1 1.2\n", ["f.txt:1:", "1.2", "clip"]),
        (b"0 -0.2 0.5 0.1 0.1\n", ["f.txt:1:", "negative", "-0.2"]),
        (b"0 -0.005 0.5 -0.001 0.1\n", ["f.txt:1:", "negative"]),
        (b"2 0.5 0.5 0.1 0.1\n", ["f.txt:1:", "class 2", "0 to 1", "2 classes"]),
        (b"1.5 0.5 0.5 0.1 0.1\n", ["f.txt:1:", "class 1.5", "whole number"]),
        (b"-1 0.5 0.5 0.1 0.1\n", ["f.txt:1:", "class -1"]),
        (b"0 nan 0.5 0.1 0.1\n", ["f.txt:1:", "nan", "finite"]),
        (b"0 0.5 0.5 1e39 0.1\n", ["f.txt:1:", "float32"]),
        (b"0 0.1 0.1 0.2 0.1 0.2 inf\n", ["f.txt:1:", "inf"]),
        (b"0 0.1 0.1 0.2 0.1 0.2 0.2\n0 0.5 0.5 0.1 0.1\n", ["f.txt:2:", "box row among polygon rows"]),
        (b"0 0.1 0.1 0.2 0.1 0.2 0.2 0.3\n", ["f.txt:1:", "8 columns", "pairs"]),
        (b"0 0.5 0.5 0.1 0.1\n\xb0\n", ["f.txt:2:", "0xB0", "UTF-8"]),
        ("0 0.5 0.5 0.1 0.1\n".encode("utf-16"), ["f.txt:1:", "UTF-16"]),
        (b"0 0.5 0.5 0.1 0.1\n\0\0\0\0", ["f.txt:2:", "number"]),
    ],
)
def test_errors_locate_the_fault(text: bytes, words: list[str]) -> None:
    with pytest.raises(LabelError) as caught:
        parse_label(text, "f.txt", DETECT2)
    for word in words:
        assert word in str(caught.value)
    many = parse_labels([b"", text, b"1 0.5 0.5 0.1 0.1"], ["a", "f.txt", "c"], DETECT2)
    assert many.errors == {1: str(caught.value)}
    assert many.columns.counts.tolist() == [0, 0, 1]
    assert many.columns.cls.tolist() == [1]


@pytest.mark.parametrize(
    ("rules", "text", "words"),
    [
        (LabelRules("segment", 2), b"0 0.5 0.5 0.1 0.1\n", ["vertices", "segment"]),
        (LabelRules("obb", 2), b"0 0.5 0.5 0.1 0.1\n", ["four corners", "obb"]),
        (LabelRules("pose", 2, (2, 3)), b"0 0.5 0.5 0.1 0.1\n", ["11 columns", "found 5", "[2, 3]"]),
        (LabelRules("pose", 2, (1, 2)), b"0 0.5 0.5 0.1 0.1 1.4 0.5\n", ["1.4"]),
    ],
)
def test_errors_of_other_tasks(rules: LabelRules, text: bytes, words: list[str]) -> None:
    with pytest.raises(LabelError) as caught:
        parse_label(text, "f.txt", rules)
    for word in ["f.txt:1:", *words]:
        assert word in str(caught.value)


def test_keypoints_without_visibility_get_one() -> None:
    rules = LabelRules("pose", 1, (2, 2))
    columns, _ = parse_label(b"0 0.5 0.5 0.1 0.1 0.25 0.5 -0.005 0.5", "f.txt", rules)
    np.testing.assert_array_equal(columns.keypoints, np.array([[[0.25, 0.5, 1], [-0.005, 0.5, 0]]], np.float32))


def test_corners_of_obb_rows_become_points_and_extent() -> None:
    columns, _ = parse_label(b"1 0.25 0.25 0.75 0.25 0.75 0.5 0.25 0.5", "f.txt", LabelRules("obb", 2))
    np.testing.assert_array_equal(columns.xywhn, np.array([[0.5, 0.375, 0.5, 0.25]], np.float32))
    assert columns.npoints.tolist() == [4]
    assert columns.points.tolist() == [[0.25, 0.25], [0.75, 0.25], [0.75, 0.5], [0.25, 0.5]]


def test_distinct_polygons_with_one_extent_stay_and_copies_go() -> None:
    a, b = "0 0 0 1 0 1 1", "0 0 0 1 1 0 1"
    columns, note = parse_label("\n".join([b, a, b]).encode(), "f.txt", LabelRules("segment", 1))
    assert "1 duplicate" in note
    assert sorted(p.tolist() for p in np.split(columns.points, 2)) == [
        [[0, 0], [1, 0], [1, 1]],
        [[0, 0], [1, 1], [0, 1]],
    ]


def test_any_class_is_allowed_when_nc_is_unknown() -> None:
    columns, _ = parse_label(b"4711 0.5 0.5 0.1 0.1", "f.txt", LabelRules("detect", 0))
    assert columns.cls.tolist() == [4711]


def _random_file(rng: random.Random, kind: int) -> bytes:
    n = rng.randint(0, 5)
    rows = []
    for _ in range(n):
        width = {0: 4, 1: 2 * rng.randint(3, 40), 2: 8}[kind]
        rows.append(" ".join([str(rng.randint(0, 3)), *(f"{rng.random() * 0.99:.3f}" for _ in range(width))]))
    if rows and rng.random() < 0.2:
        rows.append(rng.choice(rows))
    if rng.random() < 0.15:
        rows.append(
            rng.choice(["0 5 5 5 5", "x", "0 0.5", "9 0.5 0.5 0.1 0.1", "0 0.1 0.2 nan 0.5", "\ufeff", "0 1e-3 0 0 0"])
        )
    return "\n".join(rows).encode()


@pytest.mark.parametrize("rules", [LabelRules("detect", 4), LabelRules("segment", 4), LabelRules("pose", 4, (2, 2))])
@pytest.mark.parametrize("seed", range(20))
def test_many_files_equal_one_by_one(rules: LabelRules, seed: int) -> None:
    rng = random.Random(seed)
    texts = [_random_file(rng, rng.choice([0, 1, 2])) for _ in range(rng.choice([1, 7, 60]))]
    where = [f"f{i}.txt" for i in range(len(texts))]
    many = parse_labels(texts, where, rules)
    parts, errors, notes = [], {}, {}
    for i, text in enumerate(texts):
        try:
            one, note = parse_label(text, where[i], rules)
            if note:
                notes[i] = note
        except LabelError as e:
            one, errors[i] = Columns.empty(1, rules.nkpt), str(e)
        parts.append(one)
    assert many.errors == errors
    assert many.notes == notes
    want = Columns.concat(parts)
    for name in ("counts", "cls", "xywhn", "npoints", "points", "keypoints"):
        got = getattr(many.columns, name)
        assert got.dtype == getattr(want, name).dtype
        np.testing.assert_array_equal(got, getattr(want, name))


def test_columns_take_and_keep() -> None:
    texts = [b"0 0 0 1 0 1 1\n1 0 0 .5 0 .5 .5 0 .5", b"", b"2 0.1 0.1 0.2 0.1 0.2 0.2"]
    columns = parse_labels(texts, ["a", "b", "c"], LabelRules("segment")).columns
    taken = columns.take([2, 0, 2, 1])
    assert taken.counts.tolist() == [1, 2, 1, 0]
    assert taken.cls.tolist() == [2, 0, 1, 2]
    assert taken.npoints.tolist() == [3, 3, 4, 3]
    np.testing.assert_array_equal(taken.points[:3], columns.points[-3:])
    np.testing.assert_array_equal(taken.points[3:10], columns.points[:7])
    kept = columns.keep(columns.cls != 0)
    assert kept.counts.tolist() == [1, 0, 1]
    assert kept.cls.tolist() == [1, 2]
    np.testing.assert_array_equal(kept.points, columns.points[3:])
