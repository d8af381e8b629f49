"""The import hook in this process, and what a Python that starts with it looks like."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import fastyolo_data
from fastyolo_data.integrations import hook
from fastyolo_data.integrations.environment import add_hook

ROOT = str(Path(fastyolo_data.__file__).parents[1])


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The hook, and a folder on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    hook.install()
    hook.install()
    assert sys.meta_path[0] is not sys.meta_path[1]
    yield tmp_path
    hook.uninstall()
    hook.uninstall()
    for name in [n for n in sys.modules if n.startswith("hooked_")]:
        del sys.modules[name]


def test_failing_module_has_the_usual_traceback(installed):
    (installed / "hooked_data.py").write_text("def fail():\n    raise ValueError('oh')\nfail()\n")
    with pytest.raises(ValueError, match="oh") as info:
        import hooked_data  # noqa: F401
    files = [Path(f.filename).name for f in traceback.extract_tb(info.value.__traceback__)]
    assert files == [Path(__file__).name, "hooked_data.py", "hooked_data.py"]


def test_loader_is_as_before(installed):
    (installed / "hooked_dataset.py").write_text("create_dataloader = 1\n")
    module = importlib.import_module("hooked_dataset")
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__spec__.loader)
    assert importlib.reload(module) is module


def test_missing_modules_are_missing(installed):
    with pytest.raises(ModuleNotFoundError, match="No module named 'hooked_data_nowhere'"):
        importlib.import_module("hooked_data_nowhere")


def test_other_finders_are_asked_first_to_last(installed, monkeypatch):
    asked = []

    class Finder:
        def __init__(self, name):
            self.name = name

        def find_spec(self, fullname, path=None, target=None):
            asked.append((self.name, fullname))

    monkeypatch.setattr(sys, "meta_path", [sys.meta_path[0], Finder("a"), Finder("b"), *sys.meta_path[1:]])
    (installed / "hooked_loader.py").write_text("x = 1\n")
    assert importlib.import_module("hooked_loader").x == 1
    assert asked == [("a", "hooked_loader"), ("b", "hooked_loader")]


# ---- processes that start with it ------------------------------------------------------------------------------------


def start(*arguments: str, path: list[Path] = (), hooked: bool = True, **variables: str) -> subprocess.CompletedProcess:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FASTYOLO_")}
    environ.update(PYTHONPATH=os.pathsep.join([*map(str, path), ROOT]), **variables)
    if hooked:
        add_hook(environ, None)
    return subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_start_imports_next_to_nothing():
    code = (
        "import sys; print(sorted(sys.modules)); print(sys.path); print([type(f).__name__ for f in sys.meta_path[:1]])"
    )
    plain, ours = start("-c", code, hooked=False), start("-c", code)
    assert (plain.stderr, ours.stderr) == ("", "")
    (modules, path, _), (our_modules, our_path, finder) = (p.stdout.splitlines() for p in (plain, ours))
    extra = set(eval(our_modules)) - set(eval(modules)) - {"sitecustomize", "__future__"}
    extra -= {"importlib", "importlib._bootstrap", "importlib._bootstrap_external", "warnings"}  # parts of the core
    assert extra == {"fastyolo_data", "fastyolo_data.integrations", "fastyolo_data.integrations.hook"}
    assert our_path == path
    assert finder == "['_Finder']"


def test_without_the_variable_there_is_no_hook():
    code = "import sys; print([m for m in sys.modules if m.startswith('fastyolo')])"
    assert start("-c", code, FASTYOLO_PATCH="").stdout.strip() != "[]"  # add_hook sets it
    environ = {"PYTHONPATH": ""}
    add_hook(environ, None)
    assert start("-c", code, hooked=False, path=[Path(environ["PYTHONPATH"])]).stdout.strip() == "[]"


def test_users_own_sitecustomize_runs_as_if_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nprint('own', __name__, __file__, 'site' in os.path.dirname(__file__))\nMARK = 5\n"
    )
    code = "import sitecustomize; print(sitecustomize.MARK, sitecustomize.__file__)"
    plain, ours = (start("-c", code, path=[tmp_path], hooked=h) for h in (False, True))
    assert plain.stdout.startswith("own sitecustomize")
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)


def test_failing_sitecustomize_is_reported_as_usual(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import nowhere_to_be_found\n")
    plain, ours = (start("-c", "print(1)", path=[tmp_path], hooked=h) for h in (False, True))
    assert "nowhere_to_be_found" in plain.stderr
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
