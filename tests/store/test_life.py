"""The life of a stored cache: reuse, repair, interruption, full disks, several builders."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastyolo_data.errors import StoreError
from fastyolo_data.lock import BuildLock
from fastyolo_data.store import StoredStore, index, memmap, open_stored, update
from tests.store.support import STORED, FakeSet

TILES = ("memmap", "lmdb")


def decoded(fake: FakeSet, backend: str) -> list[int]:
    """Open the cache; return which files were decoded for it."""
    store = fake.open(backend)
    made = [fake.files.index(f) for f in fake.made()]
    fake.check(store)
    return made


@pytest.mark.parametrize("backend", STORED)
def test_only_what_changed_is_made_anew(tmp_path: Path, backend: str) -> None:
    fake = FakeSet(tmp_path, 30)
    assert decoded(fake, backend) == list(range(30))
    assert decoded(fake, backend) == []
    fake.write(7, "other")
    assert decoded(fake, backend) == [7]
    os.utime(fake.files[9], ns=(1, 1))
    fake.add("new")
    assert decoded(fake, backend) == [9, 30]
    fake.files[3:6] = []
    os.utime(fake.files[0], ns=(5, 5))
    images = fake.images()  # removing files must not shift the others; FakeSet ties sizes to positions
    assert len(images.size) == 28
    store = fake.open(backend)
    fake.check(store)
    assert len(fake.data_files()) == 1
    assert fake.left() == []


@pytest.mark.parametrize("backend", STORED)
def test_reuse_is_fast(tmp_path: Path, backend: str, monkeypatch) -> None:
    fake = FakeSet(tmp_path, 4)
    fake.open(backend)
    fake.files = [fake.files[i % 4] for i in range(4)]
    began = time.perf_counter()
    fake.open(backend)
    assert time.perf_counter() - began < 0.2


@pytest.mark.parametrize("backend", TILES)
def test_waste_is_cleared(tmp_path: Path, backend: str, monkeypatch) -> None:
    monkeypatch.setattr("fastyolo_data.store.build._SPARE", 1 << 17)
    fake = FakeSet(tmp_path, 40)
    fake.open(backend)
    size = fake.data_files()[0].stat().st_size
    fake.files = fake.files[:5]
    store = fake.open(backend)
    fake.check(store)
    assert fake.made() == [], "what is still good is copied"
    assert sum(p.stat().st_size for p in fake.data_files()) < size / 3


@pytest.mark.parametrize("backend", STORED)
def test_truncation_at_every_tenth(tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSet(tmp_path, 40)
    for tenth in range(10):
        fake.open(backend)
        data = fake.data_files()[0]
        os.truncate(data, data.stat().st_size * tenth // 10)
        caplog.clear()
        fake.check(fake.open(backend))
        assert "is built anew" in caplog.text
        assert len(fake.made()) == 40 or backend == "lmdb-jpeg"
        assert len(fake.data_files()) == 1
        assert fake.left() == []
        file = next(fake.cache.glob("*.index"))
        os.truncate(file, file.stat().st_size * tenth // 10)
        fake.check(fake.open(backend))


def flip(path: Path, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("backend", STORED)
def test_200_flipped_bits(tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """A flipped bit never reaches a tile. It is reported unless it hit padding that nobody reads (LMDB's pages)."""
    fake = FakeSet(tmp_path, 12, side=64)
    fake.open(backend)
    data, rng, reported = fake.data_files()[0], random.Random(0), 0
    good, good_index = data.read_bytes(), next(fake.cache.glob("*.index"))
    index_bytes = good_index.read_bytes()
    for _ in range(200):
        bit = rng.randrange(len(good) * 8)
        flip(data, bit)
        caplog.clear()
        store = fake.open(backend)
        fake.check(store)
        reported += "is damaged" in caplog.text or "is built anew" in caplog.text
        store.close()
        for path in fake.cache.iterdir():
            path.unlink()
        data.write_bytes(good)
        good_index.write_bytes(index_bytes)
    assert reported == 200 if backend == "memmap" else reported > (150 if backend == "lmdb" else 20)


def test_flipped_bits_of_the_index(tmp_path: Path) -> None:
    fake = FakeSet(tmp_path, 6)
    fake.open("memmap")
    path = next(fake.cache.glob("*.index"))
    good, rng = path.read_bytes(), random.Random(1)
    for _ in range(100):
        path.write_bytes(good)
        flip(path, rng.randrange(len(good) * 8))
        with pytest.raises(StoreError, match="index"):
            index.read_index(path)


@pytest.mark.parametrize("backend", TILES)
def test_damage_is_repaired_by_the_next_start(tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSet(tmp_path, 20, side=80)
    fake.open(backend)
    data = fake.data_files()[0]
    store = fake.open(backend)
    where = store.reader().tile(11)
    at = data.read_bytes().index(where.tobytes())
    del where, store
    flip(data, (at + 1000) * 8 + 3)
    fake.check(fake.open(backend))
    assert "0011.bin is damaged (its checksum is wrong)" in caplog.text
    assert decoded(fake, backend) == [11]
    assert decoded(fake, backend) == []


def test_other_version(tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSet(tmp_path, 5)
    fake.open("memmap")
    monkeypatch.setattr(index, "_VERSION", 2)
    assert decoded(fake, "memmap") == list(range(5))
    assert "it has version 1, expected 2" in caplog.text


def test_pread_where_mapping_is_refused(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(19, "No such device")

    fake = FakeSet(tmp_path, 9)
    monkeypatch.setattr(memmap.mmap, "mmap", refuse)
    store = fake.open("memmap")
    assert isinstance(store.reader(), object)
    fake.check(store)
    assert isinstance(store.container.reader(), memmap.PreadReader)
    assert decoded(fake, "memmap") == []


BUILD = """
import sys, logging
from pathlib import Path
from tests.store.support import FakeSet
from fastyolo_data.store import update, memmap, lmdb
update.CHECKPOINT = 0.05
lmdb._BATCH = 50_000
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
fake = FakeSet(Path(sys.argv[1]), int(sys.argv[3]), delay=float(sys.argv[4]))
print("ready", flush=True)
store = fake.open(sys.argv[2])
print("made", len(fake.made()), flush=True)
fake.check(store)
print("right", flush=True)
"""


def start(root: Path, backend: str, n: int, delay: float) -> subprocess.Popen:
    arguments = [sys.executable, "-c", BUILD, str(root), backend, str(n), str(delay)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "kills"), [("memmap", 15), ("lmdb", 15)])
def test_kill_at_random_moments(tmp_path: Path, backend: str, kills: int) -> None:
    """After every kill the next start gives right data; in between the cache grows, and nothing is left behind."""
    n, delay, rng, resumed = 120, 0.004, random.Random(5), 0
    fake = FakeSet(tmp_path, n)
    for _ in range(kills):
        child = start(tmp_path, backend, n, delay)
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0, n * delay / 2 * 1.2))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        store = fake.open(backend)
        resumed += 0 < len(fake.made()) < n
        fake.check(store)
        assert len(fake.data_files()) == 1
        assert fake.left() == []
        for path in fake.cache.iterdir():
            path.unlink()
    assert resumed >= 3


def test_four_builders_at_once(tmp_path: Path) -> None:
    FakeSet(tmp_path, 60)
    children = [start(tmp_path, "memmap", 60, 0.02) for _ in range(4)]
    told = [child.communicate(timeout=120)[0] for child in children]
    assert all(text.endswith("right\n") for text in told)
    made = sorted(int(text.split("made ")[1].split()[0]) for text in told)
    assert made == [0, 0, 0, 60], "one builds, the others wait"
    assert sum("waiting until it has been built by process" in text for text in told) >= 1


def test_lock_of_a_hanging_process(tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("fastyolo_data.lock._GIVE_UP", 0.3)
    fake = FakeSet(tmp_path, 5)
    fake.cache.mkdir()
    lock = BuildLock(fake.cache / f"{fake.recipe('memmap').stem}.lock")
    assert lock.acquire()
    store = fake.open("memmap")
    assert "shows no sign of life" in caplog.text
    assert store.name == "none"
    lock.release()
    assert isinstance(fake.open("memmap"), StoredStore)


@pytest.mark.parametrize("backend", TILES)
def test_small_file_system(tmp_path: Path, backend: str, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    """A 64 MB tmpfs, too small by what is forecast and by what is not."""
    fake = FakeSet(tmp_path, 30, side=1200)  # 130 MB
    fake.cache.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(fake.cache)], check=False)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        store = fake.open(backend)
        fake.check(store, range(3))
        assert store.name == "none"
        assert "130 MB needed, 67.1 MB free" in caplog.text
        assert fake.data_files() == []
        assert fake.left() == []
        with monkeypatch.context() as patch:
            roomy = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=1 << 40))
            patch.setattr("fastyolo_data.store.build.shutil", roomy)
            store = fake.open(backend)
        assert store.name == "none"
        assert "No space left on device" in caplog.text
        assert fake.data_files() == []
        assert fake.left() == []
        assert list(fake.cache.glob("*.index")) == []
        small = FakeSet(tmp_path / "small", 10, side=1200)  # 43 MB
        small.cache = fake.cache
        small.check(small.open(backend), range(3))
        assert len(fake.data_files()) == 1
        small.files += fake.files
        store = small.open(backend)
        small.check(store)
        assert isinstance(store, StoredStore), "what was cached stays in use"
        assert len(fake.data_files()) == 1
        assert fake.left() == []
    finally:
        subprocess.run(["umount", "-l", str(fake.cache)], check=True)


@pytest.mark.parametrize("backend", TILES)
def test_disk_full_during_the_build(tmp_path: Path, backend: str, monkeypatch) -> None:
    """The forecast says yes, the disk says no: a file size limit stands in for it, in a process of its own."""

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
        fake = FakeSet(tmp_path, 120)
        store = fake.open(backend)
        fake.check(store)
        assert store.name == "none"
        assert fake.data_files() == []
        assert fake.left() == []
        assert list(fake.cache.glob("*.index")) == []

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0


@pytest.mark.parametrize("backend", TILES)
def test_failed_extension_leaves_the_old_cache(tmp_path: Path, backend: str, monkeypatch, caplog) -> None:
    fake = FakeSet(tmp_path, 20)
    fake.open(backend)
    data = fake.data_files()[0]
    before = data.read_bytes()
    fake.add("new")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(update.Update, "_commit", fail)
        store = fake.open(backend)
    fake.check(store)
    assert isinstance(store, StoredStore)
    assert store.holds(3)
    assert not store.holds(20)
    assert "No space left on device" in caplog.text
    assert "the images that are not in it are read from disk" in caplog.text
    assert data.read_bytes() == before
    assert fake.left() == []
    assert decoded(fake, backend) == [20]


@pytest.mark.parametrize("backend", TILES)
def test_interrupted_by_the_user(tmp_path: Path, backend: str, monkeypatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    fake = FakeSet(tmp_path, 20, delay=0.02)
    monkeypatch.setattr(BuildLock, "touch", interrupt)
    monkeypatch.setattr(update, "_TOUCH", 0.01)
    with pytest.raises(KeyboardInterrupt):
        fake.open(backend)
    assert fake.data_files() == []
    assert fake.left() == []


def test_second_folder_when_the_first_cannot_be_written(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "fastyolo_data")
    fake = FakeSet(tmp_path, 5)
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    images = fake.images()
    for _ in range(2):
        store = open_stored(images, fake.recipe("memmap"), [blocked, fake.cache], threads=2)
        fake.check(store)
    assert len(fake.data_files()) == 1
    assert "unchanged" in caplog.text


def test_an_index_costs_little_memory(tmp_path: Path) -> None:
    fake = FakeSet(tmp_path, 50)
    store = fake.open("memmap")
    per_image = sum(a.itemsize for a in (store.offsets, store.nbytes, store.crc, store.verified))
    assert per_image <= 24
    assert all(isinstance(a, np.ndarray) and len(a) == 50 for a in (store.offsets, store.nbytes, store.crc))
