"""Memory of batch images: page-locked when a CUDA device is used, recycled when nobody refers to a batch any more."""

from __future__ import annotations

import logging
import weakref
from collections import deque

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["BatchMemory"]

LOGGER = logging.getLogger("fastyolo_data")


class _Lease(np.ndarray):
    """A view of a slab that a tensor keeps alive; when the last tensor is gone, the slab is free again."""


class BatchMemory:
    """Hands out uint8 batch tensors.

    Ordinary memory: slabs are used again once no tensor, view or numpy array refers to the batch that had them; a new
    batch would otherwise cost thousands of page faults. Page-locked memory: PyTorch's caching host allocator recycles
    it, and waits for the copies to the device that read it.

    Args:
        pinned: use page-locked memory. Falls back to ordinary memory, with one warning, where it cannot be had.
        keep: slabs kept for reuse.
    """

    def __init__(self, pinned: bool, keep: int) -> None:
        self.pinned = pinned
        # Appended to by finalizers, which can run at any moment in any thread: only atomic operations, no lock.
        self._free: deque[npt.NDArray[np.uint8]] = deque(maxlen=keep)

    def take(self, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.uint8], torch.Tensor]:
        """Return a writable array and a tensor over the same uninitialised memory.

        The array must only be used while the batch is made; the tensor then belongs to the consumer.
        """
        if self.pinned:
            tensor = self._pinned(shape)
            if tensor is not None:
                return tensor.numpy(), tensor
        size = int(np.prod(shape))
        slab = self._slab(size)
        array = slab[:size].reshape(shape)
        lease = array.view(_Lease)
        weakref.finalize(lease, self._free.append, slab).atexit = False
        return array, torch.from_numpy(lease)

    def label(self, array: npt.NDArray) -> torch.Tensor:
        """Turn a small array that belongs to the batch into a tensor, page-locked if images are."""
        tensor = torch.from_numpy(array)
        if self.pinned and array.size:
            try:
                return tensor.pin_memory()
            except RuntimeError as error:
                self._give_up_pinning(error)
        return tensor

    def _slab(self, size: int) -> npt.NDArray[np.uint8]:
        for _ in range(len(self._free)):
            try:
                slab = self._free.popleft()
            except IndexError:  # another thread was faster
                break
            if slab.size >= size:
                return slab
        return np.empty(size, np.uint8)

    def _pinned(self, shape: tuple[int, ...]) -> torch.Tensor | None:
        try:
            return torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:
            self._give_up_pinning(error)
            return None

    def _give_up_pinning(self, error: RuntimeError) -> None:
        if self.pinned:
            self.pinned = False
            LOGGER.warning("page-locked memory is not available (%s); going on with ordinary memory", error)
