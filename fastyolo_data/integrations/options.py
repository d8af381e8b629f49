"""Our own options in the drop-ins: FASTYOLO_* variables, then attributes of a trainer class, then the stock arguments.

The training programs reject arguments they do not know, so ours take these ways round them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastyolo_data.errors import ConfigError

__all__ = ["FastOptions"]


@dataclass(frozen=True)
class FastOptions:
    """Options of build_loader that a training program has no argument for, or a narrower one. None: not given.

    Attributes:
        cache: as in build_loader; stands above the program's own.
        cache_dir: folder for caches, the label cache included.
        workers: threads; stands above the program's own, which may be 0 on a machine without GPU.
        numerics, mosaic_pool, prefetch: as in build_loader.
        image_weights: (n,) weights of the training images, "balanced", or a callable that is given the data set and
            returns either. As a variable, only "balanced".
    """

    cache: str | bool | None = None
    cache_dir: str | Path | None = None
    workers: int | None = None
    numerics: str | None = None
    mosaic_pool: str | None = None
    prefetch: int | None = None
    image_weights: Any | Callable[[Any], Any] = None

    @classmethod
    def gather(cls, holder: object = None) -> FastOptions:
        """Read the FASTYOLO_* variables, and attributes of the same names of `holder` for those not set.

        Raises:
            ConfigError: a variable that must hold a number does not.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = os.environ.get(f"FASTYOLO_{field.name.upper()}", "").strip()
            values[field.name] = _parse(field.name, text) if text else getattr(holder, field.name, None)
        return cls(**values)


def _parse(name: str, text: str) -> str | int:
    if name not in ("workers", "prefetch"):
        return text
    try:
        return int(text)
    except ValueError as e:
        raise ConfigError(f"FASTYOLO_{name.upper()}={text!r}: expected a whole number") from e
