"""Packing a finished picture into the batch image."""

from __future__ import annotations

from numba import uint8

from fastyolo_data.kernels._jit import inline, kernel

__all__ = ["pack_image"]


@inline
def _fill(row, value):
    for i in range(row.shape[0]):
        row[i] = value


@kernel
def pack_image(im, dst, top, left, grey, bgr):
    """Copy a picture into its place in the batch, channels first, and pad with grey.

    Args:
        im: (h, w, 3) uint8 BGR, rows may be strided.
        dst: (3, H, W) uint8, fully overwritten; RGB planes, or BGR planes when `bgr`.
        top, left: place of the picture; the caller guarantees that it fits.
        grey: value of the padding.
    """
    h, w = im.shape[0], im.shape[1]
    height, width = dst.shape[1], dst.shape[2]
    value = uint8(grey)
    for c in range(3):
        source = c if bgr else 2 - c
        plane = dst[c]
        for y in range(height):
            row = plane[y]
            if y < top or y >= top + h:
                _fill(row, value)
                continue
            _fill(row[:left], value)
            _fill(row[left + w : width], value)
            pixels = im[y - top]
            target = row[left : left + w]
            for x in range(w):
                target[x] = pixels[x, source]
