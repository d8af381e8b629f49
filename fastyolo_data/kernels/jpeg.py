"""JPEG decoding by libjpeg-turbo 3, called from nogil kernels through its C API (tj3*).

`load()` finds the shared library once, on first use, and returns the callables, or None where there is none (then
OpenCV decodes). The library is opened privately (not RTLD_GLOBAL) and its functions are made known to LLVM under names
of our own, so nothing else in the process can pick them up by accident, and numba's disk cache stays usable: cached
machine code holds only those names. A kernel of this file must never run before load() has succeeded: LLVM ends the
process when it cannot resolve a name. Hence nothing but `load` is public.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
from numba import types

from fastyolo_data.kernels._jit import inline, kernel

__all__ = ["JpegApi", "load", "try_out"]

_log = logging.getLogger(__name__)

_PREFIX = "fastyolo_"
_NAMES = (
    "tj3Init",
    "tj3Destroy",
    "tj3DecompressHeader",
    "tj3Get",
    "tj3GetErrorCode",
    "tj3SetScalingFactor",
    "tj3Decompress8",
)


def _external(name: str, result: types.Type, *args: types.Type) -> types.ExternalFunction:
    return types.ExternalFunction(_PREFIX + name, result(*args))


# Pointers travel as intp: the calling convention is the same, and Python ints go in and out without boxing helpers.
_tj_init = _external("tj3Init", types.intp, types.intc)
_tj_destroy = _external("tj3Destroy", types.void, types.intp)
_tj_header = _external("tj3DecompressHeader", types.intc, types.intp, types.intp, types.uintp)
_tj_get = _external("tj3Get", types.intc, types.intp, types.intc)
_tj_error_code = _external("tj3GetErrorCode", types.intc, types.intp)
# struct {int num, denom} by value: eight bytes in one integer register on x86-64 (System V and Windows) and AArch64.
_tj_set_scale = _external("tj3SetScalingFactor", types.intc, types.intp, types.int64)
_tj_decompress = _external(
    "tj3Decompress8", types.intc, types.intp, types.intp, types.uintp, types.intp, types.intc, types.intc
)

# Values of turbojpeg.h 3.x
_INIT_DECOMPRESS = 1
_WIDTH, _HEIGHT, _PRECISION, _COLORSPACE, _ARITHMETIC, _LOSSLESS = 5, 6, 7, 8, 14, 15
_CS_GRAY = 2  # 0 RGB, 1 YCbCr, 2 grey; above that CMYK and YCCK
_PF_BGR = 1
_ERR_WARNING = 0

OK, WARNED, SMALL, UNSUITED = 0, 1, 2, 3
_MAX_PIXELS = 1 << 30  # the limit of OpenCV


@inline
def _decode_with(handle, data, out, divisor):
    """Decode with one fresh handle; see JpegApi.decode."""
    src, size = data.ctypes.data, data.size
    header = _tj_header(handle, src, size)
    if header != 0 and _tj_error_code(handle) != _ERR_WARNING:
        return UNSUITED, 0, 0
    h0, w0, cs = _tj_get(handle, _HEIGHT), _tj_get(handle, _WIDTH), _tj_get(handle, _COLORSPACE)
    odd = _tj_get(handle, _PRECISION) != 8 or _tj_get(handle, _LOSSLESS) != 0 or _tj_get(handle, _ARITHMETIC) != 0
    if odd or cs < 0 or cs > _CS_GRAY or h0 <= 0 or w0 <= 0 or h0 * w0 > _MAX_PIXELS:
        return UNSUITED, 0, 0
    h, w = (h0 + divisor - 1) // divisor, (w0 + divisor - 1) // divisor
    if out.size < h * w * 3:
        return SMALL, h, w
    _tj_set_scale(handle, 1 | (divisor << 32))
    pixels = _tj_decompress(handle, src, size, out.ctypes.data, w * 3, _PF_BGR)
    if header == 0 and pixels == 0:
        return OK, h, w
    if pixels == 0 or _tj_error_code(handle) == _ERR_WARNING:
        return WARNED, h, w
    return UNSUITED, h, w


@kernel
def _decode(data, out, divisor):
    """Decode a JPEG into a caller's buffer; see JpegApi.decode.

    One handle per picture: it costs half a microsecond, and a used handle remembers the Huffman and quantisation tables
    of the picture before, which a file without its own (Motion-JPEG, or damaged) would then be decoded with.
    """
    handle = _tj_init(_INIT_DECOMPRESS)
    if handle == 0:
        return UNSUITED, 0, 0
    result = _decode_with(handle, data, out, divisor)
    _tj_destroy(handle)
    return result


class JpegApi:
    """The compiled JPEG functions. Get it from `load()`; it has no state, so one object serves all threads.

    Attributes:
        library: path or name of the shared library in use.
        OK, WARNED, SMALL, UNSUITED: statuses of `decode`.
    """

    OK, WARNED, SMALL, UNSUITED = OK, WARNED, SMALL, UNSUITED

    def __init__(self, library: str) -> None:
        self.library = library

    @staticmethod
    def decode(data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], divisor: int) -> tuple[int, int, int]:
        """Decode one JPEG file without holding the GIL.

        Args:
            data: (n,) uint8 C-contiguous, the file; only read.
            out: (capacity,) uint8 C-contiguous; its first h * w * 3 bytes become the (h, w, 3) BGR picture, bit-equal
                to OpenCV's, EXIF orientation not applied.
            divisor: 1, 2, 4 or 8; the picture is decoded at 1/divisor of its size, sides rounded up.

        Returns:
            (status, h, w). OK. WARNED: decoded, but the data is damaged or has no end marker. SMALL: out must hold
            h * w * 3 bytes, nothing was written. UNSUITED: ask OpenCV (CMYK, 12 bit, lossless, arithmetic, more than
            2**30 pixels, not a JPEG, or damaged beyond use); out may have been written to.
        """
        return _decode(data, out, divisor)


def try_out() -> None:
    """Run the decoder once, so that it is compiled or loaded from numba's cache; does nothing without a library."""
    api = load()
    if api is not None:
        api.decode(np.zeros(4, np.uint8), np.zeros(4, np.uint8), 1)


def _wheel_libraries() -> Iterator[str]:
    """Yield the library inside the `turbojpeg` distribution.

    By its file list, because PyTurboJPEG installs a module of the same name: importing would get either.
    """
    try:
        files = importlib.metadata.distribution("turbojpeg").files or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        name = file.name.lower()
        if "turbojpeg" in name and (".so" in name or name.endswith((".dll", ".dylib"))) and ".cpython-" not in name:
            yield str(file.locate())


def _system_libraries() -> Iterator[str]:
    """Yield where conda, Homebrew and the system keep libturbojpeg."""
    prefix = Path(sys.prefix)
    names = ("lib/libturbojpeg.so.0", "lib/libturbojpeg.dylib", "Library/bin/turbojpeg.dll")
    homes = (Path("/opt/homebrew/opt/jpeg-turbo"), Path("/usr/local/opt/jpeg-turbo"))
    yield from (str(prefix / name) for name in names)
    yield from (str(home / "lib/libturbojpeg.dylib") for home in homes)
    found = ctypes.util.find_library("turbojpeg")
    if found:
        yield found


def _try_library(path: str) -> bool:
    """Open one library and register its functions with LLVM; False when it is missing or older than version 3."""
    if os.path.isabs(path) and not os.path.exists(path):
        return False
    try:
        dll = ctypes.CDLL(path)
        addresses = {name: ctypes.cast(getattr(dll, name), ctypes.c_void_p).value for name in _NAMES}
    except (OSError, AttributeError) as error:
        _log.debug("not usable as libjpeg-turbo 3: %s (%s)", path, error)
        return False
    for name, address in addresses.items():
        llvmlite.binding.add_symbol(_PREFIX + name, address)
    return True  # ctypes never unloads a library, so the addresses stay valid


_lock = threading.Lock()
_loaded: list[JpegApi | None] = []


def load() -> JpegApi | None:
    """Return the JPEG functions, or None when no libjpeg-turbo 3 is installed; cheap after the first call.

    The first call opens the library; it compiles nothing (the first decode does, once per machine). None also with
    NUMBA_DISABLE_JIT=1, since plain Python cannot call the kernels, and with FASTYOLO_JPEG=opencv. Thread-safe.
    """
    with _lock:
        if not _loaded:
            _loaded.append(_find())
        return _loaded[0]


def _find() -> JpegApi | None:
    if numba.config.DISABLE_JIT or os.environ.get("FASTYOLO_JPEG", "").lower() == "opencv":
        return None
    for libraries in (_wheel_libraries, _system_libraries):
        for path in libraries():
            if _try_library(path):
                return JpegApi(path)
    _log.info("libjpeg-turbo 3 not found (pip install turbojpeg); JPEG files are decoded by OpenCV")
    return None
