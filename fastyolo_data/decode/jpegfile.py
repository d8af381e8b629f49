"""What a JPEG file says about itself outside the pixel data."""

from __future__ import annotations

import functools
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image

__all__ = ["EOI", "ODD", "SOI", "JpegHeader", "exif_orientation", "lacks_scans", "read_jpeg_header", "turn_upright"]

SOI = b"\xff\xd8\xff"
"""First bytes that OpenCV asks of a JPEG: start of image and the beginning of the next marker."""

EOI = b"\xff\xd9"
"""End-of-image marker."""

_MAX_SIDE = 65500  # libjpeg's JPEG_MAX_DIMENSION
_MAX_PIXELS = 1 << 30  # OpenCV's CV_IO_MAX_IMAGE_PIXELS
_SOF = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_PLAIN_SOF = frozenset({0xC0, 0xC1, 0xC2})
_BARE = frozenset({0x00, 0x01, *range(0xD0, 0xD8)})  # stuffed zero, TEM, RSTn: no length field follows
_SEGMENTS = frozenset({0xC4, 0xCC, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})


class JpegHeader(NamedTuple):
    """The part of a JPEG before its first scan.

    Attributes:
        h, w: stored size, EXIF not applied; 0 when unknown.
        plain: 8-bit baseline, extended or progressive Huffman with one or three components, in legal order: every
            decoder agrees on it, and its tables are sound. Anything else is left to OpenCV.
        components: 1 grey, 3 colour, 4 CMYK.
        app1: the APP1 segments (EXIF, XMP) with their markers, in file order.
        scan: offset of the first SOS marker.
    """

    h: int
    w: int
    plain: bool
    components: int
    app1: tuple[bytes, ...]
    scan: int


ODD = JpegHeader(0, 0, False, 0, (), 0)


def read_jpeg_header(buf: bytes | memoryview) -> JpegHeader | None:
    """Walk the markers of a JPEG up to its first scan.

    Stray bytes between markers are skipped as libjpeg does.

    Args:
        buf: the beginning of the file, from SOI on.

    Returns:
        None when buf ends before the first scan; ODD when the order or a length is illegal.
    """
    pos, n, app1 = 2, len(buf), []
    h = w = components = 0
    plain, sound = False, True
    while True:
        while pos < n and buf[pos] != 0xFF:
            pos += 1
        while pos < n and buf[pos] == 0xFF:
            pos += 1
        if pos + 3 > n:
            return None
        marker = buf[pos]
        pos += 1
        if marker in _BARE:
            continue
        length = buf[pos] << 8 | buf[pos + 1]
        if marker == 0xDA:
            return JpegHeader(h, w, plain and sound, components, tuple(app1), pos - 2) if h else ODD
        if length < 2 or (marker not in _SEGMENTS and (marker not in _SOF or h)):
            return ODD
        if marker == 0xE1:
            if pos + length > n:
                return None
            app1.append(bytes(buf[pos - 2 : pos + length]))
        elif marker in _SOF:
            if pos + length > n:
                return None
            h, w, components, plain = _read_frame(bytes(buf[pos - 1 : pos + length]))  # illegal: h = 0, ODD at the scan
        elif marker == 0xC4:
            if pos + length > n:
                return None
            sound = sound and _huffman_is_sound(bytes(buf[pos + 2 : pos + length]))
        pos += length


@functools.lru_cache(256)
def _read_frame(segment: bytes) -> tuple[int, int, int, bool]:
    """Return (h, w, components, plain) of a frame header from its marker code on; zeros when it is illegal."""
    if len(segment) < 9 or len(segment) != 9 + 3 * segment[8]:
        return 0, 0, 0, False
    h, w, components = segment[4] << 8 | segment[5], segment[6] << 8 | segment[7], segment[8]
    if not (h and w and components):
        return 0, 0, 0, False
    legal = all(1 <= v >> 4 <= 4 and 1 <= v & 15 <= 4 for v in segment[10::3]) and max(segment[11::3]) < 4
    plain = segment[0] in _PLAIN_SOF and segment[3] == 8 and components in (1, 3)
    return h, w, components, plain and legal and max(h, w) <= _MAX_SIDE and h * w <= _MAX_PIXELS


@functools.lru_cache(256)
def _huffman_is_sound(content: bytes) -> bool:
    """Tell whether Huffman tables (the content of a DHT segment) are legal; most files carry the standard ones."""
    pos = 0
    while pos < len(content):
        head, counts = content[pos], content[pos + 1 : pos + 17]
        symbols = content[pos + 17 : pos + 17 + sum(counts)]
        room = 1
        for count in counts:  # codes of each length must fit beside the shorter ones
            room = 2 * room - count
            if room < 0:
                return False
        if head & 0xEF > 3 or len(counts) < 16 or len(symbols) < sum(counts) or len(symbols) > 256:
            return False
        if head < 16 and max(symbols, default=0) > 15:
            return False
        pos += 17 + len(symbols)
    return True


def lacks_scans(data: bytes, header: JpegHeader) -> bool:
    """Tell whether a JPEG without end marker was cut between two scans.

    Such a cut leaves no gap in the pixel data: a progressive picture only looks coarse, or loses a colour plane. So
    compare the scans with what a whole picture needs: every component, all 64 coefficients, down to the last bit.

    Args:
        data: the file.
        header: its header, of a Huffman-coded lossy JPEG.
    """
    if data.rfind(EOI, header.scan) >= 0:
        return False
    missing_bits: dict[int, list[int]] = {}
    pos = data.find(b"\xff\xda", header.scan)
    while pos >= 0:
        body = data[pos + 4 : pos + 4 + 12]
        count = body[0] if body else 0
        if 1 <= count <= 4 and len(body) >= 2 * count + 4 and data[pos + 2] << 8 | data[pos + 3] == 6 + 2 * count:
            first, last, bits = body[2 * count + 1 : 2 * count + 4]
            for component in body[1 : 2 * count + 1 : 2]:
                left = missing_bits.setdefault(component, [1] * 64)
                left[first : last + 1] = [bits & 15] * (min(last, 63) + 1 - first)
        pos = data.find(b"\xff\xda", pos + 2)
    return len(missing_bits) < header.components or any(map(any, missing_bits.values()))


@functools.cache
def _corner_jpeg() -> tuple[bytes, dict[tuple[int, ...], int]]:
    """Return a tiny JPEG with four different corners, and which order of corners means which orientation."""
    im = np.zeros((16, 32), np.uint8)
    im[:8, :16], im[:8, 16:], im[8:, :16], im[8:, 16:] = 30, 90, 150, 210
    orders = [
        (0, 1, 2, 3),
        (1, 0, 3, 2),
        (3, 2, 1, 0),
        (2, 3, 0, 1),
        (0, 2, 1, 3),
        (2, 0, 3, 1),
        (3, 1, 2, 0),
        (1, 3, 0, 2),
    ]
    return cv2.imencode(".jpg", im)[1].tobytes(), {order: i + 1 for i, order in enumerate(orders)}


def exif_orientation(app1: tuple[bytes, ...]) -> int:
    """Return the EXIF orientation 1 to 8 that OpenCV applies to a JPEG with these APP1 segments, 0 when unknown.

    Which of several blocks counts, and what happens to a damaged one, differs between OpenCV versions. So ask the
    installed one: it decodes a tiny picture that carries the same segments (10 µs, without the GIL).
    """
    if not any(b"\x01\x12" in segment or b"\x12\x01" in segment for segment in app1):
        return 1  # no orientation tag in either byte order
    jpeg, orders = _corner_jpeg()
    im = cv2.imdecode(np.frombuffer(b"".join((jpeg[:2], *app1, jpeg[2:])), np.uint8), cv2.IMREAD_COLOR)
    if im is None:
        return 0
    corners = im[[2, 2, -3, -3], [2, -3, 2, -3], 0]
    return orders.get(tuple(int(v) // 60 for v in corners), 0)


def turn_upright(im: U8Image, orientation: int, buffer: npt.NDArray[np.uint8]) -> U8Image:
    """Apply an EXIF orientation, as OpenCV does.

    Args:
        im: (h, w, 3) uint8, C-contiguous; overwritten for orientation 7.
        orientation: 2 to 8.
        buffer: (capacity,) uint8 with room for im.size; not im's memory.

    Returns:
        (h, w, 3) or (w, h, 3) uint8 view of buffer.
    """
    h, w = im.shape[:2]
    dst = buffer[: im.size].reshape((w, h, 3) if orientation >= 5 else (h, w, 3))
    if orientation in (2, 4):
        return cv2.flip(im, 1 if orientation == 2 else 0, dst=dst)
    if orientation in (5, 7):
        return cv2.transpose(im if orientation == 5 else cv2.flip(im, -1, dst=im), dst=dst)
    codes = {3: cv2.ROTATE_180, 6: cv2.ROTATE_90_CLOCKWISE, 8: cv2.ROTATE_90_COUNTERCLOCKWISE}
    return cv2.rotate(im, codes[orientation], dst=dst)
