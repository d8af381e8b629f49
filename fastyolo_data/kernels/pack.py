"""Packing kernels: finished pictures into the batch image, label rows into batch columns."""

from __future__ import annotations

from numba import uint8

from fastyolo_data.kernels._jit import inline, kernel

__all__ = ["gather_labels", "pack_image"]


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


@kernel
def gather_labels(cls, xywhn, starts, stops, out_idx, out_cls, out_xywhn):
    """Collect the label rows of every sample of a batch, in sample order.

    Args:
        cls: (m,) float64; xywhn: (m, 4) float64.
        starts, stops: (B,) int64 row range of each sample.
        out_idx: (n,) float32 sample number; out_cls: (n, 1) float32; out_xywhn: (n, 4) float32; n = total rows.
    """
    out = 0
    for b in range(starts.shape[0]):
        for i in range(starts[b], stops[b]):
            out_idx[out] = b
            out_cls[out, 0] = cls[i]
            for k in range(4):
                out_xywhn[out, k] = xywhn[i, k]
            out += 1
