"""Quad batches: four samples become one picture of twice the side (`--quad` of YOLOv5, YOLOv7 and YOLOv9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

__all__ = ["join_quads"]


def join_quads(batch: tuple[Any, ...], enlarged: npt.NDArray[np.bool_]) -> tuple[Any, ...]:
    """Join the samples of a batch of YOLOv5/7/9 four by four; up to three at the end are left over.

    Args:
        batch: images (B, 3, H, W) uint8, targets (N, 6), paths, shapes.
        enlarged: (B // 4,) True: the first picture of the quad fills the whole; False: the four are tiled, the second
            below the first and the other two to their right.

    Returns:
        Images (B // 4, 3, 2H, 2W) uint8, their targets, and the first B // 4 paths and shapes (as the stock code).

    Source: collate_fn4 of yolov5 7.0 utils/dataloaders.py.
    """
    images, targets, paths, shapes = batch
    n, height, width = len(enlarged), *images.shape[2:]
    out = torch.empty((n, 3, 2 * height, 2 * width), dtype=images.dtype)
    rows = []
    for quad, whole in enumerate(enlarged.tolist()):
        first = 4 * quad
        if whole:
            big = functional.interpolate(images[first, None].float(), scale_factor=2, mode="bilinear")
            out[quad] = big[0].to(images.dtype)
            rows.append(_of_quad(targets, first, quad))
            continue
        for k in range(4):
            x, y = k // 2, k % 2
            out[quad, :, y * height : (y + 1) * height, x * width : (x + 1) * width] = images[first + k]
            part = _of_quad(targets, first + k, quad)
            part[:, 2:] = (part[:, 2:] + torch.tensor([x, y, 0.0, 0.0])) * 0.5
            rows.append(part)
    return out, torch.cat(rows), paths[:n], shapes[:n]


def _of_quad(targets: torch.Tensor, sample: int, quad: int) -> torch.Tensor:
    """The targets of one sample, as rows of a quad."""
    rows = targets[targets[:, 0] == sample]
    rows[:, 0] = quad
    return rows
