"""The `fastyolo` command: a table of sub-commands, each imported only when it is called."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastyolo_data.errors import FastYoloError

__all__ = ["COMMANDS", "main"]

EXIT_OK, EXIT_FAILED, EXIT_BAD_ARGUMENTS, EXIT_INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Command:
    """One sub-command.

    Attributes:
        module: has `add_arguments(parser)` and `run(args) -> exit code`.
        summary: one line for `fastyolo --help`.
        raw: instead of those two, name of a function that takes the arguments as they are: most belong to another
            program.
    """

    module: str
    summary: str
    raw: str | None = None


COMMANDS: dict[str, Command] = {
    "bench": Command("fastyolo_data.cli.bench.command", "measure this loader and the stock loaders"),
    "cache": Command("fastyolo_data.cli.cache", "build, list, check or remove caches of decoded images"),
    "preview": Command("fastyolo_data.cli.preview", "draw augmented samples with their labels"),
    "run": Command("fastyolo_data.cli.run", "run a training script with this loader in it", raw="run_script"),
    "warmup": Command("fastyolo_data.cli.warmup", "compile the kernels now instead of at the first training start"),
    "yolo": Command("fastyolo_data.cli.run", "run Ultralytics' yolo command with this loader in it", raw="run_yolo"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fastyolo`.

    Args:
        argv: arguments without the program name; None takes those of the process.

    Returns:
        0 after success, 1 when the work failed, 2 for bad arguments, 130 when interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS and COMMANDS[arguments[0]].raw is not None:
        command = COMMANDS[arguments[0]]
        return _call(arguments[0], getattr(importlib.import_module(command.module), command.raw), arguments[1:])
    name = next((a for a in arguments if not a.startswith("-")), None)
    parser = _parser(name)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as e:  # argparse printed help or what is wrong
        return e.code if isinstance(e.code, int) else EXIT_BAD_ARGUMENTS
    if args.command is None:
        parser.print_help()
        return EXIT_BAD_ARGUMENTS
    return _call(args.command, importlib.import_module(COMMANDS[args.command].module).run, args)


def _call(name: str, function: Callable[[Any], int], args: Any) -> int:
    """Run a sub-command and turn its errors into exit codes."""
    try:
        return int(function(args))
    except FastYoloError as e:
        print(f"fastyolo {name}: {e}", file=sys.stderr)
        return EXIT_BAD_ARGUMENTS if isinstance(e, ValueError) else EXIT_FAILED
    except KeyboardInterrupt:
        print(f"fastyolo {name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser; only the chosen sub-command is imported and declares its options."""
    from fastyolo_data import __version__

    parser = argparse.ArgumentParser(prog="fastyolo", description="The data loader that keeps a GPU busy.")
    parser.add_argument("--version", action="version", version=f"fastyolo_data {__version__}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        child = sub.add_parser(name, help=command.summary)
        if name == chosen and command.raw is None:
            importlib.import_module(command.module).add_arguments(child)
    return parser


if __name__ == "__main__":
    sys.exit(main())
