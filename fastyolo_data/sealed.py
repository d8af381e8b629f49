"""Files of a JSON header and flat arrays under one checksum: written atomically, checked when opened, no pickle.

Layout: magic, version and sizes, CRC-32 of everything behind them, the header, then the arrays, each at a multiple of
64 bytes. The label cache and the index of stored tiles are such files.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["read_sealed", "write_sealed"]

_HEAD = struct.Struct("<16sIIQQ")  # magic, version, crc of the rest, bytes of the rest, bytes of the JSON header
_ALIGN = 64


def write_sealed(
    path: Path, magic: bytes, version: int, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray]
) -> None:
    """Write a file under a temporary name, flush it to the disk, and rename it.

    Args:
        magic: 16 bytes that name the kind of file.
        header: whatever JSON can hold, without the key "arrays".
        arrays: C-contiguous arrays.

    Raises:
        OSError: the disk is full or may not be written to; no temporary file is left.
    """
    layout, at = {}, 0
    body: list[bytes | memoryview] = []
    for key, a in arrays.items():
        layout[key] = [list(a.shape), at]
        pad = -a.nbytes % _ALIGN
        body += [memoryview(a.reshape(-1).view(np.uint8)), b"\0" * pad]
        at += a.nbytes + pad
    text = json.dumps({"arrays": layout, **header}).encode("ascii")
    text += b" " * (-(_HEAD.size + len(text)) % _ALIGN)
    crc = zlib.crc32(text)
    for part in body:
        crc = zlib.crc32(part, crc)
    _write([_HEAD.pack(magic, version, crc, len(text) + at, len(text)), text, *body], path)


def _write(parts: list[bytes | memoryview], path: Path) -> None:
    fd, temp = tempfile.mkstemp(prefix=path.name + ".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as f:
            for part in parts:
                f.write(part)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(temp, 0o644)  # mkstemp gives 0600; a shared data set may be trained by several users
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise


def read_sealed(
    data: bytes, magic: bytes, version: int, dtypes: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, npt.NDArray]]:
    """Return the header and the arrays of a file's content; the arrays are read-only views of it.

    Args:
        dtypes: key -> dtype of every array that must be there.

    Raises:
        ValueError (or KeyError, TypeError): the content is no complete file of this kind and version.
    """
    if len(data) < _HEAD.size or data[: len(magic)] != magic:
        raise ValueError(f"it does not begin with {magic!r}")
    _, found, crc, size, header_size = _HEAD.unpack_from(data)
    if found != version:
        raise ValueError(f"it has version {found}, expected {version}")
    if len(data) != _HEAD.size + size:
        raise ValueError(f"it has {len(data)} bytes, expected {_HEAD.size + size}")
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != crc:
        raise ValueError("its checksum is wrong")
    start = _HEAD.size + header_size
    header = json.loads(data[_HEAD.size : start])
    layout, arrays = header.pop("arrays"), {}
    for key, dtype in dtypes.items():
        shape, at = layout[key]
        arrays[key] = np.frombuffer(data, dtype, int(np.prod(shape)), start + at).reshape(shape)
    return header, arrays
