"""The only place where numba decorators come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

__all__ = ["inline", "kernel"]

F = TypeVar("F", bound=Callable)


def kernel(fn: F) -> F:
    """Compile an entry point: releases the GIL, is cached on disk, and has no threads of its own.

    Worker threads own the parallelism, so `parallel=True` is never used (it would also break after a fork).
    Division follows C (error_model="numpy"): a zero divisor gives inf or nan, not an exception per element.
    """
    return numba.njit(nogil=True, cache=True, error_model="numpy")(fn)


def inline(fn: F) -> F:
    """Compile a helper that a kernel of the same file calls; LLVM inlines it.

    numba's cache does not see edits in helpers of other files, so kernels that share helpers share a file.
    """
    return numba.njit(nogil=True, cache=True, error_model="numpy", inline="never")(fn)
