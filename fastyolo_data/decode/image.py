"""Image bytes to pixels."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image
from fastyolo_data.decode.jpegfile import (
    EOI,
    ODD,
    SOI,
    JpegHeader,
    exif_orientation,
    lacks_scans,
    read_jpeg_header,
    turn_upright,
)
from fastyolo_data.decode.report import cut_short, undecodable, unreadable

__all__ = ["Decoded", "Decoder", "JpegApi", "read_image"]

U8Bytes = npt.NDArray[np.uint8]

_EOI = np.frombuffer(EOI, np.uint8)
# Any bytes but 0xFF. Several, because the few bits that a nearly complete file lacks may be the right ones by chance.
_FILLERS = tuple(
    np.array([(first + 37 * i * i + 91 * i) % 255 for i in range(64)], np.uint8) for first in (13, 230, 91)
)
_REDUCED = {1: 0, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}


class JpegApi(Protocol):
    """What `kernels.jpeg.load()` returns; this room does not import kernels."""

    OK: int
    WARNED: int
    SMALL: int
    UNSUITED: int

    def decode(self, data: U8Bytes, out: U8Bytes, divisor: int, /) -> tuple[int, int, int]: ...


class Decoded(NamedTuple):
    """A decoded picture.

    Attributes:
        im: (h, w, 3) uint8 BGR, C-contiguous, EXIF orientation applied.
        hw0: original (h, w), EXIF applied; differs from im's only after scaled decoding.
    """

    im: U8Image
    hw0: tuple[int, int]


class Decoder:
    """Decodes image files; owns its buffers. One per thread, never shared.

    Args:
        jpeg: `kernels.jpeg.load()`, or None to decode everything with OpenCV (same pixels).
    """

    def __init__(self, jpeg: JpegApi | None = None) -> None:
        self._jpeg = jpeg
        self._pixels = np.empty(0, np.uint8)
        self._turned = np.empty(0, np.uint8)

    def decode(self, data: U8Bytes, path: str, *, min_long_side: int | None = None) -> Decoded:
        """Decode one file as cv2.imdecode(data, IMREAD_COLOR) does: always 3 channels, alpha dropped, EXIF applied.

        Args:
            data: (n,) uint8 C-contiguous, the whole file; only read.
            path: file name, for messages only.
            min_long_side: None for full size. Else a plain JPEG at least twice as long as this is decoded at the
                smallest of 1/8, 1/4, 1/2 whose long side still has this many pixels and whose sides are whole numbers
                (so that im is exactly hw0 divided by that); much faster.

        Returns:
            The picture; `im` may be a view of this decoder's memory, valid until its next call.

        Raises:
            ImageDecodeError: empty, damaged, truncated (pixel data is missing), or not decodable here. A JPEG that only
                lacks its end marker, or has bytes after it, is decoded.
        """
        if data[:3].tobytes() == SOI:
            return self._decode_jpeg(data, path, min_long_side or 0)
        im = _opencv(data, cv2.IMREAD_COLOR)
        if im is None:
            raise undecodable(path, data[:64].tobytes(), data.size)
        return Decoded(im, im.shape[:2])

    def close(self) -> None:
        """Free the buffers; the decoder stays usable."""
        self._pixels = self._turned = np.empty(0, np.uint8)

    def _decode_jpeg(self, data: U8Bytes, path: str, min_long_side: int) -> Decoded:
        header = read_jpeg_header(memoryview(data)) or ODD
        turn = exif_orientation(header.app1) if header.plain else 0
        divisor = _divisor(header, min_long_side) if turn else 1
        complete = data[-2:].tobytes() == EOI
        im = None
        if turn and self._jpeg is not None:
            im, clean = self._turbo(self._jpeg, data, divisor)
            if im is not None and not (clean or complete):
                if self._is_cut(data, header):
                    raise cut_short(path, data.size)
                im, _ = self._turbo(self._jpeg, data, divisor)  # the test above used the buffer
        if im is not None:
            if turn > 1:
                self._turned = _grown(self._turned, im.size)
                im = turn_upright(im, turn, self._turned)
        else:
            im = self._opencv_jpeg(data, path, header, divisor, complete)
        hw0 = im.shape[:2] if divisor == 1 else (header.w, header.h) if turn >= 5 else (header.h, header.w)
        return Decoded(im, hw0)

    def _opencv_jpeg(self, data: U8Bytes, path: str, header: JpegHeader, divisor: int, complete: bool) -> U8Image:
        if not complete and self._is_cut(data, header):
            raise cut_short(path, data.size)
        padded = data if complete else np.concatenate((data, _EOI))  # OpenCV refuses a file without end marker
        im = _opencv(padded, _REDUCED[divisor] or cv2.IMREAD_COLOR)
        if im is None:
            raise undecodable(path, data[:64].tobytes(), data.size)
        return im

    def _turbo(self, jpeg: JpegApi, data: U8Bytes, divisor: int) -> tuple[U8Image | None, bool]:
        """Decode into self._pixels without EXIF; return the picture (None: ask OpenCV) and whether data was perfect."""
        status, h, w = jpeg.decode(data, self._pixels, divisor)
        if status == jpeg.SMALL:
            self._pixels = _grown(self._pixels, h * w * 3)
            status, h, w = jpeg.decode(data, self._pixels, divisor)
        if status == jpeg.UNSUITED:
            return None, False
        return self._pixels[: h * w * 3].reshape(h, w, 3), status == jpeg.OK

    def _is_cut(self, data: U8Bytes, header: JpegHeader) -> bool:
        """Tell whether a JPEG that does not end with EOI lacks pixel data.

        Decode it with other bytes behind it: a decoder that has all it needs never looks at them, one that has not
        takes them for pixels. Works with any decoder, and needs no wording of warnings.
        """
        if header.plain and lacks_scans(data.tobytes(), header):
            return True
        end = data.size
        while end and data[end - 1] == 0xFF:  # half a marker would hide what follows
            end -= 1
        without = None
        for filler in (_EOI, *_FILLERS):
            padded = np.concatenate((data[:end], filler, _EOI))
            im = self._turbo(self._jpeg, padded, 1)[0] if header.plain and self._jpeg is not None else None
            if im is None:
                im = _opencv(padded, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
            if im is None:
                return without is not None  # nothing decodes: not cut, but unusable
            if without is None:
                without = im.copy()
            elif not np.array_equal(im, without):
                return True
        return False


def read_image(path: str, jpeg: JpegApi | None = None) -> U8Image:
    """Read and decode one file.

    Args:
        path: any path that the system can open, non-ASCII names included.
        jpeg: `kernels.jpeg.load()`, or None for OpenCV.

    Returns:
        (h, w, 3) uint8 BGR, EXIF applied; the caller's own array.

    Raises:
        ImageDecodeError: the file cannot be read or decoded.
    """
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise unreadable(path, error) from error
    return Decoder(jpeg).decode(data, path).im


def _divisor(header: JpegHeader, min_long_side: int) -> int:
    """Return the largest of 8, 4, 2 that leaves min_long_side pixels and divides both sides, else 1.

    libjpeg rounds sides up: 555 pixels become 139 quarters, the last one beyond the edge. Taking those 139 for the
    whole picture would shift it by up to a pixel against its boxes, so such sizes are not scaled.
    """
    if min_long_side > 0:
        for divisor in (8, 4, 2):
            if max(header.h, header.w) >= divisor * min_long_side and header.h % divisor == header.w % divisor == 0:
                return divisor
    return 1


def _grown(buffer: U8Bytes, size: int) -> U8Bytes:
    """Return buffer, or a new one with room for size bytes (an eighth more, so that sizes settle quickly)."""
    return buffer if buffer.size >= size else np.empty(size + size // 8, np.uint8)


class _Quiet:
    """Silences OpenCV's log while at least one thread is inside; the user's level comes back afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._level = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._level = cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                cv2.utils.logging.setLogLevel(self._level)


_quiet = _Quiet()


def _opencv(data: U8Bytes, flags: int) -> U8Image | None:
    """Return cv2.imdecode's picture as (h, w, 3) uint8, or None whatever the way it fails."""
    try:
        with _quiet:
            return cv2.imdecode(data, flags) if data.size else None
    except cv2.error:
        return None
