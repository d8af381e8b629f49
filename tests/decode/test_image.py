"""decode/image.py against cv2.imdecode(IMREAD_COLOR), with and without libjpeg-turbo."""

from __future__ import annotations

import threading

import cv2
import numpy as np
import pytest

from fastyolo_data.decode import Decoder, read_image
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.kernels import jpeg
from tests.decode.pictures import APIS, XMP, api, array, encode, exif, ifd, photo, real_files, with_chunk, with_segments

ALL_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".jp2", ".avif", ".mpo", ".heic")


@pytest.fixture(params=list(APIS))
def decoder(request) -> Decoder:
    return Decoder(api(request.param))


def stock(data: bytes) -> np.ndarray | None:
    return cv2.imdecode(array(data), cv2.IMREAD_COLOR)


def test_real_files_equal_opencv(decoder):
    """Every picture of ../shared/data: equal pixels, or an error where OpenCV gives none."""
    errors = {}
    for file in real_files(*ALL_SUFFIXES):
        data = file.read_bytes()
        want = stock(data)
        try:
            got = decoder.decode(array(data), str(file))
        except ImageDecodeError as error:
            errors[file.name] = str(error)
            assert want is None, file
            continue
        assert got.im.dtype == np.uint8
        assert got.im.flags.c_contiguous
        assert got.hw0 == got.im.shape[:2]
        if file.name == "pillow_truncated.jpg":  # lacks only the last byte, half of the end marker
            want = stock(data[:-1] + b"\xff\xd9")
        np.testing.assert_array_equal(got.im, want, err_msg=str(file))
    assert sorted(errors) == [
        "jpegdecoder_lossless_sof3.jpg",
        "libjpeg_12bit.jpg",
        "pillow_broken_data_stream.png",
        "pillow_truncated.png",
        "pillow_ultrahdr.jpg",
        "pillowheif_pug.heic",
        "pillowheif_truncated.heic",
    ]
    assert all(name in text for name, text in errors.items())
    assert "HEIC" in errors["pillowheif_pug.heic"]
    assert "pillow-heif" in errors["pillowheif_pug.heic"]
    assert "truncated" in errors["pillow_ultrahdr.jpg"]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("hw", [(31, 50), (1, 20), (20, 1)])
def test_exif_orientations(decoder, orientation, order, hw):
    data = with_segments(encode(photo(*hw)), exif(orientation, order))
    got = decoder.decode(array(data), "x.jpg")
    np.testing.assert_array_equal(got.im, stock(data))
    assert got.hw0 == (hw[::-1] if orientation in (5, 6, 7, 8) else hw)


@pytest.mark.parametrize(
    "contents",
    [
        (XMP, exif(6)),
        (exif(1), exif(6)),
        (exif(6), exif(8)),
        (exif(6, kind=4),),
        (exif(6)[:-6],),
        (exif(6)[:16],),
        (b"Exif\0\0",),
        (b"Exif\0\1" + ifd(6),),
        (b"Exif\0\0" + ifd(6).replace(b"\x08\0\0\0", b"\xff\xff\xff\xff", 1),),
        (exif(6) + b"\0" * 60000, XMP + b" " * 65000),
        (b"\x12\x01" * 50,),
    ],
)
def test_strange_exif_is_read_as_opencv_reads_it(decoder, contents):
    data = with_segments(encode(photo(24, 40)), *contents)
    np.testing.assert_array_equal(decoder.decode(array(data), "x.jpg").im, stock(data))


@pytest.mark.parametrize("ext", [".png", ".webp", ".tiff", ".bmp", ".jp2", ".ppm", ".gif", ".avif"])
@pytest.mark.parametrize("kind", ["grey", "colour", "alpha"])
def test_other_formats(decoder, ext, kind):
    im = photo(40, 60)
    im = {"grey": im[..., 0], "colour": im, "alpha": np.dstack((im, im[..., 0]))}[kind]
    try:
        data = encode(im, ext)
    except cv2.error:
        pytest.skip(f"this OpenCV does not write {kind} {ext}")
    got = decoder.decode(array(data), "x").im
    assert got.shape == (40, 60, 3)
    np.testing.assert_array_equal(got, stock(data))


@pytest.mark.parametrize("ext", [".png", ".tiff"])
def test_sixteen_bit_keeps_the_high_byte(decoder, ext):
    im = np.arange(0, 60000, 25, dtype=np.uint16).reshape(40, 60)
    got = decoder.decode(array(encode(im, ext)), "x").im
    np.testing.assert_array_equal(got[..., 1], im >> 8)
    colour = np.dstack((im, im[::-1], im // 2))
    data = encode(colour, ext)
    got = decoder.decode(array(data), "x").im
    np.testing.assert_array_equal(got, stock(data))
    # OpenCV 5 takes the high byte of a PNG; a colour TIFF is divided by 257
    assert np.abs(got - (colour / 256)).max() < 1.5


def test_png_with_exif(decoder):
    data = with_chunk(encode(photo(20, 30), ".png"), b"eXIf", ifd(6))
    np.testing.assert_array_equal(decoder.decode(array(data), "x.png").im, stock(data))


@pytest.mark.parametrize(
    ("hw", "need", "divisor"),
    [
        ((1200, 1800), 640, 2),
        ((1200, 1280), 640, 2),
        ((1200, 1279), 640, 1),
        ((1200, 1800), 450, 4),
        ((1200, 1800), 225, 8),
        ((1200, 1800), 10, 8),
        ((333, 555), 100, 1),
        ((332, 554), 100, 2),
        ((332, 556), 100, 4),
        ((4, 4), 1, 4),
        ((3, 5), None, 1),
    ],
)
@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_scaled_decoding(decoder, hw, need, divisor, orientation):
    data = with_segments(encode(photo(*hw)), exif(orientation))
    full = stock(data)
    got = decoder.decode(array(data), "x.jpg", min_long_side=need)
    assert got.hw0 == full.shape[:2]
    assert got.im.shape[:2] == tuple(side / divisor for side in full.shape[:2])
    if divisor == 1:
        np.testing.assert_array_equal(got.im, full)
    else:
        reduced = {2: 17, 4: 33, 8: 65}[divisor]
        np.testing.assert_array_equal(got.im, cv2.imdecode(array(data), reduced))
    if min(hw) > 300:
        area = cv2.resize(full, got.im.shape[1::-1], interpolation=cv2.INTER_AREA)
        assert cv2.absdiff(area, got.im).mean() < 2


def test_scaled_decoding_leaves_other_kinds_at_full_size(decoder):
    data = encode(photo(200, 300), ".png")
    got = decoder.decode(array(data), "x.png", min_long_side=50)
    assert got.im.shape == (200, 300, 3)
    assert got.hw0 == (200, 300)


@pytest.mark.parametrize(
    "tail", [b"", b"\r\n", b"\0" * 16, b"\xff", b"junk\xff\xd9", b"\0" * 100 + b"\xff\xd8\xff\xd9"]
)
@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("orientation", [1, 6])
def test_bytes_behind_the_end_marker(decoder, tail, progressive, orientation):
    data = encode(photo(50, 70), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)
    data = with_segments(data, exif(orientation))
    np.testing.assert_array_equal(decoder.decode(array(data + tail), "x.jpg").im, stock(data))


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("progressive", [0, 1])
def test_only_the_end_marker_is_missing(decoder, cut, progressive):
    data = encode(photo(50, 70), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)
    np.testing.assert_array_equal(decoder.decode(array(data[:-cut]), "x.jpg").im, stock(data))


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("tail", [b"", b"\n", b"\xff"])
def test_missing_pixel_data_is_an_error(decoder, progressive, tail):
    data = encode(photo(80, 90), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)
    for keep in (0.95, 0.7, 0.5):
        with pytest.raises(ImageDecodeError, match=r"dir/a\.jpg: truncated JPEG"):
            decoder.decode(array(data[: int(len(data) * keep)] + tail), "dir/a.jpg")


def test_missing_scans_are_an_error(decoder):
    """Cut exactly between two scans there is no gap in the data, only a coarse picture."""
    data = encode(photo(80, 90), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    scans = [i for i in range(len(data)) if data[i : i + 2] == b"\xff\xda"]
    assert len(scans) > 3
    for scan in scans[1:]:
        start = data.rindex(b"\xff\xc4", 0, scan) if data.rfind(b"\xff\xc4", scan - 300, scan) > 0 else scan
        with pytest.raises(ImageDecodeError, match="truncated"):
            decoder.decode(array(data[:start]), "a.jpg")


@pytest.mark.parametrize("tail", [b"\xff\xd9", b"\xff\xd9\n"])
def test_cut_file_with_end_marker_decodes_as_stock(decoder, tail):
    """The header scan trusts an end marker, so decoding has to go through."""
    data = encode(photo(80, 90))
    data = data[: len(data) // 2] + tail
    np.testing.assert_array_equal(decoder.decode(array(data), "a.jpg").im, stock(data))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"junk" * 9, "no known picture format"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"\xff\xd8\xff", "JPEG"),
        (b"\xff\xd8\xff\xd9", "JPEG"),
        (encode(photo(9, 9), ".png")[:60], "PNG"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    ],
)
def test_unusable_files_are_named(decoder, data, words, capfd):
    with pytest.raises(ImageDecodeError, match=words) as info:
        decoder.decode(array(data), "some/dir/b.jpg")
    assert "some/dir/b.jpg" in str(info.value)
    if not data.startswith(b"\x89PNG"):  # libpng itself may print
        assert capfd.readouterr().err == ""


def test_opencv_log_level_is_given_back(decoder):
    before = cv2.utils.logging.getLogLevel()
    for data in (b"junk", encode(photo(9, 9), ".png")[:60]):
        with pytest.raises(ImageDecodeError):
            decoder.decode(array(data), "x")
    assert cv2.utils.logging.getLogLevel() == before


def test_result_is_valid_until_the_next_call(decoder):
    a, b = photo(30, 40, 1), photo(40, 30, 2)
    first = decoder.decode(array(encode(a)), "a").im.copy()
    second = decoder.decode(array(encode(b)), "b").im
    np.testing.assert_array_equal(first, stock(encode(a)))
    np.testing.assert_array_equal(second, stock(encode(b)))
    decoder.close()
    np.testing.assert_array_equal(decoder.decode(array(encode(a)), "a").im, first)


def test_input_is_only_read(decoder):
    data = array(with_segments(encode(photo(30, 40)), exif(7)))
    data.setflags(write=False)
    before = data.copy()
    decoder.decode(data, "x")
    np.testing.assert_array_equal(data, before)


@pytest.mark.parametrize("name", list(APIS))
def test_read_image(tmp_path, name):
    file = tmp_path / "图像 é 50%#1.jpg"
    data = encode(photo(30, 40))
    file.write_bytes(data)
    np.testing.assert_array_equal(read_image(str(file), api(name)), stock(data))
    assert file.read_bytes() == data
    for bad in (tmp_path, tmp_path / "no.jpg"):
        with pytest.raises(ImageDecodeError, match="cannot be read"):
            read_image(str(bad), api(name))


def test_threads_with_their_own_decoders():
    files = [with_segments(encode(photo(101, 150, i)), exif(1 + i % 8)) for i in range(8)]
    files += [encode(photo(60, 70, i), ".png") for i in range(2)]
    wanted = [stock(f) for f in files]
    wrong: list[int] = []

    def work(first: int) -> None:
        decoder = Decoder(jpeg.load())
        for i in range(60):
            k = (first + i) % len(files)
            if not np.array_equal(decoder.decode(array(files[k]), "x").im, wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
