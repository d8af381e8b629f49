"""The only place where numba decorators come from."""

from __future__ import annotations

import logging
from collections.abc import Callable
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
        return numba.njit(cache=True, **options)(fn)
    except RuntimeError as error:  # numba found no folder that it may write to
        LOGGER.warning(
            "compiled kernels cannot be kept (%s), so every start compiles anew; set NUMBA_CACHE_DIR to a folder that "
            "can be written to",
            error,
        )
        return numba.njit(**options)(fn)


def inline(fn: F) -> F:
    """Compile a helper that a kernel of the same file calls; LLVM inlines it.

    numba's cache does not see edits in helpers of other files, so kernels that share helpers share a file.
    """
    return kernel(fn)
