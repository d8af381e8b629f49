"""The rooms of the house: who may import what, sizes, exported names, and nothing global on import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fastyolo_data"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {p: ast.parse(p.read_text(encoding="utf-8")) for p in FILES}

BASE = {"datatypes", "errors", "hyp", "lock", "machine", "messages", "sealed"}
ROOMS = {"labels", "store", "decode", "kernels"}
MAY_IMPORT = {
    "datatypes": set(),
    "errors": set(),
    "machine": set(),
    "messages": set(),
    "sealed": set(),
    "lock": {"errors"},
    "hyp": {"errors"},
    "config": BASE,
    **dict.fromkeys(ROOMS | {"plan"}, BASE),
    "augment": BASE | ROOMS | {"plan"},
    # kernels/pack.py is about batches, and `plan` and `augment` are what assemble works for.
    "assemble": BASE | {"kernels", "plan", "augment"},
    # Where rooms meet: these hand each room the callables of the others.
    "caching": BASE | ROOMS | {"config"},
    "dataset": BASE | ROOMS | {"plan", "augment", "assemble", "config", "caching"},
    "dropin": BASE | {"plan", "assemble", "config", "dataset"},
    "loader": BASE | ROOMS | {"plan", "augment", "assemble", "config", "caching", "dataset", "dropin"},
}
ANYTHING = {"__init__", "__main__", "cli", "integrations"}  # the surface; nothing above it imports these
LIBRARIES = {
    "numba": {"kernels"},
    "llvmlite": {"kernels"},
    "torch": {"assemble", "dataset", "dropin", "loader", "config", "cli", "integrations"},
    "ultralytics": {"integrations", "cli"},
    "matplotlib": {"cli"},
}
IDS = [p.relative_to(PACKAGE).as_posix() for p in FILES]
each_file = pytest.mark.parametrize("path", FILES, ids=IDS)


def room(path: Path) -> str:
    """The room of a file: its folder, or its own name at the top."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports(path: Path) -> Iterator[tuple[str, str | None, ast.stmt]]:
    """Every import in a file, nested ones too: module, name or None, statement."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield node.module or "", alias.name, node


def own_room(module: str, name: str | None) -> str | None:
    """Which of our rooms an import reaches."""
    parts = module.split(".")
    if parts[0] != "fastyolo_data":
        return None
    return parts[1] if len(parts) > 1 else name or "__init__"


@each_file
def test_imports_point_upward(path):
    here = room(path)
    for module, name, node in imports(path):
        there = own_room(module, name)
        if there in (None, here) or here in ANYTHING:
            continue
        assert here in MAY_IMPORT, f"{path.name}: a new room needs a place in the table of docs and of this test"
        assert there in MAY_IMPORT[here], f"{path}:{node.lineno}: {here} must not import {there}"


@each_file
def test_libraries_stay_in_their_rooms(path):
    for module, _, node in imports(path):
        top = module.split(".")[0]
        where = f"{path}:{node.lineno}"
        if top in LIBRARIES:
            assert room(path) in LIBRARIES[top], f"{where}: {top} belongs to {', '.join(sorted(LIBRARIES[top]))}"
        if top == "lmdb":
            assert path.relative_to(PACKAGE).as_posix() == "store/lmdb.py", where
        assert top not in {"yolov5", "yolov9", "utils", "models"} or room(path) in ("integrations", "cli"), where


def test_decorators_of_numba_come_from_one_file():
    compilers = {"njit", "jit", "vectorize", "guvectorize", "cfunc", "stencil", "generated_jit"}
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() == "kernels/_jit.py":
            continue
        used = {n.attr for n in ast.walk(TREES[path]) if isinstance(n, ast.Attribute)}
        used |= {name for module, name, _ in imports(path) if module.split(".")[0] == "numba"}
        assert not used & compilers, f"{path}: use kernel and inline of kernels/_jit.py"


def test_config_imports_torch_only_when_asked():
    top_level = [n for n in TREES[PACKAGE / "config.py"].body if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert not [n for n in top_level if "torch" in ast.unparse(n)]


# ---- names -----------------------------------------------------------------------------------------------------------


def exported(path: Path) -> list[str] | None:
    """The names in a module's __all__."""
    for node in TREES[path].body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return ast.literal_eval(node.value)
    return None


def defined(path: Path) -> set[str]:
    """Names bound at the top of a module, also under `if`."""
    names: set[str] = set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
    return names


def module_file(module: str) -> Path:
    base = PACKAGE.joinpath(*module.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@each_file
def test_exported_names_exist(path):
    names = exported(path)
    if names is None:
        private = path.name.startswith("_")
        assert private or not path.read_text(encoding="utf-8").strip(), f"{path} has no __all__"
        return
    assert len(set(names)) == len(names)
    assert set(names) <= defined(path)


@each_file
def test_other_rooms_use_exported_names_only(path):
    for module, name, node in imports(path):
        if own_room(module, name) in (None, room(path)) or name is None:
            continue
        source = module_file(module)
        if source.name == "__init__.py" and (
            (source.parent / name).is_dir() or (source.parent / f"{name}.py").is_file()
        ):
            continue  # a module, not a name
        assert name in (exported(source) or []), f"{path}:{node.lineno}: {name} is not in __all__ of {module}"


@each_file
def test_only_the_command_line_prints(path):
    calls = [n for n in ast.walk(TREES[path]) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "print"]
    assert room(path) == "cli" or not calls, f"{path}:{calls[0].lineno}: library code logs"


# ---- sizes -----------------------------------------------------------------------------------------------------------


def code_lines(lines: list[str], first: int, last: int) -> int:
    """Lines first to last (from 1) that are neither blank nor comments."""
    return sum(1 for line in lines[first - 1 : last] if line.strip() and not line.strip().startswith("#"))


@each_file
def test_functions_and_files_are_short(path):
    """Functions: 45 lines of body, docstring, comments and signature apart. Files: 400, blank lines apart."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(1 for line in lines if line.strip()) <= 400
    for node in ast.walk(TREES[path]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            size = code_lines(lines, body[0].lineno, node.end_lineno or 0) if body else 0
            assert size <= 45, f"{path}:{node.lineno}: {node.name} has {size} lines"


# ---- importing -------------------------------------------------------------------------------------------------------

PROBE = """
import hashlib, json, pickle, random, sys, threading, multiprocessing, os, signal, warnings, logging, locale
import cv2, numpy as np, torch

def state():
    def digest(value):
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    return {
        "cv2 threads": cv2.getNumThreads(), "cv2 OpenCL": cv2.ocl.useOpenCL(), "cv2.imread": id(cv2.imread),
        "cv2.imdecode": id(cv2.imdecode), "cv2.optimized": cv2.useOptimized(),
        "random": digest(random.getstate()), "numpy": digest(np.random.get_state()),
        "torch": digest(torch.get_rng_state().tolist()), "torch threads": torch.get_num_threads(),
        "torch interop": torch.get_num_interop_threads(), "deterministic": torch.are_deterministic_algorithms_enabled(),
        "sharing": torch.multiprocessing.get_sharing_strategy(), "dtype": str(torch.get_default_dtype()),
        "cuda": torch.cuda.is_initialized(), "grad": torch.is_grad_enabled(),
        "start method": multiprocessing.get_start_method(allow_none=True), "switch interval": sys.getswitchinterval(),
        "threads": threading.active_count(), "recursion": sys.getrecursionlimit(),
        "environment": digest(dict(os.environ)),
        "signals": [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)], "hook": id(sys.excepthook),
        "handlers": len(logging.getLogger().handlers), "log level": logging.getLogger().level,
        "numpy errors": np.geterr(), "locale": locale.setlocale(locale.LC_ALL), "folder": os.getcwd(),
        "path": sys.path[:], "builtins": [id(open), id(print)], "torch.load": id(torch.load),
    }

before = state()
import MODULE
print(json.dumps([[k, str(before[k]), str(v)] for k, v in state().items() if v != before[k]]))
"""


@pytest.mark.parametrize("module", ["fastyolo_data.loader", "fastyolo_data.cli.main"])
def test_importing_changes_nothing_global(module):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.replace("MODULE", module)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert len(done.stdout.splitlines()) == 1  # and says nothing
