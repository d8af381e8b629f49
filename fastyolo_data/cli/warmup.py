"""`fastyolo warmup`: compile the kernels now, so that no training start waits for it."""

from __future__ import annotations

import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Compile the kernels and keep them in numba's cache (NUMBA_CACHE_DIR, or beside the package)."


def run(args: argparse.Namespace) -> int:
    """Compile everything; a second run only loads."""
    from fastyolo_data.assemble import compile_kernels
    from fastyolo_data.datatypes import TASKS
    from fastyolo_data.kernels import jpeg

    seconds = compile_kernels(jpeg.try_out, TASKS, pasting=True)
    api = jpeg.load()
    decoder = f"libjpeg-turbo ({api.library})" if api is not None else "OpenCV (no libjpeg-turbo 3 was found)"
    print(f"kernels are ready after {seconds:.1f} s; JPEG files are decoded by {decoder}")
    return 0
