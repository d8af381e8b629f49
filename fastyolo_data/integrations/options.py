"""Our own options in the drop-ins: FASTYOLO_* variables, then attributes of a trainer class, then the stock arguments.

The training programs reject arguments they do not know, so ours take these ways round them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastyolo_data.errors import ConfigError

__all__ = ["OPTION_NAMES", "SWITCHES", "FastOptions", "read_options", "variable"]


@dataclass(frozen=True)
class FastOptions:
    """What the user asked for beside the training program's own arguments; None where nothing was said.

    Attributes:
        cache: as in build_loader; stands above the program's own.
        cache_dir: folder for caches, the label cache included.
        workers: threads; stands above the program's own, which may be 0 on a machine without GPU.
        prefetch, numerics, mosaic_pool: as in build_loader.
        seed: of all random numbers; stands above the program's own.
        image_weights: (n,) weights of the training images, "balanced", or a callable that is given the data set and
            returns either. As a variable, only "balanced".
        trust: replace edited data code too.
        off: replace nothing.
    """

    cache: str | bool | None = None
    cache_dir: str | Path | None = None
    workers: int | None = None
    prefetch: int | None = None
    numerics: str | None = None
    mosaic_pool: str | None = None
    seed: int | None = None
    image_weights: Any | Callable[[Any], Any] = None
    trust: bool | None = None
    off: bool | None = None

    @classmethod
    def gather(cls, holder: object = None) -> FastOptions:
        """Read this process's FASTYOLO_* variables, and attributes of the same names of `holder` for those not set.

        Raises:
            ConfigError: as read_options.
        """
        said = read_options(os.environ)
        return cls(
            **{
                name: getattr(holder, name, None) if getattr(said, name) is None else getattr(said, name)
                for name in OPTION_NAMES
            }
        )


OPTION_NAMES = tuple(f.name for f in fields(FastOptions))
SWITCHES = ("trust", "off")  # options that need no value


def variable(name: str) -> str:
    """Return the environment variable of an option."""
    return f"FASTYOLO_{name.upper()}"


def read_options(environ: Mapping[str, str]) -> FastOptions:
    """Read the options from an environment, such as os.environ. Empty variables count as unset.

    Raises:
        ConfigError: names the variable, what was found and what is allowed.
    """
    found = {name: environ.get(variable(name), "").strip() for name in OPTION_NAMES}
    return FastOptions(**{name: _READERS[name](variable(name), text) for name, text in found.items() if text})


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in allowed:
            raise ConfigError(f"{name}={text!r}: expected one of {', '.join(allowed)}")
        return text.lower()

    return read


def _at_least(least: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ConfigError(f"{name}={text!r}: expected a whole number, {least} or more")
        return int(text)

    return read


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ConfigError(f"{name}={text!r}: expected 1 or 0")
    return text.lower() in ("1", "true", "yes", "on")


_READERS: dict[str, Callable[[str, str], Any]] = {
    "cache": _one_of("none", "ram", "lmdb", "memmap", "disk", "auto"),
    "cache_dir": lambda _, text: text,
    "workers": _at_least(0),
    "prefetch": _at_least(1),
    "numerics": _one_of("fast", "exact"),
    "mosaic_pool": _one_of("recent", "uniform"),
    "seed": _at_least(0),
    "image_weights": _one_of("balanced"),
    "trust": _yes_or_no,
    "off": _yes_or_no,
}
