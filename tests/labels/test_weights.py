"""Weights that balance classes."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.datatypes import LabelTable, PackedStrings
from fastyolo_data.labels import class_balanced_weights


def table(*images: list[int]) -> LabelTable:
    """A table whose images have boxes of these classes."""
    n, cls = len(images), np.array([c for image in images for c in image], np.float32)
    return LabelTable(
        im_files=PackedStrings.pack([f"{i}.jpg" for i in range(n)]),
        hw=np.full((n, 2), 10, np.int32),
        file_size=np.zeros(n, np.int64),
        mtime_ns=np.zeros(n, np.int64),
        box_offsets=np.cumsum([0, *map(len, images)]),
        cls=cls,
        xywhn=np.full((len(cls), 4), 0.5, np.float32),
        point_offsets=np.zeros(0, np.int64),
        points=np.zeros((0, 2), np.float32),
        keypoints=np.zeros((0, 0, 3), np.float32),
    )


def test_every_class_weighs_the_same():
    images = [[0, 0, 0], [0, 1], [0], [2], [0, 2]]
    weights = class_balanced_weights(table(*images))
    # Written out from the definition: 6 boxes of class 0, 1 of class 1, 2 of class 2.
    np.testing.assert_allclose(weights, [3 / 6, 1 / 6 + 1, 1 / 6, 1 / 2, 1 / 6 + 1 / 2])
    assert weights.sum() == pytest.approx(3)


def test_images_without_boxes_come_as_often_as_before():
    weights = class_balanced_weights(table([0], [], [1, 1], [], [0]))
    assert weights[[1, 3]].sum() / weights.sum() == pytest.approx(2 / 5)


def test_no_boxes_at_all():
    assert class_balanced_weights(table([], [])).tolist() == [1, 1]


def test_many_boxes_never_make_a_negative_weight():
    rng = np.random.default_rng(0)
    images = [[0]] * 3 + [list(rng.integers(1, 80, 200)) for _ in range(2000)] + [[79]]
    assert class_balanced_weights(table(*images)).min() > 0
