"""Memory of batch images: who may use it again, and when."""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest
import torch

from fastyolo_data.assemble.buffers import BatchMemory


def test_memory_is_recycled_only_when_nothing_refers_to_it():
    memory = BatchMemory(False, 2)
    array, tensor = memory.take((2, 3, 8, 8))
    array[...] = 7
    address = tensor.data_ptr()
    view = tensor[1].numpy()
    del array, tensor
    gc.collect()
    other, second = memory.take((2, 3, 8, 8))
    assert second.data_ptr() != address, "a numpy view still holds the first"
    other[...] = 9
    assert (view == 7).all()
    del view
    gc.collect()
    third_array, third = memory.take((2, 3, 8, 8))
    assert third.data_ptr() == address
    assert third.shape == (2, 3, 8, 8)
    assert third_array.ctypes.data == address


def test_derived_tensors_keep_memory():
    memory = BatchMemory(False, 2)
    array, tensor = memory.take((1, 3, 4, 4))
    array[...] = 5
    derived = tensor.view(-1)[3:9].detach()
    del array, tensor
    gc.collect()
    fresh, _keep = memory.take((1, 3, 4, 4))
    fresh[...] = 1
    assert (derived == 5).all()


def test_smaller_batches_fit_larger_memory():
    memory = BatchMemory(False, 2)
    _, tensor = memory.take((4, 3, 8, 8))
    address = tensor.data_ptr()
    del tensor, _
    gc.collect()
    assert memory.take((3, 3, 8, 8))[1].data_ptr() == address


def test_pinning_failure_falls_back_with_one_warning(caplog):
    if torch.cuda.is_available():
        pytest.skip("page-locked memory works here")
    memory = BatchMemory(True, 2)
    with caplog.at_level(logging.WARNING, "fastyolo_data"):
        array, tensor = memory.take((1, 3, 4, 4))
        memory.take((1, 3, 4, 4))
        memory.label(np.ones(3, np.float32))
    assert tensor.shape == array.shape
    assert len([r for r in caplog.records if "page-locked" in r.message]) == 1
