"""Damaged files: an ImageDecodeError or a picture of the probed shape; never a crash, never another exception."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data.decode import Decoder, probe_image
from fastyolo_data.errors import ImageDecodeError
from tests.decode.pictures import APIS, api, array, encode, exif, ifd, photo, with_chunk, with_segments

SEEDS = 300


def victims() -> list[bytes]:
    im = photo(41, 57)
    return [
        encode(im),
        with_segments(encode(im, ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1), exif(6)),
        encode(im[..., 0], ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 2),
        encode(im, ".png"),
        with_chunk(encode(im[..., 0], ".png"), b"eXIf", ifd(6)),
        encode(im, ".bmp"),
        encode(im, ".webp"),
        encode(im, ".tiff"),
    ]


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    kind = rng.integers(4)
    if kind == 0:
        return data[: rng.integers(len(data))]
    changed = bytearray(data)
    reach = len(data) if kind == 1 else min(len(data), 700)  # headers are short: aim at them as well
    for _ in range(rng.integers(1, 6)):
        changed[rng.integers(reach)] = rng.integers(256)
    if kind == 3:
        at = rng.integers(len(data))
        del changed[at : at + rng.integers(1, 20)]
    return bytes(changed)


@pytest.mark.parametrize("name", list(APIS))
def test_fuzz(tmp_path, name):
    functions = api(name)
    decoder = Decoder(functions)
    files = victims()
    outcomes = {"fine": 0, "refused": 0, "refused later": 0}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        data = damage(files[seed % len(files)], rng)
        outcomes[_one(decoder, functions, tmp_path / "a.img", data)] += 1
    assert outcomes["fine"] > 20
    assert outcomes["refused"] > 50
    assert outcomes["refused later"] < SEEDS // 10, outcomes  # damage between the scans of a progressive JPEG


def _one(decoder: Decoder, functions: object, file: Path, data: bytes) -> str:
    file.write_bytes(data)
    try:
        shape = probe_image(str(file), functions)
    except ImageDecodeError:
        shape = None
    try:
        im = decoder.decode(array(data), str(file)).im
    except ImageDecodeError:
        return "refused" if shape is None else "refused later"
    if shape is None:
        assert data.startswith(b"\x89PNG"), "only checksums of a PNG may be judged harder than decoding"
        return "refused"
    assert im.shape == (*shape, 3)
    assert im.dtype == np.uint8
    return "fine"


@pytest.mark.parametrize("name", list(APIS))
def test_every_length_of_a_jpeg(name):
    """Cut at each byte: an error as long as anything of the picture is missing, then the whole picture."""
    decoder = Decoder(api(name))
    for progressive in (0, 1):
        data = encode(photo(16, 24), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, progressive, cv2.IMWRITE_JPEG_QUALITY, 60)
        whole = cv2.imdecode(array(data), cv2.IMREAD_COLOR)
        accepted = []
        for size in range(len(data)):
            try:
                im = decoder.decode(array(data[:size]), "a.jpg").im
            except ImageDecodeError:
                continue
            accepted.append(size)
            np.testing.assert_allclose(im.astype(int), whole, atol=40, err_msg=f"cut at {size}")
        assert min(accepted) >= len(data) - 4, (len(data), accepted)
        assert accepted[-2:] == [len(data) - 2, len(data) - 1]
