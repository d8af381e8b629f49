"""The tile pool under threads: each tile loaded once, never overwritten while held, errors told to all who wait."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fastyolo_data.augment.pool import TilePool

HW = (6, 5)


def tile(index: int) -> np.ndarray:
    """The picture of an image: every pixel tells which it is."""
    return np.full((*HW, 3), index % 256, np.uint8)


def value(packed: np.ndarray) -> set[int]:
    """The bytes in a packed tile, without the unused one."""
    return {int(v) for v in np.unique(packed.view(np.uint8).reshape(-1, 4)[:, :3])}


class Loads:
    """Counts loads, and notices two loads of one image at a time."""

    def __init__(self, delay: float = 0.0) -> None:
        self.count: Counter[int] = Counter()
        self.running: set[int] = set()
        self.lock = threading.Lock()
        self.delay = delay

    def __call__(self, index: int) -> np.ndarray:
        with self.lock:
            assert index not in self.running, f"image {index} is loaded by two threads at once"
            self.running.add(index)
            self.count[index] += 1
        time.sleep(self.delay)
        with self.lock:
            self.running.remove(index)
        return tile(index)


def test_packed_form():
    im = np.random.default_rng(0).integers(0, 256, (7, 3, 3), dtype=np.uint8)
    packed = TilePool(2, 40).acquire(0, 0, lambda i: im)
    assert packed.shape == (7, 3)
    assert packed.flags.c_contiguous
    b, g, r = (im[..., c].astype(np.uint32) for c in range(3))
    np.testing.assert_array_equal(packed & 0xFFFFFF, b | g << 8 | r << 16)


@pytest.mark.parametrize("hw", [(1, 1), (1, 9), (9, 1)])
def test_thin_tiles_and_strided_pictures(hw):
    big = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    im = big[2 : 2 + hw[0], 3 : 3 + hw[1]]
    packed = TilePool(2, 9).acquire(0, 0, lambda i: im)
    np.testing.assert_array_equal(packed.view(np.uint8).reshape(*hw, 4)[..., :3], im)


def test_a_tile_in_the_pool_is_not_loaded_again():
    pool, loads = TilePool(3, 30), Loads()
    for _ in range(2):
        for i in range(3):
            pool.acquire(i, i, loads)
            pool.release(i)
    assert loads.count == {0: 1, 1: 1, 2: 1}


def test_the_tile_whose_window_closes_first_goes():
    pool, loads = TilePool(3, 30), Loads()
    for i, until in ((0, 30), (1, 10), (2, 20), (1, 5)):  # a smaller end does not shorten a window
        pool.acquire(i, until, loads)
        pool.release(i)
    pool.acquire(0, 40, loads)  # a larger one lengthens it
    pool.release(0)
    for i in (3, 4):  # 1 goes, then 2
        pool.acquire(i, 50, loads)
        pool.release(i)
    for i in (0, 3, 4):
        pool.acquire(i, 50, loads)
        pool.release(i)
    assert loads.count == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}
    pool.acquire(1, 60, loads)
    assert loads.count[1] == 2


def test_pinned_tiles_stay_and_are_not_overwritten():
    pool, loads = TilePool(2, 30), Loads()
    held = [pool.acquire(i, 0, loads) for i in range(5)]  # more than the capacity
    for i in range(5, 40):
        pool.acquire(i, 1, loads)
        pool.release(i)
    assert [value(t) for t in held] == [{i} for i in range(5)]
    assert all(loads.count[i] == 1 for i in range(5))
    again = pool.acquire(0, 0, loads)
    assert np.shares_memory(again, held[0])


def test_a_tile_held_twice_needs_two_releases():
    pool, loads = TilePool(1, 30), Loads()
    first = pool.acquire(0, 0, loads)
    pool.acquire(0, 0, loads)
    pool.release(0)
    for i in range(1, 5):
        pool.acquire(i, 9, loads)
        pool.release(i)
    assert value(first) == {0}


def test_memory_is_used_again_and_capacity_holds():
    pool, loads = TilePool(4, 30), Loads()
    addresses = set()
    for i in range(50):
        addresses.add(pool.acquire(i, i, loads).ctypes.data)
        pool.release(i)
    assert len(addresses) == 4


def test_a_pool_that_had_to_grow_shrinks_again():
    pool, loads = TilePool(3, 30), Loads()
    for i in range(20):
        pool.acquire(i, i, loads)
    for i in range(20):
        pool.release(i)
    pool.acquire(100, 100, loads)
    pool.release(100)
    before = loads.count.total()
    for i in range(20):
        pool.acquire(i, i, loads)
        pool.release(i)
    assert loads.count.total() - before >= 18  # at most two of the twenty had stayed beside the newcomer


def test_bookkeeping_does_not_grow_with_time():
    """A set that fits into the pool never evicts; windows move on for hundreds of epochs all the same."""
    pool, loads = TilePool(8, 30), Loads()
    for t in range(20_000):
        pool.acquire(t % 8, t, loads)
        pool.release(t % 8)
    assert loads.count.total() == 8
    assert len(pool._by_end) < 200
    for i in range(100, 104):  # and what is left still tells which window closes first
        pool.acquire(i, 30_000, loads)
        pool.release(i)
    for i in range(4, 8):
        pool.acquire(i, 30_001, loads)
        pool.release(i)
    assert [loads.count[i] for i in range(8)] == [1] * 8


def test_each_tile_is_loaded_once_by_many_threads():
    pool, loads = TilePool(16, 30), Loads(0.002)
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        barrier.wait(10)
        for i in rng.permutation(16).tolist():
            assert value(pool.acquire(i, 0, loads)) == {i}
            pool.release(i)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert loads.count == dict.fromkeys(range(16), 1)


def test_hammering_a_small_pool():
    """Eight threads hold four of 60 tiles at a time in a pool of 10: contents, never two loads at once, capacity."""
    pool, loads = TilePool(10, 30), Loads()
    stop = time.monotonic() + 2.0

    def work(seed: int) -> int:
        rng, rounds = np.random.default_rng(seed), 0
        while time.monotonic() < stop or rounds < 50:
            wanted = rng.integers(0, 60, 4).tolist()
            tiles = [pool.acquire(i, rounds, loads) for i in wanted]
            for _ in range(2):
                assert [value(t) for t in tiles] == [{i} for i in wanted]
            for i in wanted:
                pool.release(i)
            rounds += 1
        return rounds

    with ThreadPoolExecutor(8) as threads:
        assert min(threads.map(work, range(8))) >= 50
    pool.acquire(99, 0, loads)
    assert len(pool._slots) <= 10


def test_an_error_reaches_every_waiter_and_is_not_kept():
    pool = TilePool(4, 30)
    loading, go = threading.Event(), threading.Event()

    def fail(index: int) -> np.ndarray:
        loading.set()
        assert go.wait(10)
        raise OSError(f"image {index} is broken")

    def never(index: int) -> np.ndarray:
        raise AssertionError("a waiter must not load")

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(pool.acquire, 7, 0, fail)
        assert loading.wait(10)
        waiters = [threads.submit(pool.acquire, 7, 0, never) for _ in range(3)]
        time.sleep(0.1)
        go.set()
        for future in (first, *waiters):
            with pytest.raises(OSError, match="image 7 is broken"):
                future.result(10)
    assert value(pool.acquire(7, 0, tile)) == {7}  # the next one tries again
    pool.release(7)


def test_other_tiles_are_loaded_while_one_loads():
    pool = TilePool(4, 30)
    loading, go = threading.Event(), threading.Event()

    def slow(index: int) -> np.ndarray:
        loading.set()
        assert go.wait(10)
        return tile(index)

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(pool.acquire, 0, 0, slow)
        assert loading.wait(10)
        assert value(pool.acquire(1, 0, tile)) == {1}
        assert not future.done()
        go.set()
        assert value(future.result(10)) == {0}


def test_a_tile_that_is_loading_is_not_evicted():
    pool, loads = TilePool(1, 30), Loads()
    inner: list[np.ndarray] = []

    def nested(index: int) -> np.ndarray:
        for i in range(10, 14):
            inner.append(pool.acquire(i, 99, loads).copy())
            pool.release(i)
        return tile(index)

    assert value(pool.acquire(0, 0, nested)) == {0}
    assert [value(t) for t in inner] == [{10}, {11}, {12}, {13}]
