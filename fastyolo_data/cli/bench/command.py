"""`fastyolo bench`: arguments, the order of the steps, what is printed."""

from __future__ import annotations

import argparse
import datetime
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastyolo_data.cli.bench import chart, report
from fastyolo_data.cli.bench.adapters import ADAPTERS, Settings, UltralyticsAdapter, available
from fastyolo_data.cli.bench.dataset import Source, private_copy, read_source
from fastyolo_data.cli.bench.demo import DemoSpec, make_demo
from fastyolo_data.cli.bench.machine import describe_machine, git_commit
from fastyolo_data.cli.bench.measure import Contender, Plan, Result, run_round
from fastyolo_data.datatypes import TASKS
from fastyolo_data.errors import ConfigError

__all__ = ["add_arguments", "run"]

DESCRIPTION = """Measure this loader, and the stock loaders that are installed, on your images or on a generated set.

Every loader runs in its own process on its own copy of the images; passes are interleaved (AB BA AB ...). Reported:
images per second, CPU seconds, time to the first batch, peak memory, and how busy a GPU of a given speed would be."""
GPU_RATES = (100.0, 200.0, 400.0, 800.0, 1600.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the sub-command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("data", nargs="?", help="data.yaml, image folder or .txt list; without it a demo set is generated")
    add(
        "--split",
        type=_words,
        default=["train"],
        metavar="SPLITS",
        help="split of the yaml; train,val joins two (default: train)",
    )
    add("--repeat", type=int, default=1, metavar="N", help="use every image N times under different names (default: 1)")
    add("--images", type=int, default=1024, metavar="N", help="use at most N images of the set (default: 1024)")
    add("--demo-dir", type=Path, help="where the demo set is kept (default: the user's cache folder)")
    add("--task", choices=TASKS, default="detect", help="what the labels are for; all but detect need data of yours")
    add("--imgsz", type=int, default=640, help="training size in pixels (default: 640)")
    add("--batch", type=int, default=16, help="images in a batch (default: 16)")
    add("--workers", type=int, default=2, help="workers of each loader (default: 2)")
    add(
        "--cache",
        type=_words,
        default=["none"],
        metavar="MODES",
        help="cache modes, a round each: none,ram,memmap,lmdb,lmdb-jpeg (default: none)",
    )
    add("--together", action="store_true", help="all cache modes in one round, with build time, disk space, cold speed")
    add("--against", type=_words, default=["ultralytics"], metavar="NAMES", help="other loaders (default: ultralytics)")
    add("--only", metavar="NAME", help="measure just this loader (ours or a name for --against)")
    add("--passes", type=int, default=5, help="timed passes of each loader (default: 5)")
    add("--seconds", type=float, default=4.0, help="length of a pass (default: 4)")
    add("--gpu-sim", action=argparse.BooleanOptionalAction, default=True, help="simulate GPUs of 100 to 1600 img/s")
    add("--json", type=Path, metavar="FILE", help="write all numbers to this file")
    add("--chart", type=Path, metavar="FILE", help="draw a PNG chart (needs matplotlib)")
    add("--quick", action="store_true", help="a rough answer: 2 passes of 1 s, one pass for each simulated GPU")


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command; return the exit code.

    Raises:
        ConfigError: an argument makes no sense.
        BenchError: a contender failed.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    _validate(args)
    plan = Plan(
        passes=2 if args.quick else args.passes,
        seconds=1.0 if args.quick else args.seconds,
        gpu_rates=GPU_RATES if args.gpu_sim else (),
        gpu_passes=1 if args.quick else 2,
        warm_seconds=5.0 if args.quick else 20.0,
        cold=args.together,
    )
    names = _contenders(args)
    source = _source(args)
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    machine = describe_machine()
    _announce(args, plan, names, source)
    results: list[Result] = []
    for modes in [args.cache] if args.together else [[cache] for cache in args.cache]:
        print(f"cache: {', '.join(modes)}", flush=True)
        results += _round(args, plan, names, source, modes)
    content = report.document(
        results,
        command=shlex.join(["fastyolo", *sys.argv[1:]]),
        commit=git_commit(Path(__file__).parents[2]),
        started=started,
        machine=machine,
        settings=_settings(args, plan),
        dataset=_dataset(args, source),
    )
    print("\n" + report.table(content), flush=True)
    if args.json:
        report.write_json(args.json, content)
        print(f"numbers: {args.json}")
    if args.chart:
        chart.draw(args.chart, content)
        print(f"chart: {args.chart}")
    return 0


def _words(text: str) -> list[str]:
    """Split a comma list; argparse reports the ValueError of an empty one."""
    words = [w.strip() for w in text.split(",") if w.strip()]
    if not words:
        raise ValueError(text)
    return words


def _validate(args: argparse.Namespace) -> None:
    """Raise ConfigError for arguments that can't work, before anything is made."""
    lowest = {"imgsz": 32, "batch": 1, "workers": 0, "passes": 1, "repeat": 1, "images": 1}
    for name, low in lowest.items():
        if getattr(args, name) < low:
            raise ConfigError(f"--{name}: expected {low} or more, found {getattr(args, name)}")
    if args.imgsz % 32:
        raise ConfigError(f"--imgsz: expected a multiple of 32, found {args.imgsz}; take {args.imgsz // 32 * 32 or 32}")
    if not 0.1 <= args.seconds <= 600:
        raise ConfigError(f"--seconds: expected 0.1 to 600, found {args.seconds:g}")
    modes = tuple(UltralyticsAdapter.cache_modes)
    for mode in args.cache:
        if mode not in modes:
            raise ConfigError(f"--cache: expected {', '.join(modes)}; found '{mode}'")
    known = [n for n in ADAPTERS if n != "baseline"]
    for name in [*args.against, *([args.only] if args.only else [])]:
        if name not in known:
            raise ConfigError(f"unknown loader '{name}'; known: {', '.join(known)}")
        if args.task not in ADAPTERS[name].tasks:
            raise ConfigError(f"--task {args.task}: '{name}' has {', '.join(ADAPTERS[name].tasks)} only")
    if args.task != "detect" and args.data is None:
        raise ConfigError(
            f"--task {args.task}: the demo set has boxes only; name a data.yaml with labels for this task"
        )
    if args.chart:
        chart.check_matplotlib()


def _contenders(args: argparse.Namespace) -> list[str]:
    """Return which adapters run, ours first; says so when one isn't installed."""
    wanted = [args.only] if args.only else list(dict.fromkeys(["ours", *args.against]))
    names = []
    for name in wanted:
        if available(name):
            names.append(name)
        elif name == args.only:
            raise ConfigError(f"--only {name}: the package isn't installed; pip install {ADAPTERS[name].package}")
        else:
            print(f"{name} isn't installed, so it isn't measured (pip install {ADAPTERS[name].package})", flush=True)
    return names


def _source(args: argparse.Namespace) -> Source:
    """Return the images to load, generating the demo set if none were named."""
    data = args.data
    if data is None:
        root = args.demo_dir or _cache_folder()
        print(f"demo set: generated photos in {root} (made once, then kept)", flush=True)
        data = str(make_demo(root, DemoSpec()))
    return read_source(data, args.split, args.images)


def _cache_folder() -> Path:
    """Return the folder for generated data of this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "fastyolo"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fastyolo"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastyolo"


def _announce(args: argparse.Namespace, plan: Plan, names: Sequence[str], source: Source) -> None:
    """Print what is going to happen and how long it takes."""
    n = len(source.images)
    part = f" of {source.found}" if source.found > n else ""
    times = f", each {args.repeat} times" if args.repeat > 1 else ""
    minutes = _seconds(plan, names, args) / 60
    print(f"loaders: {', '.join(names)}; each in its own process with {args.workers} workers")
    print(f"data: {n}{part} images of {source.origin} ({source.total_bytes() / n / 1e3:.0f} kB on average){times}")
    print(f"task: {args.task}; training batches of {args.batch} at {args.imgsz} px, default augmentation, shuffled")
    print(f"this takes about {max(1, round(minutes))} min; keep the machine otherwise idle", flush=True)


def _seconds(plan: Plan, names: Sequence[str], args: argparse.Namespace) -> float:
    """Return roughly how long all rounds take."""
    if args.together:
        contenders = len(_combinations(names, args.cache))
        return plan.estimate(contenders) + contenders * (5 + plan.warm_seconds / 2)
    return plan.estimate(len(names)) * len(args.cache)


def _round(
    args: argparse.Namespace, plan: Plan, names: Sequence[str], source: Source, modes: Sequence[str]
) -> list[Result]:
    """Run one round in a temporary folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastyolo-bench-", ignore_cleanup_errors=True) as temp:
        contenders = []
        for name, cache in _combinations(names, modes):
            data = private_copy(source, Path(temp) / f"{name}-{cache}" / "data", args.repeat)
            contenders.append(Contender(name, Settings(data, args.imgsz, args.batch, args.workers, cache, args.task)))
        return run_round(contenders, plan, Path(temp) / "logs", lambda line: print(line, flush=True))


def _combinations(names: Sequence[str], modes: Sequence[str]) -> list[tuple[str, str]]:
    """Return who runs in which mode: a loader that has one mode for several of ours takes part in it once."""
    found: dict[tuple[str, object], tuple[str, str]] = {}
    for name in names:
        own = getattr(ADAPTERS[name], "cache_modes", {})
        for mode in modes:
            theirs = own.get(mode, mode)
            found.setdefault((name, theirs), (name, theirs if isinstance(theirs, str) else mode))
    return list(found.values())


def _settings(args: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    """Return the settings for the result file."""
    return {
        "task": args.task,
        "imgsz": args.imgsz,
        "batch": args.batch,
        "workers": args.workers,
        "passes": plan.passes,
        "seconds": plan.seconds,
        "gpu_rates": list(plan.gpu_rates),
        "gpu_passes": plan.gpu_passes,
        "together": args.together,
    }


def _dataset(args: argparse.Namespace, source: Source) -> dict[str, Any]:
    """Return the description of the data for the result file."""
    return {
        "origin": source.origin,
        "split": ",".join(args.split),
        "images": len(source.images) * args.repeat,
        "distinct_images": len(source.images),
        "mean_bytes": source.total_bytes() / len(source.images),
        "classes": len(source.names),
    }
