"""`fastyolo run` and `fastyolo yolo`: what the program sees is what it sees under plain Python, plus our loader."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fastyolo_data
from fastyolo_data.cli.main import main
from fastyolo_data.cli.run import interpreter_options, take_options
from fastyolo_data.errors import ConfigError
from tests.integrations.forks import DATA_MODULE, write_fork

ROOT = str(Path(fastyolo_data.__file__).parents[1])
RUN = ("-m", "fastyolo_data", "run")
WHAT_A_SCRIPT_SEES = """
import json, os, sys, warnings
if __name__ == "__main__":
    print(json.dumps([sys.argv, __name__, globals().get("__file__"), os.getcwd(), sys.path, sys.orig_argv,
                      sys.warnoptions, sys._xoptions, repr(sys.flags), sys.executable, vars(sys.modules["__main__"])
                      is globals(), sys.stdout.write_through, sys.stdin.read()]))
"""


def start(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
    """Start Python; with RUN among the arguments, our command."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FASTYOLO_")}
    environ.update({"PYTHONPATH": ROOT, **variables})
    return subprocess.run([sys.executable, *arguments], env=environ, cwd=cwd, capture_output=True, text=True,
                          timeout=120, check=False, input="typed")  # fmt: skip


# ---- as under plain Python -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "ours"),
    [
        (["train.py", "--img", "64", "-h", "--", "x"], ["--fastyolo-cache", "ram", "train.py", "--img", "64",
         "--fastyolo-workers=2", "-h", "--", "x"]),
        (["train.py", "--help"], ["train.py", "--help"]),
        (["-m", "package.train", "a b", ""],
         ["--fastyolo-trust", "-m", "package.train", "a b", "--fastyolo-seed", "3", ""]),
        (["-u", "-Wignore", "-X", "utf8", "-W", "error", "sub/train.py"],
         ["-u", "-Wignore", "-X", "utf8", "-W", "error", "sub/train.py"]),
        (["package", "1"], ["package", "1"]),
        (["-c", WHAT_A_SCRIPT_SEES, "x"], ["-c", WHAT_A_SCRIPT_SEES, "x"]),
    ],
)  # fmt: skip
def test_program_sees_what_it_sees_under_plain_python(tmp_path, plain, ours):
    for name in ("train.py", "package/__init__.py", "package/train.py", "package/__main__.py", "sub/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(WHAT_A_SCRIPT_SEES)
    expected, found = start(*plain, cwd=tmp_path), start(*RUN, *ours, cwd=tmp_path)
    assert expected.returncode == 0, expected.stderr
    assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, expected.returncode)


def test_options_of_the_first_interpreter_are_kept(tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys; print(sys.flags.optimize, sys.stdout.write_through, sys.warnoptions)"
    )
    found = start("-uO", "-W", "error", *RUN, "train.py", cwd=tmp_path)
    assert found.stdout.split(maxsplit=2) == ["1", "True", "['error']\n"]


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit(7)",
        "raise ValueError('a')",
        "import os; os._exit(3)",
        "1 +",
        "import sys; sys.exit('text')",
    ],
)
def test_failures_look_the_same(tmp_path, script):
    (tmp_path / "train.py").write_text(script)
    expected, found = start("train.py", cwd=tmp_path), start(*RUN, "train.py", cwd=tmp_path)
    assert expected.returncode != 0
    assert (found.returncode, found.stderr, found.stdout) == (expected.returncode, expected.stderr, expected.stdout)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_script(tmp_path, number):
    (tmp_path / "train.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(100)")
    process = subprocess.Popen([sys.executable, *RUN, "train.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT},
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(30) == -number
    process.stdout.close()


def test_missing_script_is_reported_by_python(tmp_path):
    expected, found = start("nowhere.py", cwd=tmp_path), start(*RUN, "nowhere.py", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (expected.returncode, expected.stderr)
    assert found.returncode == 2


# ---- with our loader -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["yolov5", "yolov7", "yolov9"])
def test_fork_is_patched_and_its_spawned_children_too(tmp_path, kind):
    write_fork(tmp_path, kind)
    child = ["--child"] if kind == "yolov5" else []
    done = start(*RUN, "train.py", "--fastyolo-trust", *child, "--fastyolo-cache", "memmap", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = {"detect": True, "segment": True, "cache": "memmap", "rank": None}
    assert json.loads(done.stdout) == [report] * (1 + len(child))
    lines = [line for line in done.stderr.splitlines() if line.startswith("fastyolo_data: ")]
    names = [f"utils.{DATA_MODULE[kind]}.create_dataloader", f"utils.segment.{DATA_MODULE[kind]}.create_dataloader"]
    assert [line.split()[2] for line in lines] == names  # told once, although the script silences its logging


def test_edited_fork_runs_with_its_own_loader(tmp_path):
    write_fork(tmp_path, "yolov9")
    done = start(*RUN, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["detect"] is False
    assert "utils.dataloaders (YOLOv9) keeps its own loader" in done.stderr
    assert "LoadImagesAndLabels.__getitem__" in done.stderr
    assert "FASTYOLO_TRUST=1 or --fastyolo-trust" in done.stderr


def test_switched_off(tmp_path):
    write_fork(tmp_path, "yolov9")
    done = start(*RUN, "train.py", "--fastyolo-trust", cwd=tmp_path, FASTYOLO_OFF="1")
    assert json.loads(done.stdout)[0]["detect"] is False
    assert done.stderr == ""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("launcher", [["-m", "torch.distributed.run"], ["torchrun"]])
def test_ranks_of_torchrun_are_patched(tmp_path, launcher):
    write_fork(tmp_path, "yolov5")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = start(*RUN, *launcher, "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={free_port()}",
                 "train.py", "--folder", str(tmp_path), "--fastyolo-trust", cwd=tmp_path, PATH=path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in "01":
        report = json.loads((tmp_path / f"{rank}.json").read_text())
        assert report == [{"detect": True, "segment": True, "cache": None, "rank": rank}]
    assert done.stderr.count("replaces utils.dataloaders.create_dataloader") == 1  # by rank 0


def test_program_that_calls_patch_and_its_children(tmp_path):
    write_fork(tmp_path, "yolov5")
    (tmp_path / "start.py").write_text(
        "import subprocess, sys, fastyolo_data\nfrom utils.dataloaders import create_dataloader as copied\n"
        "names = fastyolo_data.patch('yolov5')\nassert hasattr(copied, '__wrapped__')\n"
        "assert names == ('utils.dataloaders.create_dataloader',)\n"
        "subprocess.run([sys.executable, 'train.py'])\nfastyolo_data.unpatch()\n"
        "assert not hasattr(copied, '__wrapped__')\n"
        "subprocess.run([sys.executable, 'train.py'])\n"
    )
    done = start("start.py", cwd=tmp_path, FASTYOLO_TRUST="1")
    assert [json.loads(line)[0]["detect"] for line in done.stdout.splitlines()] == [True, False], done.stderr


def test_yolo_command(tmp_path):
    pytest.importorskip("ultralytics", reason="pip install ultralytics")
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "print(os.environ.get('FASTYOLO_CACHE'), type(sys.meta_path[0]).__module__, sys.orig_argv[-1])\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), ROOT]), "YOLO_CONFIG_DIR": str(tmp_path)}
    done = start("-m", "fastyolo_data", "yolo", "version", "fastyolo.cache=memmap", cwd=tmp_path, **path)
    assert done.returncode == 0, done.stderr
    assert "memmap fastyolo_data.integrations.hook version" in done.stdout
    refused = start("-m", "fastyolo_data", "yolo", "version", "fastyolo.cash=memmap", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--fastyolo-cash: expected one of --fastyolo-cache" in refused.stderr


# ---- options ---------------------------------------------------------------------------------------------------------


def test_options_end_at_a_bare_dash():
    environ, rest = take_options(["a.py", "--fastyolo-cache-dir", "x y", "--", "--fastyolo-cache", "ram"], {"A": "1"})
    assert rest == ["a.py", "--", "--fastyolo-cache", "ram"]
    assert (environ["FASTYOLO_CACHE_DIR"], environ["A"], environ["FASTYOLO_PATCH"]) == ("x y", "1", "all")
    assert "FASTYOLO_CACHE" not in environ


def test_users_choice_of_targets_is_kept():
    assert take_options([], {"FASTYOLO_PATCH": "yolov7,yolov5"})[0]["FASTYOLO_PATCH"] == "yolov5,yolov7"
    with pytest.raises(ConfigError, match="FASTYOLO_PATCH='yolov8': expected all or some of"):
        take_options([], {"FASTYOLO_PATCH": "yolov8"})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["a.py", "--fastyolo-cache", "tape"], "FASTYOLO_CACHE='tape': expected one of none, ram"),
        (["--fastyolo-workers=-1"], "FASTYOLO_WORKERS='-1': expected a whole number, 0 or more"),
        (["--fastyolo-prefetch=0"], "FASTYOLO_PREFETCH='0': expected a whole number, 1 or more"),
        (["--fastyolo-numerics=slow"], "FASTYOLO_NUMERICS='slow': expected one of fast, exact"),
        (["a.py", "--fastyolo-seed"], "--fastyolo-seed: expected a value"),
        (["--fastyolo-speed=3"], "--fastyolo-speed: expected one of --fastyolo-cache"),
        (["-E"], "-E: Python would not look at the environment"),
        (["-uI"], "-uI: Python would not look at the environment"),
        ([], "which script"),
    ],
)
def test_wrong_options_say_so(capsys, option, message):
    script = ["train.py"] if len(option) == 1 and option[0].startswith("-") else []
    assert main(["run", *option, *script]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "yolo"])
def test_help(capsys, command):
    assert main([command, "--help"]) == 0
    assert f"usage: fastyolo {command}" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert f"\n    {command} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["-u", "a.py", "-u"], ["-u"]),
        (["-um", "a"], ["-u"]),
        (["-W", "error", "-Xdev", "-OO", "a.py"], ["-W", "error", "-Xdev", "-OO"]),
        (["--check-hash-based-pycs", "never", "a.py"], ["--check-hash-based-pycs", "never"]),
        (["-c", "pass", "-u"], []),
        (["-mpackage.module"], []),
        ([], []),
    ],
)
def test_interpreter_options(arguments, options):
    found, rest = interpreter_options(arguments)
    assert found == options
    assert arguments[-len(rest) :] == rest or rest == ["-m", "a"] or not rest
