"""`fastyolo run` and `fastyolo yolo`: start training code that has not been edited, with this loader in it.

The environment is prepared and this process becomes the other program, so that everything is as if that program had
been started directly: sys.argv, __main__, working folder, signals, exit code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fastyolo_data.errors import ConfigError
from fastyolo_data.integrations.environment import ALL, TARGETS, add_hook, targets_of
from fastyolo_data.integrations.options import OPTION_NAMES, SWITCHES, read_options, variable
from fastyolo_data.integrations.recognise import KINDS

__all__ = ["interpreter_options", "run_script", "run_yolo", "take_options"]

_PREFIX = "--fastyolo-"
_VALUED = "WX"  # options of the interpreter that have a value
_BLINDING = set("EIS")  # with these it does not look at the environment

RUN_HELP = f"""usage: fastyolo run [options] SCRIPT [arguments of the script]
       fastyolo run [options] -m MODULE [arguments of the module]
       fastyolo run [options] PROGRAM [arguments], such as torchrun

Run training code of YOLOv5, YOLOv7, YOLOv9 or Ultralytics with this data loader; the code is not edited.

options, before or after the script's name, never seen by the script (up to a bare --):
  {"  ".join(_PREFIX + n.replace("_", "-") + ("" if n in SWITCHES else " X") for n in OPTION_NAMES)}
Each sets the variable of the same name, such as FASTYOLO_CACHE. Options of the interpreter, such as -u or -W error, may
stand before the script.
"""
YOLO_HELP = """usage: fastyolo yolo [arguments of Ultralytics' yolo command] [fastyolo.cache=memmap ...]

Run the yolo command with this data loader. `fastyolo.NAME=VALUE` sets an option, see `fastyolo run --help`.
"""


def run_script(arguments: Sequence[str]) -> int:
    """Become `python SCRIPT arguments`; returns (on Windows, or after --help) the exit code.

    Args:
        arguments: what follows `fastyolo run`.

    Raises:
        ConfigError: no script, or an option that cannot be used.
    """
    environ, rest = take_options(arguments, os.environ)
    options, command = interpreter_options(rest)
    if command[:1] in (["-h"], ["--help"]):
        print(RUN_HELP, end="")
        return 0
    if not command or command == ["-m"]:
        raise ConfigError("which script? `fastyolo run train.py --img 640`; see `fastyolo run --help`")
    blinding = [o for o in options if o.startswith("-") and _BLINDING & set(re.split("[-WX]", o[1:])[0])]
    if blinding:
        raise ConfigError(f"{blinding[0]}: Python would not look at the environment, which carries the loader into it")
    program = None if _is_script(command[0]) else shutil.which(command[0])
    if program is not None:
        return _become(program, [command[0], *command[1:]], environ)
    inherited, _ = interpreter_options(sys.orig_argv[1:])
    return _become(sys.executable, [sys.executable, *inherited, *options, *command], environ)


def run_yolo(arguments: Sequence[str]) -> int:
    """Become `yolo arguments`, Ultralytics' command.

    Raises:
        ConfigError: an option that cannot be used, or the command is missing.
    """
    if list(arguments[:1]) in (["-h"], ["--help"]):
        print(YOLO_HELP, end="")
        return 0
    plain = [_PREFIX + a[len("fastyolo.") :] if a.startswith("fastyolo.") else a for a in arguments]
    environ, rest = take_options(plain, os.environ)
    program = shutil.which("yolo", path=str(Path(sys.executable).parent)) or shutil.which("yolo")
    if program is None:
        raise ConfigError("the yolo command is not installed: pip install ultralytics")
    return _become(program, ["yolo", *rest], environ)


def take_options(
    arguments: Sequence[str], environ: os._Environ[str] | dict[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Split our options from the rest.

    Args:
        arguments: `--fastyolo-x value` and `--fastyolo-x=value` count as ours, up to a bare `--`.
        environ: what the new environment begins with; not changed.

    Returns:
        The environment for the program, and its arguments.

    Raises:
        ConfigError: an unknown option, a missing or an impossible value.
    """
    environ, rest = dict(environ), []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            rest += [argument, *waiting]
            break
        if not argument.startswith(_PREFIX):
            rest.append(argument)
            continue
        option, equals, value = argument.partition("=")
        name = option[len(_PREFIX) :].replace("-", "_")
        if name not in OPTION_NAMES:
            known = ", ".join(_PREFIX + n.replace("_", "-") for n in OPTION_NAMES)
            raise ConfigError(f"{option}: expected one of {known}")
        if not equals and name in SWITCHES:
            value = "1"
        elif not equals:
            if not waiting:
                raise ConfigError(f"{option}: expected a value, such as {option}=...")
            value = waiting.pop(0)
        environ[variable(name)] = value
    options = read_options(environ)
    wrong = targets_of(environ) - {ALL, *KINDS}
    if wrong:
        raise ConfigError(f"{TARGETS}={environ[TARGETS]!r}: expected {ALL} or some of {', '.join(KINDS)}")
    if not options.off:
        add_hook(environ, min(targets_of(environ), default=None))
    return environ, rest


def interpreter_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the interpreter's options from what it is to run: a script, or `-m module`, or `-c code`.

    Args:
        arguments: as they follow `python`.
    """
    options: list[str] = []
    waiting = list(arguments)
    while waiting and waiting[0].startswith("-") and waiting[0] not in ("-", "-h", "--help"):
        argument = waiting.pop(0)
        if argument.startswith("--"):
            options += [argument, *waiting[:1]] if argument == "--check-hash-based-pycs" else [argument]
            waiting = waiting[1:] if argument == "--check-hash-based-pycs" else waiting
            continue
        for place, letter in enumerate(argument[1:], start=1):
            if letter in "mc":  # the end, also of a cluster such as -um
                options += ["-" + argument[1:place]] if place > 1 else []
                return options, ["-" + argument[place:], *waiting]
            if letter in _VALUED:
                options += [argument] if len(argument) > place + 1 else [argument, *waiting[:1]]
                waiting = waiting if len(argument) > place + 1 else waiting[1:]
                break
        else:
            options.append(argument)
    return options, waiting


def _is_script(name: str) -> bool:
    """Is this for Python itself: an option, a file, or a folder with a __main__.py?"""
    return name.startswith("-") or os.path.isfile(name) or os.path.isfile(os.path.join(name, "__main__.py"))


def _become(program: str, arguments: list[str], environ: dict[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execve(program, arguments, environ)
    process = subprocess.Popen(arguments, executable=program, env=environ)  # Windows has no exec that keeps the console
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # it has got the same Ctrl-C and decides
