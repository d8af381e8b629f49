"""Packing kernels: exact."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.kernels.pack import pack_image
from tests.reference.geometry import letterbox_image


@pytest.mark.parametrize("bgr", [False, True])
@pytest.mark.parametrize(
    ("hw", "out_hw", "top", "left"),
    [
        ((20, 30), (33, 33), 6, 1),
        ((33, 33), (33, 33), 0, 0),
        ((1, 33), (33, 33), 16, 0),
        ((33, 1), (33, 33), 0, 32),
        ((1, 1), (1, 1), 0, 0),
        ((1, 1), (9, 5), 8, 4),
        ((7, 5), (16, 31), 0, 26),
    ],
)
def test_letterbox(hw, out_hw, top, left, bgr):
    im = np.random.default_rng(0).integers(0, 256, (*hw, 3), dtype=np.uint8)
    dst = np.random.default_rng(1).integers(0, 256, (3, *out_hw), dtype=np.uint8)
    pack_image(im, dst, top, left, 114, bgr)
    want = letterbox_image(im, top, left, *out_hw)
    np.testing.assert_array_equal(dst, (want if bgr else want[..., ::-1]).transpose(2, 0, 1))


def test_strided_rows_and_neighbours_in_the_batch():
    """A picture inside a wider buffer, written into the middle of a batch: the rest of both stays as it was."""
    big = np.random.default_rng(0).integers(0, 256, (10, 20, 3), dtype=np.uint8)
    im, before = big[2:8, 3:15], big.copy()
    batch = np.full((3, 3, 8, 16), 7, np.uint8)
    pack_image(im, batch[1], 1, 2, 0, True)
    np.testing.assert_array_equal(batch[1], letterbox_image(im, 1, 2, 8, 16, grey=0).transpose(2, 0, 1))
    assert (batch[[0, 2]] == 7).all()
    np.testing.assert_array_equal(big, before)
