"""Small pictures and hand-made file parts for the tests of decode/ (no Pillow needed)."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data.kernels import jpeg

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
APIS = {"turbo": jpeg.load, "opencv": lambda: None}
XMP = b"http://ns.adobe.com/xap/1.0/\0<x/>"


def api(name: str) -> jpeg.JpegApi | None:
    """Return the JPEG functions for one entry of APIS, or skip."""
    loaded = APIS[name]()
    if name == "turbo" and loaded is None:
        pytest.skip("no libjpeg-turbo 3 on this machine")
    return loaded


def photo(h: int, w: int, seed: int = 0) -> np.ndarray:
    """Return an (h, w, 3) uint8 picture with smooth shapes and some noise; no two corners alike."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(2, h // 12), max(2, w // 12), 3), np.uint8)
    noise = rng.integers(-12, 13, (h, w, 3))
    return np.clip(cv2.resize(small, (w, h), interpolation=cv2.INTER_CUBIC).astype(int) + noise, 0, 255).astype(
        np.uint8
    )


def encode(im: np.ndarray, ext: str = ".jpg", *flags: int) -> bytes:
    """Return im as a file; skip where this OpenCV cannot write it."""
    done, data = cv2.imencode(ext, im, list(flags))
    if not done:
        pytest.skip(f"this OpenCV does not write {ext} of shape {im.shape}")
    return data.tobytes()


def array(data: bytes) -> np.ndarray:
    """Return bytes as a writable (n,) uint8 array."""
    return np.frombuffer(bytearray(data), np.uint8)


def ifd(orientation: int, order: str = "<", *, kind: int = 3) -> bytes:
    """Return a TIFF block whose only tag is an orientation."""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, 1)
    value = struct.pack(order + ("HH" if kind == 3 else "I"), *((orientation, 0) if kind == 3 else (orientation,)))
    return head + struct.pack(order + "HHI", 0x112, kind, 1) + value + b"\0\0\0\0"


def exif(orientation: int, order: str = "<", *, kind: int = 3) -> bytes:
    """Return the content of an EXIF APP1 segment."""
    return b"Exif\0\0" + ifd(orientation, order, kind=kind)


def with_segments(jpeg_file: bytes, *contents: bytes, marker: int = 0xE1) -> bytes:
    """Return a JPEG with segments put right behind its SOI."""
    segments = b"".join(b"\xff" + bytes([marker]) + struct.pack(">H", len(c) + 2) + c for c in contents)
    return jpeg_file[:2] + segments + jpeg_file[2:]


def with_chunk(png_file: bytes, kind: bytes, content: bytes) -> bytes:
    """Return a PNG with one more chunk behind IHDR, its checksum right."""
    chunk = struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return png_file[:33] + chunk + png_file[33:]


def real_files(*suffixes: str) -> list[Path]:
    """Return the pictures of ../shared/data with these suffixes, or skip."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there")
    return [f for f in sorted(SHARED.rglob("*")) if f.suffix.lower() in suffixes]
