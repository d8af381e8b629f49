"""Helpers for tests of the labels room."""

from __future__ import annotations

import os

import numpy as np

from fastyolo_data.datatypes import LabelTable


def names_of(table: LabelTable) -> list[str]:
    """File names of a table's images."""
    return [os.path.basename(p) for p in table.im_files]


def assert_same(a: LabelTable, b: LabelTable) -> None:
    """Two tables hold the same, in arrays of the same types that may be written to."""
    assert list(a.im_files) == list(b.im_files)
    assert a.skipped == b.skipped
    for name in LabelTable.__dataclass_fields__:
        if name not in ("im_files", "skipped"):
            x, y = getattr(a, name), getattr(b, name)
            assert x.dtype == y.dtype
            assert x.flags.writeable
            assert y.flags.writeable
            np.testing.assert_array_equal(x, y)
