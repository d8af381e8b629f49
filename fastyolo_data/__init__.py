"""fastyolo_data: the data loader that keeps a GPU busy when people train YOLO.

Names are imported when they are first used: `import fastyolo_data` alone costs nothing, torch and numba load with the
first of them.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers know this name; importing `typing` would cost every process of a `fastyolo run`
if TYPE_CHECKING:
    from typing import Any

    from fastyolo_data.dropin import LoadImagesAndLabels
    from fastyolo_data.errors import ConfigError, FastYoloError, ImageDecodeError, LabelError, StoreError
    from fastyolo_data.hyp import Hyp
    from fastyolo_data.integrations.patching import patch, unpatch
    from fastyolo_data.loader import FastLoader, build_dataset, build_loader

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "FastLoader",
    "FastYoloError",
    "Hyp",
    "ImageDecodeError",
    "LabelError",
    "LoadImagesAndLabels",
    "StoreError",
    "__version__",
    "build_dataset",
    "build_loader",
    "patch",
    "unpatch",
]

_HOMES = {
    "dropin": ("LoadImagesAndLabels",),
    "errors": ("ConfigError", "FastYoloError", "ImageDecodeError", "LabelError", "StoreError"),
    "hyp": ("Hyp",),
    "integrations.patching": ("patch", "unpatch"),
    "loader": ("FastLoader", "build_dataset", "build_loader"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
