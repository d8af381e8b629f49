"""The order of an epoch: which image at which position, and which positions belong to which rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastyolo_data.errors import ConfigError
from fastyolo_data.plan.streams import Streams

__all__ = ["EpochOrder", "batch_shapes", "plan_order", "rect_order", "share_size"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EpochOrder:
    """The images of one epoch.

    Attributes:
        every: (N,) image at each position, all ranks together.
        mine: image at each position of this rank.
        repeat: how often the image came before within the epoch, for each position of this rank; 0 in plain epochs.
        batch_id: (len(mine),) number of the batch in the undivided epoch; picks the rect shape.
    """

    every: I64
    mine: I64
    repeat: I64
    batch_id: I64


def plan_order(
    n: int,
    *,
    seed: int,
    epoch: int,
    shuffle: bool,
    batch: int,
    rank: int = 0,
    world_size: int = 1,
    pad_ranks: bool = False,
    indices: I64 | None = None,
    weights: npt.NDArray[np.float64] | None = None,
) -> EpochOrder:
    """Lay out one epoch.

    Args:
        n: images of the data set.
        shuffle: new permutation every epoch.
        rank, world_size: this process's share.
        pad_ranks: True (training): every rank gets the same number of samples, a few may repeat, positions are dealt
            out one by one. False (validation): whole batches in contiguous blocks, every image once, no repeats.
        indices: image at each position before shuffling; None: range(n).
        weights: draw with replacement, with a weight for each entry of `indices` (or image); shuffles as well.
    """
    streams = Streams(seed, epoch)
    every = np.arange(n) if indices is None else np.asarray(indices, np.int64)
    if weights is not None:
        if not np.sum(weights) > 0:
            raise ConfigError(
                f"image_weights of the {len(every)} images of the epoch sum to {np.sum(weights):g}; "
                "give some image of the epoch (`indices`) a weight above 0, so that it can be drawn"
            )
        every = every[streams.choices(weights, len(every))]
    elif shuffle:
        every = every[streams.permutation(len(every))]
    positions = np.arange(len(every))
    if world_size > 1:
        positions = _deal(len(every), rank, world_size) if pad_ranks else _block(len(every), batch, rank, world_size)
    repeats = _occurrence(every) if weights is not None or indices is not None else np.zeros(len(every), np.int64)
    return EpochOrder(every, every[positions], repeats[positions], positions // batch)


def share_size(n: int, batch: int, rank: int, world_size: int, pad_ranks: bool) -> int:
    """Number of samples that plan_order gives a rank of an epoch of n."""
    return -(-n // world_size) if pad_ranks else len(_block(n, batch, rank, world_size))


def _deal(n: int, rank: int, world_size: int) -> I64:
    """Positions rank, rank + world_size, ...; padded from the start so that all ranks have equally many."""
    share = -(-n // world_size)
    return (rank + world_size * np.arange(share)) % n


def _block(n: int, batch: int, rank: int, world_size: int) -> I64:
    """A contiguous run of whole batches; the first ranks get one more, if it does not come out even.

    Where one batch would hold everything, images are dealt out instead, so that every rank has some.

    Source: ContiguousDistributedSampler of ultralytics 8.4.190 (data/build.py).
    """
    size = 1 if batch >= n else batch
    share, extra = divmod(-(-n // size), world_size)
    start = rank * share + min(rank, extra)
    stop = start + share + (rank < extra)
    return np.arange(min(start * size, n), min(stop * size, n))


def _occurrence(values: I64) -> I64:
    """For every element, how many equal ones stand before it."""
    by_value = np.argsort(values, kind="stable")
    ordered = values[by_value]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    rank_in_run = np.arange(len(values)) - np.repeat(starts, np.diff(np.r_[starts, len(values)]))
    out = np.empty(len(values), np.int64)
    out[by_value] = rank_in_run
    return out


def rect_order(hw: npt.NDArray[np.int32]) -> I64:
    """Images sorted by aspect ratio h / w, with the sort the stock code uses (ties included)."""
    return (hw[:, 0] / hw[:, 1]).argsort()


def batch_shapes(hw: npt.NDArray[np.int32], batch: int, imgsz: int, stride: int, pad: float) -> I64:
    """Height and width of every rect batch.

    Args:
        hw: (n, 2) image sizes, in rect_order.
        pad: slack in strides (0.5 in stock validation).

    Returns:
        (ceil(n / batch), 2), multiples of stride.

    Source: set_rectangle of ultralytics 8.4.190 (data/base.py) and yolov5 7.0 (utils/dataloaders.py).
    """
    ratio = hw[:, 0] / hw[:, 1]
    starts = np.arange(0, len(ratio), batch)
    low, high = np.minimum.reduceat(ratio, starts), np.maximum.reduceat(ratio, starts)
    shapes = np.ones((len(starts), 2))
    shapes[high < 1, 0] = high[high < 1]
    shapes[low > 1, 1] = 1 / low[low > 1]
    return np.ceil(shapes * imgsz / stride + pad).astype(np.int64) * stride
