"""What every backend must do, run over all of them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from fastyolo_data import build_dataset, build_loader
from fastyolo_data.errors import ConfigError, ImageDecodeError
from fastyolo_data.loader import FastLoader
from tests.store.support import BACKENDS, STORED, FakeSet, digest, select, write_pictures

STRONG = {"hsv_h": 0.5, "hsv_s": 0.9, "hsv_v": 0.9, "mixup": 0.5}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of a set of JPEG, PNG, grey and rotated pictures."""
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"numerics": "exact", "hyp": STRONG},
        {"split": "val", "rect": True},
        {"split": "val", "dialect": "ultralytics"},
        {"mosaic_pool": "uniform", "hyp": STRONG},
    ],
    ids=["train", "exact", "val-rect", "val", "uniform"],
)
def test_batches_are_those_of_raw_disk(pictures: Path, backend: str, options: dict, monkeypatch) -> None:
    expected = digest(pictures, 2, cache="none", workers=0, **options)
    cache = select(backend, monkeypatch)
    for workers in (0, 4):
        assert digest(pictures, 2, cache=cache, workers=workers, **options) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_scaled_decoding_has_a_cache_of_its_own(pictures: Path, backend: str, monkeypatch) -> None:
    cache = select(backend, monkeypatch)
    plain = digest(pictures, cache=cache, workers=2)
    images = build_dataset(pictures, cache=cache, imgsz=96, verbose=False)
    before = [images.load_image(i)[0] for i in range(len(images))]
    monkeypatch.setenv("FASTYOLO_SCALED_DECODE", "1")
    scaled = digest(pictures, cache=cache, workers=2)
    assert scaled == digest(pictures, cache="none", workers=2) != plain
    images = build_dataset(pictures, cache=cache, imgsz=96, verbose=False)
    assert all(np.array_equal(images.load_image(i)[0], before[i]) for i in range(len(images)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dialect", ["yolov5", "yolov9"])
def test_val_of_area_dialects(pictures: Path, backend: str, dialect: str, monkeypatch) -> None:
    cache = select(backend, monkeypatch)

    def images(mode: str) -> list:
        with build_loader(
            pictures, split="val", dialect=dialect, cache=mode, imgsz=96, verbose=False, workers=2
        ) as loader:
            return [batch[0].clone() for batch in loader]

    assert all((a == b).all() for a, b in zip(images("none"), images(cache), strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_load_image_and_single_samples(pictures: Path, backend: str, monkeypatch) -> None:
    plain = build_dataset(pictures, cache="none", imgsz=96, verbose=False)
    cached = build_dataset(pictures, cache=select(backend, monkeypatch), imgsz=96, verbose=False)
    for i in range(len(plain)):
        a, b = plain.load_image(i), cached.load_image(i)
        assert a[1:] == b[1:]
        assert np.array_equal(a[0], b[0])
        assert b[0].flags.writeable
        assert b[0].flags.owndata
        assert (plain[i]["img"] == cached[i]["img"]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_tiles(tmp_path: Path, backend: str) -> None:
    fake = FakeSet(tmp_path, 25)
    store = fake.open(backend)
    fake.check(store)
    if backend != "lmdb-jpeg":
        assert fake.made() == sorted(fake.files), "every file is decoded once, while the cache is made"
        with pytest.raises(ValueError):
            store.reader().tile(3)[0, 0, 0] = 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_broken_image(tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSet(tmp_path, 10)
    fake.write(4, "broken")
    store = fake.open(backend)
    assert "0004.bin: broken" in caplog.text
    fake.check(store, range(4))
    fake.check(store, range(5, 10))
    with pytest.raises(ImageDecodeError, match="0004"):
        store.reader().tile(4)
    if backend in STORED:
        fake.open(backend)
        assert fake.made() == [], "a file that is known to be broken is not tried at every start"
        fake.write(4, "mended")
        fake.check(fake.open(backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_closed_store_reads_the_files(tmp_path: Path, backend: str) -> None:
    fake = FakeSet(tmp_path, 6)
    store = fake.open(backend)
    reader = store.reader()
    view = reader.tile(2)
    expected = view.copy()
    store.close()
    gc.collect()
    assert np.array_equal(view, expected), "what a reader handed out stays valid"
    assert np.array_equal(reader.tile(2), expected)
    fake.check(store)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_listed_twice_is_kept_once(tmp_path: Path, backend: str) -> None:
    fake = FakeSet(tmp_path, 5)
    fake.side = 64
    fake.files += [fake.files[2]] * 35  # index 7, 12, ... would ask for the same tile size as 2 only every 35 images
    images = fake.images()
    images.disk.tile_hw[:] = 64
    images.disk.hw[:] = 128
    fake.images = lambda: images  # type: ignore[method-assign]
    store = fake.open(backend)
    fake.check(store)
    assert fake.made().count(fake.files[2]) == 1 or backend == "lmdb-jpeg"
    if backend == "ram":
        assert store.arena.size == 5 * 64 * 64 * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_forked_process_reads_on(tmp_path: Path, backend: str) -> None:
    fake = FakeSet(tmp_path, 8)
    store = fake.open(backend)
    reader = store.reader()
    reader.tile(0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            fake.check(store)
            code = 0 if np.array_equal(reader.tile(1), store.reader().tile(1)) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    fake.check(store)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_loaders_on_one_cache(pictures: Path, backend: str, monkeypatch) -> None:
    cache = select(backend, monkeypatch)
    options = {"cache": cache, "imgsz": 96, "batch": 4, "verbose": False, "workers": 2}
    with build_loader(pictures, **options) as a, build_loader(pictures, **options) as b:
        for x, y in zip(a, b, strict=True):
            assert (x["img"] == y["img"]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_set_that_cannot_be_written_to(tmp_path: Path, backend: str, monkeypatch) -> None:
    data = write_pictures(tmp_path / "set", 6)
    (tmp_path / "set" / ".fastyolo").write_text("a file where the folder would be: nothing can be written there")
    monkeypatch.setenv("FASTYOLO_CACHE_DIR", str(tmp_path / "user"))
    cache = select(backend, monkeypatch)
    before = sorted(p for p in (tmp_path / "set").rglob("*"))
    expected = digest(data, cache="none", workers=0)
    assert digest(data, cache=cache, workers=2) == expected == digest(data, cache=cache, workers=2)
    assert sorted(p for p in (tmp_path / "set").rglob("*")) == before
    if backend in STORED:
        assert len(list((tmp_path / "user" / "tiles").glob("*.index"))) == 1
        own = tmp_path / "own"
        assert digest(data, cache=cache, workers=2, cache_dir=own) == expected
        assert len(list(own.glob("*.index"))) == 1


@pytest.mark.parametrize("backend", ["memmap", "lmdb", "lmdb-jpeg", "ram"])
def test_images_are_not_opened_once_cached(tmp_path: Path, backend: str, monkeypatch) -> None:
    data = write_pictures(tmp_path, 6)
    options = {"cache": select(backend, monkeypatch), "imgsz": 96, "batch": 4, "verbose": False, "workers": 2}
    with build_loader(data, **options) as loader:
        os.rename(tmp_path / "images", tmp_path / "images_away")
        for _ in range(3):
            assert sum(len(batch["img"]) for batch in loader) == 6
        assert loader.dataset.load_image(0)[0].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_set_after_its_loader(pictures: Path, backend: str, monkeypatch, caplog) -> None:
    """A closed loader's cache is not filled again for a single image; a new loader fills it again."""
    options = {"cache": select(backend, monkeypatch), "imgsz": 96, "batch": 4, "verbose": False, "workers": 2}
    loader = build_loader(pictures, **options)
    dataset = loader.dataset
    before = dataset.load_image(2)[0]
    loader.close()
    loader.close()
    caplog.clear()
    caplog.set_level("INFO", "fastyolo_data")
    assert np.array_equal(dataset.load_image(2)[0], before)
    assert "cache" not in caplog.text
    with FastLoader(dataset) as again:
        assert len(next(iter(again))["img"]) == 4
        assert again._context.store.holds(0)


def test_wrong_names(pictures: Path, monkeypatch) -> None:
    for wrong in ("disc", "False ", "mmap", 1, "lmdb-jpeg"):
        with pytest.raises(ConfigError, match="'ram', 'lmdb', 'memmap', 'auto'"):
            build_dataset(pictures, cache=wrong)
    monkeypatch.setenv("FASTYOLO_LMDB_PAYLOAD", "png")
    with pytest.raises(ConfigError, match="FASTYOLO_LMDB_PAYLOAD='png'"):
        build_loader(pictures, cache="lmdb", verbose=False)
