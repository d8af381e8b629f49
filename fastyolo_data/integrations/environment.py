"""Environment variables that put the import hook into processes which this one starts.

Imported at the start of every such process, so it imports next to nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["ALL", "TARGETS", "add_hook", "remove_hook", "targets_of"]

TARGETS = "FASTYOLO_PATCH"  # kinds separated by commas, or "all"
ALL = "all"
_SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")  # holds a sitecustomize.py of ours


def targets_of(environ: MutableMapping[str, str]) -> set[str]:
    """Return the kinds that are to be replaced, or {"all"}, or nothing."""
    return {t for t in environ.get(TARGETS, "").replace(" ", "").split(",") if t}


def add_hook(environ: MutableMapping[str, str], target: str | None) -> None:
    """Make every Python that starts with this environment install the hook.

    Args:
        environ: os.environ or a copy; changed.
        target: a kind, in addition to those already there; None: all.
    """
    targets = targets_of(environ) | {target or ALL}
    environ[TARGETS] = ALL if ALL in targets else ",".join(sorted(targets))
    rest = _other_paths(environ)
    environ["PYTHONPATH"] = os.pathsep.join([_SITE, rest]) if rest else _SITE


def remove_hook(environ: MutableMapping[str, str]) -> None:
    """Undo add_hook, also one of the process that started this one."""
    environ.pop(TARGETS, None)
    if _SITE in environ.get("PYTHONPATH", "").split(os.pathsep):
        rest = _other_paths(environ)
        if rest:
            environ["PYTHONPATH"] = rest
        else:
            del environ["PYTHONPATH"]


def _other_paths(environ: MutableMapping[str, str]) -> str:
    return os.pathsep.join(p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p != _SITE)
