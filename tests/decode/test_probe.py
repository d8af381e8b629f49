"""decode/probe.py: the scanned shape is the decoded shape, and a file is accepted if and only if it decodes."""

from __future__ import annotations

import os

import cv2
import numpy as np
import pytest

from fastyolo_data.decode import probe, probe_image, read_image
from fastyolo_data.errors import ImageDecodeError
from tests.decode.pictures import APIS, XMP, api, encode, exif, ifd, photo, real_files, with_chunk, with_segments
from tests.decode.test_image import ALL_SUFFIXES


@pytest.fixture(params=list(APIS))
def functions(request):
    return api(request.param)


def outcome(function, path, functions) -> tuple[int, int] | None:
    try:
        result = function(str(path), functions)
    except ImageDecodeError as error:
        return None if str(path) in str(error) else pytest.fail(f"no file name in {error}")
    return result if isinstance(result, tuple) else result.shape[:2]


def check(path, functions) -> tuple[int, int] | None:
    """Probe and decode a file, check that they agree, return the shape (None: refused)."""
    before = path.read_bytes()
    shape = outcome(probe_image, path, functions)
    assert shape == outcome(read_image, path, functions), path
    assert path.read_bytes() == before
    return shape


def test_real_files(functions):
    for file in real_files(*ALL_SUFFIXES):
        check(file, functions)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("before", [(), (XMP,), (XMP + b" " * 60000, XMP + b" " * 60000)])
def test_jpeg_exif(tmp_path, functions, orientation, before):
    file = tmp_path / "a.jpg"
    icc = with_segments(encode(photo(30, 50)), *[b"ICC_PROFILE\0" + b"x" * 65000] * 3, marker=0xE2)
    file.write_bytes(with_segments(icc, *before, exif(orientation)))
    assert check(file, functions) == ((50, 30) if orientation in (5, 6, 7, 8) else (30, 50))


def test_ordinary_jpeg_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "Decoder", None)
    for name, flags in (("b", ()), ("p", (cv2.IMWRITE_JPEG_PROGRESSIVE, 1))):
        (tmp_path / name).write_bytes(with_segments(encode(photo(30, 50), ".jpg", *flags), exif(6)))
        assert probe_image(str(tmp_path / name)) == (50, 30)
    (tmp_path / "c").write_bytes(with_chunk(encode(photo(30, 50), ".png"), b"tEXt", b"Software\0me"))
    assert probe_image(str(tmp_path / "c")) == (30, 50)


@pytest.mark.parametrize("tail", [b"", b"\r\n", b"\0" * 16, b"\xff"])
@pytest.mark.parametrize("keep_end_marker", [True, False])
def test_complete_jpeg_with_an_unusual_end(tmp_path, functions, tail, keep_end_marker, capfd):
    file = tmp_path / "a.jpg"
    data = encode(photo(30, 50))
    file.write_bytes((data if keep_end_marker else data[:-2]) + tail)
    assert check(file, functions) == (30, 50)
    if functions is not None:
        assert capfd.readouterr().err == ""


@pytest.mark.parametrize("keep", [0.97, 0.5, 0.2])
@pytest.mark.parametrize("progressive", [0, 1])
def test_truncated_jpeg(tmp_path, functions, keep, progressive, capfd):
    file = tmp_path / "a.jpg"
    data = encode(photo(90, 150), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)
    file.write_bytes(data[: int(len(data) * keep)])
    assert check(file, functions) is None
    if functions is not None:
        assert capfd.readouterr().err == ""


def png_damages() -> dict[str, bytes]:
    good = encode(photo(60, 70), ".png")
    at = good.index(b"IDAT")
    size = int.from_bytes(good[at - 4 : at], "big")
    flip, crc, ancillary = bytearray(good), bytearray(good), bytearray(with_chunk(good, b"tEXt", b"a\0b"))
    flip[at + 10] ^= 0xFF
    crc[at + 4 + size] ^= 0xFF
    ancillary[33 + 8] ^= 0xFF
    return {
        "cut": good[: len(good) // 2],
        "no end": good[:-12],
        "short end": good[:-1],
        "flip": bytes(flip),
        "crc": bytes(crc),
        "text crc": bytes(ancillary),
        "signature": good[:8],
        "header only": good[:33],
    }


@pytest.mark.parametrize("damage", list(png_damages()))
def test_damaged_png(tmp_path, functions, damage):
    file = tmp_path / "a.png"
    file.write_bytes(png_damages()[damage])
    with pytest.raises(ImageDecodeError, match=r"a\.png.*damaged PNG"):
        probe_image(str(file), functions)


@pytest.mark.parametrize(
    "data",
    [
        encode(photo(20, 31), ".png") + b"trailing",
        with_chunk(encode(photo(20, 31), ".png"), b"eXIf", ifd(6)),
        with_chunk(encode(photo(20, 31), ".png"), b"tEXt", b"Raw profile type exif\0\nexif\n 6\n4578"),
        encode(photo(20, 31)[..., 0], ".png"),
        encode(photo(20, 31).astype(np.uint16) << 8, ".png"),
        encode(np.dstack((photo(20, 31), photo(20, 31)[..., :1])), ".png"),
        encode(photo(20, 31)[..., 0], ".png", cv2.IMWRITE_PNG_BILEVEL, 1),
        encode(photo(20, 31), ".webp"),
        encode(photo(20, 31), ".tiff"),
        encode(photo(20, 31), ".bmp"),
    ],
)
def test_good_files_of_other_kinds(tmp_path, functions, data):
    (tmp_path / "a").write_bytes(data)
    assert check(tmp_path / "a", functions) in ((20, 31), (31, 20))


@pytest.mark.parametrize("data", [b"", b"j", b"junk" * 9, b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\0", b"<html>"])
def test_junk(tmp_path, functions, data):
    (tmp_path / "a.jpg").write_bytes(data)
    assert check(tmp_path / "a.jpg", functions) is None


def test_png_of_two_odd_chunks(tmp_path):
    end = with_chunk(b"\x89PNG\r\n\x1a\n" + b"\0" * 25, b"IEND", b"")[33:]
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + end)
    assert check(tmp_path / "a.png", None) is None


def test_not_a_file(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing.jpg", ".", "loop", "pipe"):
        with pytest.raises(ImageDecodeError):
            probe_image(str(tmp_path / name))
