"""Put this loader into training code that is already running or about to be imported, and take it out again."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from fastyolo_data.errors import ConfigError
from fastyolo_data.integrations import hook
from fastyolo_data.integrations.environment import ALL, add_hook, remove_hook, targets_of
from fastyolo_data.integrations.options import FastOptions
from fastyolo_data.integrations.recognise import KINDS, Recognised, Refused, recognise
from fastyolo_data.messages import show_messages

__all__ = ["INTEGRATIONS", "patch", "replace_in", "unpatch"]

INTEGRATIONS = {kind: f"fastyolo_data.integrations.{kind}" for kind in KINDS}

_LOG = logging.getLogger("fastyolo_data")
_lock = threading.RLock()  # never held during an import
_replaced: list[tuple[str, Any, Any]] = []  # full name, stock object, ours
_kept: set[str] = set()  # names of modules that were reported as left alone


def patch(target: str | None = None) -> tuple[str, ...]:
    """Make training code use this loader: what is imported now, what will be, and in processes started from here.

    Args:
        target: "ultralytics", "yolov5", "yolov7" or "yolov9"; None: whichever is found.

    Returns:
        Full names of everything that is replaced now, such as "utils.dataloaders.create_dataloader". Code that is
        imported later is reported in the log, and so is code that keeps its own loader, with the reason.

    Raises:
        ConfigError: another target, or a FASTYOLO_* variable that cannot be used.
    """
    if target is not None and target not in KINDS:
        raise ConfigError(f"patch({target!r}): expected one of {', '.join(map(repr, KINDS))}, or None for all")
    off = FastOptions.gather().off
    show_messages()
    if off:
        _LOG.info("fastyolo_data: FASTYOLO_OFF is set, nothing is replaced")
        return ()
    add_hook(os.environ, target)
    hook.install()
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            replace_in(module)
    with _lock:
        return _names()


def unpatch() -> tuple[str, ...]:
    """Undo patch(): every module has its stock functions again, the hook and the environment variables are gone.

    What somebody else replaced in the meantime stays. Loaders that exist go on working.

    Returns:
        Full names of what was replaced.
    """
    hook.uninstall()
    remove_hook(os.environ)
    with _lock:
        for _, stock, ours in _replaced:
            _swap(ours, stock)
        names = _names()
        _replaced.clear()
        _kept.clear()
    return names


def replace_in(module: ModuleType) -> None:
    """Replace what `module` has to offer, if it is a data module. Never fails: the stock loader is there to stay.

    Raises:
        ConfigError: a FASTYOLO_* variable cannot be used.
    """
    options = FastOptions.gather()
    targets = targets_of(os.environ)
    if options.off or _is_ours(module.__name__):
        return
    stock = dict(vars(module))  # before looking, so that what another thread does meanwhile is noticed
    try:
        found = recognise(module, trust=bool(options.trust))
        if found is None or not targets & {ALL, found.kind}:
            return
        if isinstance(found, Refused):
            _keep(module, found)
        else:
            integration = importlib.import_module(INTEGRATIONS[found.kind])
            _apply(module, found, stock, integration.replacements(module, found))
    except ConfigError:
        raise
    except Exception:  # whatever is wrong with us, the import of training code must not fail because of it
        _tell(logging.WARNING, f"{module.__name__} keeps its own loader, as an error came up", exc_info=True)


def _apply(module: ModuleType, found: Recognised, stock: dict[str, Any], replacements: dict[str, Any]) -> None:
    with _lock:
        for name, ours in replacements.items():
            if vars(module).get(name) is not stock[name]:
                continue  # another thread was here first
            full_name = f"{module.__name__}.{name}"
            _replaced.append((full_name, stock[name], ours))
            _swap(stock[name], ours)
            _tell(logging.INFO, f"replaces {full_name} ({found.title})")


def _names() -> tuple[str, ...]:
    return tuple(sorted({name for name, _, _ in _replaced}))


def _keep(module: ModuleType, found: Refused) -> None:
    if module.__name__ in _kept:
        return
    _kept.add(module.__name__)
    remedy = "; FASTYOLO_TRUST=1 or --fastyolo-trust replaces it nevertheless" if found.by_content else ""
    _tell(logging.WARNING, f"{module.__name__} ({KINDS[found.kind]}) keeps its own loader, as {found.reason}{remedy}")


def _swap(old: Any, new: Any) -> None:
    """Put `new` where a loaded module refers to `old`, under whatever name. Our own modules keep what they have."""
    for space in _namespaces():
        for name, value in list(space.items()):
            if value is old:
                space[name] = new


def _namespaces() -> Iterator[dict[str, Any]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and not _is_ours(name):
            yield vars(module)


def _is_ours(module_name: str) -> bool:
    return module_name.partition(".")[0] == "fastyolo_data"


def _tell(level: int, text: str, **kwargs: Any) -> None:
    """Log a line: where the program did not ask for us, to the terminal whatever it does with logging."""
    show_messages(always=hook.installed() == "environment")
    processes = sys.modules.get("multiprocessing.process")
    forked = processes is not None and processes.parent_process() is not None
    spawned = "--multiprocessing-fork" in sys.orig_argv  # parent_process() is not set yet while __main__ is imported
    if forked or spawned or os.environ.get("RANK", "-1") not in ("-1", "0"):
        level = logging.DEBUG  # one process of many is enough
    _LOG.log(level, f"fastyolo_data: {text}", **kwargs)
