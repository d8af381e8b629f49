"""Fingerprints of the functions that decide what a sample looks like: has somebody edited this data code?

A fingerprint is a hash of a function's syntax tree without what changes nothing: formatting, comments, docstrings,
annotations, quoting, log messages. It does not depend on the Python version. `fingerprints.json` holds the fingerprints
of the released code bases (hashes only, no code); `tests/integrations/make_fingerprints.py` writes it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["METHODS", "NAMES", "KnownCode", "deciding_functions", "fingerprint", "fingerprint_file", "known_code"]

# Methods of the data set classes, and functions, that make samples, batches or labels. A name that a code base lacks is
# not looked for.
METHODS = (
    "__init__",
    "__getitem__",
    "cache_labels",
    "load_image",
    "load_mosaic",
    "load_mosaic9",
    "collate_fn",
    "collate_fn4",
)
NAMES = (
    "create_dataloader",
    "img2label_paths",
    "verify_image_label",
    "exif_size",
    "load_image",
    "load_mosaic",
    "load_mosaic9",
    "load_samples",
    "sample_segments",
    "pastein",
    "augment_hsv",
    "copy_paste",
    "letterbox",
    "mixup",
    "random_perspective",
    "box_candidates",
    "bbox_ioa",
    "polygon2mask",
    "polygons2masks",
    "polygons2masks_overlap",
    "resample_segments",
    "segment2box",
    "segments2boxes",
    "xyn2xy",
    "xywhn2xyxy",
    "xyxy2xywhn",
)
CLASSES = ("LoadImagesAndLabels", "LoadImagesAndLabelsAndMasks")
ALBUMENTATIONS = ("Albumentations.__init__", "Albumentations.__call__")

_IGNORED_FIELDS = frozenset({"annotation", "returns", "type_comment", "type_params", "kind", "ctx", "simple"})
_LOGGERS = frozenset({"LOGGER", "logger", "logging", "log"})
_TABLE = Path(__file__).with_name("fingerprints.json")


def fingerprint(node: ast.AST) -> str:
    """Return 12 hexadecimal digits for a function's syntax tree."""
    return hashlib.sha256(_canonical(node).encode()).hexdigest()[:12]


def fingerprint_file(source: str) -> dict[str, str]:
    """Return {qualified name: fingerprint} of the deciding functions that a file of source code defines.

    Raises:
        SyntaxError: the source is not Python 3.
    """
    tree = ast.parse(source)
    wanted = {*NAMES, *ALBUMENTATIONS, *(f"{c}.{m}" for c in CLASSES for m in METHODS)}
    return {name: fingerprint(node) for name, node in _functions(tree) if name in wanted}


def deciding_functions(module: ModuleType, cls: type) -> dict[str, FunctionType | None]:
    """Return {qualified name: function} of what makes the samples of a data module.

    Args:
        module: defines `create_dataloader`.
        cls: the data set class that it uses.

    Returns:
        Helpers are taken as the code sees them: from the module's names, else from those of its data set's methods
        and of its warp. None stands for something that is not a plain Python function.
    """
    found: dict[str, FunctionType | None] = {}
    for owner in reversed(
        [c for c in cls.__mro__ if c.__module__.partition(".")[0] not in ("builtins", "torch", "typing")]
    ):
        for method in METHODS:
            if method in vars(owner):
                found[f"{owner.__name__}.{method}"] = _plain(vars(owner)[method])
    spaces = [vars(module), *(f.__globals__ for f in found.values() if f is not None)]
    warp = _lookup("random_perspective", spaces)
    if isinstance(warp, FunctionType):
        spaces.append(warp.__globals__)
    paste = _lookup("copy_paste", spaces)
    if isinstance(paste, FunctionType):
        spaces.append(paste.__globals__)
    for name in NAMES:
        value = _lookup(name, spaces)
        if value is not None:
            found[name] = _plain(value)
    albumentations = _lookup("Albumentations", spaces)
    if isinstance(albumentations, type):
        found.update({f"Albumentations.{m}": _plain(vars(albumentations).get(m)) for m in ("__init__", "__call__")})
    return found


class KnownCode:
    """The fingerprints of one family, and in which versions each occurs.

    Args:
        versions: names of the versions, oldest first.
        functions: {qualified name: {fingerprint: positions in versions}}.
    """

    def __init__(self, versions: list[str], functions: Mapping[str, Mapping[str, list[int]]]) -> None:
        self.versions = versions
        self._functions = functions

    def compare(self, functions: Mapping[str, FunctionType | None]) -> tuple[list[str], str]:
        """Compare functions with the known ones.

        Returns:
            The names of those that are unknown, and the version that agrees with the most functions: a release before
            a span between two, the newest of equals.
        """
        unknown, votes = [], [0] * len(self.versions)
        for name, function in functions.items():
            if function is not None and function.__module__.partition(".")[0] == "ultralytics":
                continue  # YOLOv5's newest code takes some helpers from that package
            positions = self._functions.get(name, {}).get(fingerprint_function(function) or "")
            if positions is None:
                unknown.append(name)
            for position in positions or ():
                votes[position] += 1
        best = max(range(len(votes)), key=lambda i: (votes[i], " " not in self.versions[i], i))
        return unknown, self.versions[best]


@functools.cache
def known_code(kind: str) -> KnownCode:
    """Return the known code of "yolov5", "yolov7" or "yolov9"."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))[kind]
    return KnownCode(table["versions"], table["functions"])


def fingerprint_function(function: FunctionType | None) -> str | None:
    """Return the fingerprint of a loaded function, or None without its source."""
    if function is None:
        return None
    code = function.__code__
    node = _nodes_of_file(code.co_filename).get((code.co_firstlineno, code.co_name))
    return None if node is None else fingerprint(node)


@functools.lru_cache(maxsize=16)
def _nodes_of_file(path: str) -> dict[tuple[int, str], ast.FunctionDef]:
    """Return {(first line, decorators included; name): syntax tree} of all functions in a file."""
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return {(min([n.lineno, *(d.lineno for d in n.decorator_list)]), n.name): n for n in functions}


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods of a file with their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.FunctionDef):
                    yield f"{node.name}.{child.name}", child


def _lookup(name: str, spaces: list[dict[str, Any]]) -> Any:
    """Return the first value of a name, or None."""
    return next((space[name] for space in spaces if name in space), None)


def _plain(value: Any) -> FunctionType | None:
    """Return the function of a method, or None if this is no Python function."""
    value = getattr(value, "__func__", value)
    return value if isinstance(value, FunctionType) else None


# ---- the canonical form ----------------------------------------------------------------------------------------------


def _canonical(value: Any) -> str:
    """Return a text that is equal for trees that do the same, whatever their spelling."""
    if isinstance(value, list):
        return "[" + ",".join(_canonical(v) for v in value) + "]"
    if not isinstance(value, ast.AST):
        return ascii(value)  # repr() depends on which characters this Python calls printable
    if isinstance(value, ast.AnnAssign):  # an annotation changes nothing
        value = ast.Assign(targets=[value.target], value=value.value)
    parts = [type(value).__name__]
    for field, child in ast.iter_fields(value):
        if field in _IGNORED_FIELDS or (isinstance(value, ast.Assert) and field == "msg"):
            continue
        if isinstance(child, list):
            child = _statements(child) if field in ("body", "orelse", "finalbody") else child
            child = _joined(child) if isinstance(value, ast.JoinedStr) else child
        if child is None or child == []:
            continue
        parts.append(f"{field}={_canonical(child)}")
    return "(" + " ".join(parts) + ")"


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Leave out statements without an effect on samples: docstrings, bare constants, messages, `pass`."""
    return [s for s in body if not _is_idle(s)]


def _is_idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass) or (isinstance(statement, ast.AnnAssign) and statement.value is None):
        return True
    if not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Constant):
        return isinstance(statement, ast.Expr)
    if not isinstance(statement.value, ast.Call):
        return False
    function = statement.value.func
    if isinstance(function, ast.Name):
        return function.id == "print"
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", None) in _LOGGERS


def _joined(values: list[Any]) -> list[Any]:
    """Join neighbouring constants of an f-string: Python versions split them differently."""
    joined: list[Any] = []
    for value in values:
        last = joined[-1] if joined else None
        if isinstance(value, ast.Constant) and isinstance(last, ast.Constant):
            joined[-1] = ast.Constant(value=last.value + value.value)
        else:
            joined.append(value)
    return joined
