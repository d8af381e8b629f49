"""The loader that Ultralytics gets: FastLoader, or the stock one while the data set asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from fastyolo_data.integrations.ultralytics.dataset import FastYOLODataset
from fastyolo_data.integrations.ultralytics.reasons import say_once
from fastyolo_data.loader import FastLoader
from fastyolo_data.machine import cpu_count
from fastyolo_data.plan import share_size

__all__ = ["FastDataLoader"]


class FastDataLoader:
    """Batches of a FastYOLODataset, with what Ultralytics reads from its InfiniteDataLoader.

    A pass begins at its first `next`, with the data set as it is then: mosaic closed, classes left out, transforms or
    labels edited by a user (then the stock loader makes the batches and a log line says why).

    Args:
        dataset: what to load.
        batch, workers, shuffle, rank, drop_last: as in the stock build_dataloader.
        pinned: whether batches go into page-locked memory.
        make_stock: makes the stock loader.
    """

    def __init__(
        self, dataset: FastYOLODataset, batch: int, workers: int, shuffle: bool, rank: int, drop_last: bool,
        pinned: bool, make_stock: Callable[[], Any],
    ) -> None:  # fmt: skip
        self.dataset = dataset
        self.batch_size = min(batch, len(dataset))
        self.collate_fn = dataset.collate_fn
        self.pin_memory = pinned
        self._asked = (workers, shuffle, drop_last, *_share(rank))
        self._make_stock = make_stock
        self._stock: Any = None
        self._fast: FastLoader | None = None
        self._version = -1  # of the labels that the fast loader has; -1: none is open
        self._checked = -1  # version of the labels that were looked at for edits, before the first pass
        self._source()

    # ---- which loader works ------------------------------------------------------------------------------------------

    def _source(self) -> Any:
        """Return the loader that fits the data set's present state."""
        reason = self.dataset.why_stock()
        if reason is not None:
            say_once(f"the stock loader is used: {reason}")
            if self._stock is None:
                self.close()
                self._stock = self._make_stock()
            return self._stock
        if self._version != self.dataset.labels_version:
            epoch = None if self._fast is None else self._fast.state_dict()["epoch"]
            self.close()
            self._fast = self._make_fast()
            self._version = self.dataset.labels_version
            if epoch is not None:
                self._fast.set_epoch(epoch)
        elif self._fast.dataset.hyp != self.dataset.fast_hyp:
            self._fast.dataset.set_hyp(self.dataset.fast_hyp)
        return self._fast

    def _make_fast(self) -> FastLoader:
        dataset, options, batch = self.dataset, self.dataset.options, self.batch_size
        workers, shuffle, drop_last, rank, world = self._asked
        samples = share_size(len(dataset), batch, rank, world, dataset.augment and not dataset.rect)
        # As in the stock function: a shard smaller than a batch is kept, and one batch needs no workers.
        drop_last = drop_last and samples > batch > 0 and samples % batch != 0
        batches = samples // batch if drop_last else math.ceil(samples / batch)
        threads = min(cpu_count(), workers, 0 if batches <= 1 else batches)
        core = dataset.core(
            batch=batch,
            workers=threads if options.workers is None else options.workers,
            shuffle=shuffle,
            rank=rank,
            world_size=world,
            drop_last=drop_last,
            mosaic_pool=options.mosaic_pool or ("recent" if shuffle else "uniform"),
        )
        return FastLoader(core, device=None if self.pin_memory else torch.device("cpu"))

    def _present(self) -> Any:
        """Return the loader that was used last, open or not."""
        return self._fast if self._stock is None else self._stock

    @property
    def sampler(self) -> Any:
        """The order of this rank's images: `len`, iteration in the order of delivery, `set_epoch`."""
        return self._present().sampler

    @property
    def num_workers(self) -> int:
        """Threads at work (processes, where the stock loader works)."""
        return self._present().num_workers

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is left out."""
        return self._present().drop_last

    # ---- batches -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._present())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._iterate()

    def _iterate(self) -> Iterator[dict[str, Any]]:
        """One pass; nothing happens before its first batch is asked for."""
        if self._checked != self.dataset.labels_version:
            self._checked = self.dataset.labels_version
            self.dataset.check_labels()
        yield from self._source()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass: it decides order and augmentation, together with the seed."""
        set_epoch = getattr(self.sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    def reset(self) -> None:
        """Throw batches away that were made ahead; the next pass sees the data set's present state."""
        self._source().reset()

    def close(self) -> None:
        """Stop threads and free memory. A later pass starts them again."""
        if self._stock is not None:
            if hasattr(self._stock, "close"):  # the loader of 8.3 ends its workers when it is collected
                self._stock.close()
            self._stock = None
        if self._fast is not None:
            self._fast.close()
        self._version = -1

    def stats(self) -> dict[str, float]:
        """Counts and seconds of the present loader, see FastLoader.stats; empty while the stock loader works."""
        return {} if self._fast is None else self._fast.stats()


def _share(rank: int) -> tuple[int, int]:
    """This process's rank and the number of ranks. The stock argument only tells whether to share at all."""
    if rank == -1 or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
