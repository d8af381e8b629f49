"""The size of an image file, from its first bytes where they can be trusted."""

from __future__ import annotations

import os
import struct
import zlib

import numpy as np

from fastyolo_data.decode.image import Decoder, JpegApi
from fastyolo_data.decode.jpegfile import EOI, SOI, exif_orientation, read_jpeg_header
from fastyolo_data.decode.report import undecodable, unreadable

__all__ = ["probe_image", "probe_with_remark"]

_HEAD = 4096
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a named pipe must not block
_SCAN = b"\xff\xda"  # marker before the last scan of a JPEG
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # by colour type
_PNG_MAX_SIDE = 1 << 15
# Chunks that may turn the picture (EXIF, in old files inside text) or replace its first frame (animation)
_PNG_SPECIAL = frozenset({b"eXIf", b"acTL", b"fcTL"})
_PNG_TEXT = frozenset({b"tEXt", b"zTXt", b"iTXt"})
_PNG_TEXT_EXIF = b"Raw profile type"


def probe_image(path: str, jpeg: JpegApi | None = None) -> tuple[int, int]:
    """Return the (h, w) of probe_with_remark."""
    return probe_with_remark(path, jpeg)[:2]


def probe_with_remark(path: str, jpeg: JpegApi | None = None) -> tuple[int, int, str]:
    """Return the (h, w) that decoding the file will give, EXIF orientation applied; never writes anything.

    Ordinary JPEG and PNG files are judged by their headers (and PNG checksums). A JPEG that does not end with its end
    marker, any special kind and every other format are decoded once.

    Args:
        path: the file.
        jpeg: `kernels.jpeg.load()` for faster and quieter decoding of the doubtful JPEG files; the same results
            without.

    Returns:
        h, w, and what the user should know about a file that is odd but usable; mostly "".

    Raises:
        ImageDecodeError: missing, empty, damaged, truncated, or in a format that OpenCV cannot decode.
    """
    try:
        fd = os.open(path, _OPEN_FLAGS)
        try:
            head = os.read(fd, _HEAD)
            hw = _probe_jpeg(fd, head) if head.startswith(SOI) else None
        finally:
            os.close(fd)
        if hw is not None:
            return (*hw, "")
        if not head:
            raise undecodable(path, head, 0)
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise unreadable(path, error) from error
    if head.startswith(_PNG):
        hw = _probe_png(memoryview(data), path)
        if hw is not None:
            return (*hw, "")
    h, w = Decoder(jpeg).decode(data, path).hw0
    no_end = head.startswith(SOI) and EOI not in data[data.tobytes().rfind(_SCAN) :].tobytes()
    return h, w, "the JPEG has no end marker; all its pixels are there, so it is used as it is" if no_end else ""


def _probe_jpeg(fd: int, head: bytes) -> tuple[int, int] | None:
    """Return the upright (h, w) of an ordinary JPEG, None when it has to be decoded to know."""
    header = read_jpeg_header(head)
    step = 1 << 16
    while header is None and len(head) >= _HEAD:  # big EXIF or ICC blocks
        more = os.read(fd, step)
        if not more:
            return None
        head += more
        step *= 2
        header = read_jpeg_header(head)
    if header is None or not header.plain:
        return None
    os.lseek(fd, -2, os.SEEK_END)
    if os.read(fd, 2) != EOI:
        return None
    turn = exif_orientation(header.app1) if header.app1 else 1
    if turn == 0:
        return None
    return (header.w, header.h) if turn >= 5 else (header.h, header.w)


def _probe_png(data: memoryview, path: str) -> tuple[int, int] | None:
    """Check structure and checksums of a PNG; return (h, w), or None when it has to be decoded to know.

    Raises:
        ImageDecodeError: cut off, or a checksum is wrong.
    """
    size = len(data)
    pos, seen = len(_PNG), set()
    while b"IEND" not in seen:
        if pos + 12 > size:
            raise undecodable(path, _PNG, size, "it ends before its IEND chunk")
        length, kind = struct.unpack_from(">I4s", data, pos)
        end = pos + 8 + length
        if end + 4 > size:
            raise undecodable(path, _PNG, size, f"it ends inside its {kind!r} chunk")
        if zlib.crc32(data[pos + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise undecodable(path, _PNG, size, f"wrong checksum in its {kind!r} chunk")
        text_exif = kind in _PNG_TEXT and data[pos + 8 : pos + 24] == _PNG_TEXT_EXIF
        seen.add(b"eXIf" if text_exif else kind)
        pos = end + 4
    if data[8:16] != b"\0\0\0\rIHDR":
        return None
    w, h, depth, colour, *method = struct.unpack_from(">IIBBBBB", data, 16)
    ordinary = (
        depth in _PNG_DEPTHS.get(colour, ())
        and method in ([0, 0, 0], [0, 0, 1])
        and 0 < h <= _PNG_MAX_SIDE
        and 0 < w <= _PNG_MAX_SIDE
        and b"IDAT" in seen
        and (colour != 3 or b"PLTE" in seen)
        and not seen & _PNG_SPECIAL
    )
    return (h, w) if ordinary else None
