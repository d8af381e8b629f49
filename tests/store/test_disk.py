"""Raw files: reading in pieces, growing buffers, and files that are not what the scan saw."""

from __future__ import annotations

import builtins
import io
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data.decode import Decoder, TileMaker
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.kernels import jpeg
from fastyolo_data.store import DiskStore

BUFFER = 1 << 18  # what a reader starts with


class Keep:
    """A maker that returns a copy of the bytes it is given."""

    def make(self, data, path, hw0, tile_hw):
        self.seen = (path, hw0, tile_hw)
        return data.copy()


def write(path: Path, size: int, seed: int = 0) -> bytes:
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()
    path.write_bytes(data)
    return data


def store_of(paths, maker=Keep) -> DiskStore:
    n = len(paths)
    return DiskStore([str(p) for p in paths], np.full((n, 2), 40), np.full((n, 2), 20), maker)


@pytest.mark.parametrize("size", [0, 1, 1000, BUFFER - 1, BUFFER, BUFFER + 1, 2 * BUFFER, 2 * BUFFER + 1, 5_000_001])
def test_whole_files_of_any_size(tmp_path, size):
    data = write(tmp_path / "a.bin", size)
    assert store_of([tmp_path / "a.bin"]).reader().tile(0).tobytes() == data


def test_a_large_file_leaves_nothing_in_a_later_small_one(tmp_path):
    sizes = [10, 3 * BUFFER, 7, 0, BUFFER, 5]
    datas = [write(tmp_path / f"{i}", s, i) for i, s in enumerate(sizes)]
    reader = store_of([tmp_path / f"{i}" for i in range(6)]).reader()
    for i in (0, 1, 2, 3, 4, 5, 0):
        assert reader.tile(i).tobytes() == datas[i]


class Trickle(io.FileIO):
    """A file that returns a few bytes at a time, as network file systems and signals do."""

    def readinto(self, buffer):
        step = 1 + 997 * (self.tell() % 7)
        return super().readinto(memoryview(buffer)[: min(step, len(buffer))])


def test_short_reads(tmp_path, monkeypatch):
    data = write(tmp_path / "a.bin", BUFFER + 12_345)
    monkeypatch.setattr(builtins, "open", lambda path, mode, buffering: Trickle(path, mode))
    assert store_of([tmp_path / "a.bin"]).reader().tile(0).tobytes() == data


def test_readers_do_not_share_memory(tmp_path):
    for i in range(2):
        write(tmp_path / f"{i}", 500, i)
    store = store_of([tmp_path / "0", tmp_path / "1"])
    first, second = store.reader(), store.reader()
    a = first.read(0)
    before = a.copy()
    second.read(1)
    np.testing.assert_array_equal(a, before)


def test_maker_gets_path_and_sizes_as_plain_numbers(tmp_path):
    write(tmp_path / "a", 3)
    maker = Keep()
    DiskStore(
        [str(tmp_path / "a")], np.array([(480, 640)], np.int32), np.array([(15, 20)]), lambda: maker
    ).reader().tile(0)
    assert maker.seen == (str(tmp_path / "a"), (480, 640), (15, 20))
    assert {type(v) for pair in maker.seen[1:] for v in pair} == {int}


@pytest.mark.parametrize(
    "name", ["Straße ü.jpg", "图像 一.jpg", "emoji 🐈.jpg", "new\nline.jpg", "name \udcff\udce4.jpg", "a" * 200]
)
def test_any_file_name(tmp_path, name):
    try:
        data = write(tmp_path / name, 99)
    except (OSError, UnicodeEncodeError) as error:
        pytest.skip(f"this file system refuses the name: {error}")
    assert store_of([tmp_path / name]).reader().tile(0).tobytes() == data


# ---- with the real decoder -------------------------------------------------------------------------------------------


def picture(path: Path, h: int = 40, w: int = 40, seed: int = 0) -> np.ndarray:
    im = np.random.default_rng(seed).integers(0, 256, (h, w, 3), dtype=np.uint8)
    ok, data = cv2.imencode(path.suffix, im)
    assert ok
    path.write_bytes(data.tobytes())
    return cv2.imdecode(data, cv2.IMREAD_COLOR)


def real(paths) -> DiskStore:
    api = jpeg.load()
    return store_of(paths, lambda: TileMaker(Decoder(api), area_when_shrinking=False, scaled=False))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp"])
def test_tile_is_the_resized_picture(tmp_path, suffix):
    path = tmp_path / f"ä{suffix}"
    im = picture(path)
    want = cv2.resize(im, (20, 20), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(real([path]).reader().tile(0), want)


def vanish(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_size(path: Path) -> None:
    picture(path, 41, 40)


def turned(path: Path) -> None:
    picture(path, 80, 20)


def not_an_image(path: Path) -> None:
    path.write_bytes(b"<html>404</html>" * 50)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [vanish, empty, other_size, turned, not_an_image, folder])
@pytest.mark.parametrize("name", ["photo.jpg", "bild ä.png"])
def test_a_file_that_changed_since_the_scan_is_named(tmp_path, name, harm):
    path, good = tmp_path / name, tmp_path / "good.png"
    picture(path)
    want = cv2.resize(picture(good, seed=1), (20, 20), interpolation=cv2.INTER_LINEAR)
    reader = real([path, good]).reader()
    reader.tile(0)
    harm(path)
    with pytest.raises(ImageDecodeError) as caught:
        reader.tile(0)
    assert str(path) in str(caught.value)
    if harm in (vanish, folder):
        assert "cannot be read during training" in str(caught.value)
        assert "build the loader again" in str(caught.value)
    if harm in (other_size, turned):
        assert "40x40" in str(caught.value)
    np.testing.assert_array_equal(reader.tile(1), want)  # the reader goes on


def test_a_reader_is_refused_by_permissions(tmp_path, monkeypatch):
    path = tmp_path / "secret.png"
    picture(path)

    def refuse(*args, **kw):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(ImageDecodeError, match=r"secret\.png.*Permission denied"):
        real([path]).reader().tile(0)
