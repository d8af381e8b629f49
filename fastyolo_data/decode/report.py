"""Texts of ImageDecodeError: what a file that cannot be decoded is, and what to do about it."""

from __future__ import annotations

from fastyolo_data.errors import ImageDecodeError

__all__ = ["cut_short", "undecodable", "unreadable"]

_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_SIGNATURES = (
    (b"\xff\xd8", "a damaged JPEG, or one of a kind that this OpenCV cannot decode (12 bit, lossless)"),
    (b"\x89PNG\r\n\x1a\n", "a damaged PNG"),
    (b"GIF8", "a GIF that this OpenCV cannot decode"),
    (b"II*\0", "a TIFF that is damaged or that this OpenCV cannot decode"),
    (b"MM\0*", "a TIFF that is damaged or that this OpenCV cannot decode"),
    (b"BM", "a damaged BMP"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000 that is damaged or that this OpenCV cannot decode"),
    (b"\xff\x0a", "a JPEG XL picture, which OpenCV cannot decode"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL picture, which OpenCV cannot decode"),
    (b"8BPS", "a Photoshop document, which OpenCV cannot decode"),
    (b"\x76\x2f\x31\x01", "an OpenEXR picture that this OpenCV cannot decode"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"version https://git-lfs", "a Git LFS pointer instead of the picture (run `git lfs pull`)"),
)
_REPLACE = "replace or remove the file"
_CONVERT = "convert it to JPEG or PNG, or remove the file"


def _identify(head: bytes) -> tuple[str, str]:
    """Return what a file is by its first bytes, and the advice that fits."""
    if head[4:8] == b"ftyp":
        if head[8:12] in _HEIF_BRANDS:
            return "a HEIC/HEIF picture, which OpenCV cannot decode", (
                "convert it to JPEG or PNG, for instance with the package pillow-heif, or remove the file"
            )
        if head[8:12] in (b"avif", b"avis"):
            return "an AVIF that is damaged or that this OpenCV cannot decode", _CONVERT
        return f"a file of type {head[8:12]!r}, no known picture format", _CONVERT
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "a damaged WebP", _REPLACE
    for signature, text in _SIGNATURES:
        if head.startswith(signature):
            return text, _CONVERT if "cannot" in text else _REPLACE
    if head.lstrip()[:1] == b"<":
        return "markup text (HTML, XML or SVG), not a picture", _REPLACE
    return f"no known picture format, it starts with {head[:8]!r}", _REPLACE


def undecodable(path: str, head: bytes, size: int, detail: str = "") -> ImageDecodeError:
    """Return the error for a file that OpenCV refuses.

    Args:
        path: file name for the message.
        head: the first 32 bytes or more.
        size: bytes of the whole file.
        detail: what a closer look found, for instance a checksum.
    """
    if size == 0:
        return ImageDecodeError(f"{path}: the file is empty (0 bytes), expected a picture; {_REPLACE}")
    found, advice = _identify(head)
    return ImageDecodeError(f"{path}: cannot be decoded ({size} bytes): {found}{detail and ': ' + detail}; {advice}")


def cut_short(path: str, size: int) -> ImageDecodeError:
    """Return the error for a JPEG whose pixel data ends before the picture does."""
    return ImageDecodeError(f"{path}: truncated JPEG: pixel data is missing at the end of its {size} bytes; {_REPLACE}")


def unreadable(path: str, error: OSError) -> ImageDecodeError:
    """Return the error for a file that the system does not let us read."""
    return ImageDecodeError(f"{path}: cannot be read: {error.strerror or error}; check the path and its permissions")
