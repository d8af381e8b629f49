"""Import hook: data modules are handed to `patching` right after they ran, before anybody can copy names from them.

Imported at the start of every process of a `fastyolo run`, so it imports next to nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["install", "installed", "uninstall"]

_FULL_NAMES = ("ultralytics.data.build",)
_PARTS = ("data", "loader")  # of the last part of the name: dataloaders, datasets, data_loader, ...
# What a module must have for `patching` to be imported at all.
_MARKS = ("create_dataloader", "build_yolo_dataset")


class _Finder:
    """Stands first in sys.meta_path, asks the others, and adds a step to how the module is run."""

    def __init__(self, *, for_all: bool) -> None:
        self.for_all = for_all  # the program itself did not ask for the hook

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        last = fullname.rpartition(".")[2].lower()
        if fullname not in _FULL_NAMES and not any(part in last for part in _PARTS):
            return None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, _Finder) else getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                # A loader without attributes of its own loads no source file of a training code base.
                if str(spec.origin).endswith(".py") and hasattr(spec.loader, "__dict__"):
                    _add_step(spec.loader)
                return spec
        return None


def _add_step(loader: object) -> None:
    """Let `patching` look at the module after this loader ran it."""
    run: Callable[[ModuleType], None] = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)  # the loader is as it was, also for pickle and for a reload
        run(module)
        if _finder in sys.meta_path and any(mark in vars(module) for mark in _MARKS):
            from fastyolo_data.integrations.patching import replace_in

            replace_in(module)

    # Python takes the import system's own frames out of tracebacks; as one of them, this one never stands between a
    # program's lines when its module fails.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")
    loader.exec_module = exec_module  # type: ignore[attr-defined]


_finder: _Finder | None = None


def install(*, from_environment: bool = False) -> None:
    """Put the hook in place, once.

    Args:
        from_environment: the program knows nothing of it.
    """
    global _finder
    if _finder is None:
        _finder = _Finder(for_all=from_environment)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Take the hook away. Modules that are being imported at this moment are left alone."""
    global _finder
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    _finder = None


def installed() -> str | None:
    """Who put the hook in place: "program", "environment", or None: nobody."""
    if _finder is None:
        return None
    return "environment" if _finder.for_all else "program"
