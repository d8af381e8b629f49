"""The RAM cache: what fits, what does not, and that its bytes never change."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data import build_dataset, build_loader
from fastyolo_data.machine import memory_available
from fastyolo_data.store import Memory, fill_ram, ram, tile_bytes
from tests.store.support import FakeMaker, FakeSet, write_pictures


def test_part_of_the_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastyolo_data")
    fake = FakeSet(tmp_path, 50)
    images = fake.images()
    sizes = tile_bytes(images.disk.tile_hw)
    available = (256 << 20) + int(sizes[:20].sum()) + 10
    store = fill_ram(images.disk, Memory(lambda: available, "cgroup limit"), threads=3)
    assert [store.holds(i) for i in range(50)] == [True] * 20 + [False] * 30
    assert store.arena.nbytes == sizes[:20].sum()
    fake.check(store)
    (record,) = caplog.records
    assert "needed" in record.message
    assert "269 MB available (cgroup limit); 20 of 50 images fit" in record.message


def test_nothing_fits(tmp_path: Path) -> None:
    fake = FakeSet(tmp_path, 5)
    store = fill_ram(fake.images().disk, Memory(lambda: 100 << 20), threads=2)
    assert not any(store.holds(i) for i in range(5))
    fake.check(store)


def test_ranks_share_the_memory() -> None:
    assert ram.budget(10 << 30, 4) == (9 << 30) // 4


def test_refused_allocation(tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    empty = np.empty

    def refuse(size: object, *args: object) -> np.ndarray:
        if isinstance(size, int) and size > 1_000_000:
            raise MemoryError
        return empty(size, *args)

    fake = FakeSet(tmp_path, 40, side=120)
    monkeypatch.setattr(ram.np, "empty", refuse)
    store = fill_ram(fake.images().disk, Memory(lambda: 1 << 34), threads=2)
    monkeypatch.undo()
    assert 0 < sum(store.holds(i) for i in range(40)) < 40
    assert "the system refused 1.71 MB" in caplog.text
    assert "images fit" in caplog.text
    fake.check(store)


def test_memory_that_others_take_meanwhile(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSet(tmp_path, 60, delay=0.01)
    asked = iter([1 << 34, 1 << 34])
    store = fill_ram(fake.images().disk, Memory(lambda: next(asked, 1 << 20)), threads=2)
    held = [store.holds(i) for i in range(60)]
    assert 0 < sum(held) < 60
    assert f"stopped after {sum(held)} of 60" in caplog.text
    fake.check(store)


def test_limit_of_the_address_space(tmp_path: Path) -> None:
    """Under `ulimit -v` the free memory of the machine does not count."""

    def work() -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), before[1]))
        left, limit = memory_available()
        assert limit == "ulimit -v"
        assert left <= 400 << 20
        fake = FakeSet(tmp_path, 60, side=1200)
        store = fill_ram(fake.images().disk, Memory(lambda: memory_available()[0], limit), threads=1)
        resource.setrlimit(resource.RLIMIT_AS, before)
        assert 0 < sum(store.holds(i) for i in range(60)) < 60
        fake.check(store, range(0, 60, 13))

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_error_in_a_thread_ends_the_filling(tmp_path: Path, monkeypatch) -> None:
    fake = FakeSet(tmp_path, 20, delay=0.005)
    make = FakeMaker.make

    def fail(self, data, path, *rest):
        if "0007" in path:
            raise RuntimeError("a bug")
        return make(self, data, path, *rest)

    monkeypatch.setattr(FakeMaker, "make", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        fake.open("ram", threads=4)


@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_bytes_never_change(tmp_path: Path, numerics: str) -> None:
    data = write_pictures(tmp_path, 12)
    hyp = {"hsv_h": 0.5, "hsv_s": 0.9, "hsv_v": 0.9, "mixup": 1.0, "flipud": 0.5, "degrees": 10.0}
    options = {"imgsz": 96, "batch": 4, "workers": 3, "hyp": hyp, "numerics": numerics, "verbose": False}
    with build_loader(data, cache="ram", **options) as loader:
        arena = loader._context.store.arena
        before = zlib.crc32(arena)
        for _ in range(20):
            for _batch in loader:
                pass
        loader.dataset.load_image(0)[0][:] = 7
        loader.dataset[1]
        assert zlib.crc32(arena) == before
        assert not arena.flags.writeable


@pytest.mark.slow
def test_100_000_images(tmp_path: Path) -> None:
    """More images than Linux allows mappings; also what labels and index take per image."""
    images, labels = tmp_path / "images" / "train", tmp_path / "labels" / "train"
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    for lo in (0, 50_000):  # ext4 allows 65,000 links to a file
        cv2.imwrite(f"{images}/{lo}.png", np.full((24, 32, 3), 90, np.uint8))
        Path(f"{labels}/{lo}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
        for i in range(lo + 1, lo + 50_000):
            os.link(f"{images}/{lo}.png", f"{images}/{i}.png")
            os.link(f"{labels}/{lo}.txt", f"{labels}/{i}.txt")
    dataset = build_dataset(images, imgsz=32, cache="ram", verbose=False)
    store = dataset.tiles.acquire()
    assert all(store.holds(i) for i in range(0, 100_000, 997))
    assert len(store.offsets) == 100_000
    assert len(Path("/proc/self/maps").read_text().splitlines()) < 5_000
    table, boxes = dataset.table, len(dataset.table.cls)
    paths = [table.im_files.blob, table.im_files.offsets]
    boxed = [table.cls, table.xywhn, table.point_offsets, table.points, table.keypoints]
    columns = [table.hw, table.file_size, table.mtime_ns, table.box_offsets, dataset.tile_hw, store.offsets]
    per_image = sum(a.nbytes for a in paths + columns) / len(table)
    assert per_image < 200
    assert sum(a.nbytes for a in boxed) <= 20 * boxes
    print(f"{per_image:.0f} bytes per image (paths {table.im_files.blob.nbytes / len(table):.0f})")


PSS = """
import importlib.util, os, sys, torch, cv2, numba
spec = importlib.util.spec_from_file_location("memory", "fastyolo_data/cli/bench/memory.py")
memory = sys.modules["memory"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)
base = memory.tree_memory(os.getpid()).footprint
with memory.PeakSampler(os.getpid(), 0.05) as sampler:
    import fastyolo_data
    loader = fastyolo_data.build_loader(sys.argv[1], cache="ram", workers=int(sys.argv[2]), verbose=False)
    for _ in range(2):
        for batch in loader:
            pass
    nbytes = loader._context.store.arena.nbytes
print(base, sampler.peak.footprint, nbytes)
"""


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_peak_memory(tmp_path: Path, workers: int) -> None:
    """Peak PSS over a process that only imports torch, cv2 and numba: at most the cache × 1.1 + 0.3 GB."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells the proportional set size")
    folder, rng = tmp_path / "images", np.random.default_rng(0)
    folder.mkdir()
    for i in range(300):
        im = cv2.resize(rng.integers(0, 256, (6, 8, 3), np.uint8), (640, 480), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{i}.jpg"), im)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "0.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    command = [sys.executable, "-c", PSS, str(folder), str(workers)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    base, peak, cache = map(int, told.stdout.split())
    print(f"workers {workers}: cache {cache / 1e6:.0f} MB, peak over base {(peak - base) / 1e6:.0f} MB")
    assert cache == 300 * 480 * 640 * 3
    assert peak - base <= cache * 1.1 + 0.3e9
