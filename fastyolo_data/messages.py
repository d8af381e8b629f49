"""How this library's messages reach the terminal."""

from __future__ import annotations

import logging

__all__ = ["show_messages"]


def show_messages(*, always: bool = False) -> None:
    """Let messages reach the terminal, unless the program has arranged its logging itself.

    Args:
        always: also if it has, or will: used where the program knows nothing of this library.
    """
    logger = logging.getLogger("fastyolo_data")
    if always:
        logger.disabled = False  # logging.config switches off all loggers that it doesn't know
        logger.propagate = False  # else the program's handlers would show everything twice
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
