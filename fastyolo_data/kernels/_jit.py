"""The only place where numba decorators come from."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

__all__ = ["inline", "kernel"]

F = TypeVar("F", bound=Callable)
LOGGER = logging.getLogger("fastyolo_data")
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(fn: F | None = None, *, fastmath: frozenset[str] = frozenset()) -> Any:
    """Compile an entry point: releases the GIL, is cached on disk, and has no threads of its own.

    Worker threads own the parallelism, so `parallel=True` is never used (it would also break after a fork).
    Division follows C (error_model="numpy"): a zero divisor gives inf or nan, not an exception per element.

    Args:
        fastmath: LLVM fast-math flags; each use needs a test.
    """
    if fn is None:
        return lambda decorated: kernel(decorated, fastmath=fastmath)
    options = {**_OPTIONS, "fastmath": set(fastmath) or False}
    try:
        return _follow_all_kernels(numba.njit(cache=True, **options)(fn))
    except RuntimeError as error:  # numba found no folder that it may write to
        LOGGER.warning(
            "compiled kernels cannot be kept (%s), so every start compiles anew; set NUMBA_CACHE_DIR to a folder that "
            "can be written to",
            error,
        )
        return numba.njit(**options)(fn)


def inline(fn: F) -> F:
    """Compile a helper that kernels call; LLVM inlines it."""
    return kernel(fn)


def _follow_all_kernels(dispatcher: F) -> F:
    """Make numba forget compiled code when any file of this room changes.

    On its own it looks at the file of the kernel only, and would go on using code with an old helper of another file
    inlined. The attributes are numba's own and may change; without them its rule is what remains.
    """
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _sources()
    return dispatcher


@functools.cache
def _sources() -> str:
    """Digest of the room's source files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
