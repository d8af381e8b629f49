"""`fastyolo cache build|info|verify|clean`: the stored caches of a data set, outside a training."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fastyolo_data.errors import ConfigError, StoreError

__all__ = ["add_arguments", "run"]

DESCRIPTION = """Build, list, check or remove caches of decoded images.

A training finds a cache that was built here if it uses the same images, imgsz, dialect and numerics. Exit codes: 0 all
is well, 1 a cache is damaged, incomplete, or could not be built or removed, 2 bad arguments."""
MODES = ("memmap", "lmdb", "lmdb-jpeg")
_PASSED_ON = ("imgsz", "stride", "dialect", "numerics", "fraction", "workers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the sub-command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make a cache, or bring it up to date")
    info = actions.add_parser("info", help="list caches: kind, size, images, how many are out of date")
    verify = actions.add_parser("verify", help="compare every record with its checksum; the next start repairs")
    clean = actions.add_parser("clean", help="remove caches")
    for child in (build, info, verify, clean):
        child.add_argument("data", help="data.yaml, image folder or .txt list")
        child.add_argument("--split", default="train,val", help="splits of the yaml (default: train,val if there)")
        child.add_argument("--cache-dir", type=Path, help="folder of the caches, as in build_loader")
    add = build.add_argument
    add("--cache", choices=MODES, default="memmap", help="kind (default: memmap); lmdb-jpeg keeps the files' bytes")
    add("--imgsz", type=int, default=640, help="training size in pixels (default: 640)")
    add("--stride", type=int, default=32, help="largest stride of the model (default: 32)")
    add("--dialect", default="ultralytics", help="rules for sizes and interpolation (default: ultralytics)")
    add("--numerics", default="fast", help="fast or exact (default: fast)")
    add("--fraction", type=float, default=1.0, help="share of the images, as in build_loader (default: 1)")
    add("--workers", type=int, help="threads (default: the usable CPUs)")
    add("--dry-run", action="store_true", help="say how large it would be, write nothing")
    verify.add_argument("--workers", type=int, help="threads (default: the usable CPUs)")


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command; return the exit code.

    Raises:
        ConfigError: an argument makes no sense.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    return {"build": _build, "info": _info, "verify": _verify, "clean": _clean}[args.action](args)


def _splits(args: argparse.Namespace) -> dict[str, Any]:
    """Return the DataSpec of each split; those that the yaml lacks are left out unless they were asked for."""
    from fastyolo_data.labels import resolve_data

    names = [name.strip() for name in args.split.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--split: expected names such as train,val; found {args.split!r}")
    if Path(args.data).suffix.lower() not in (".yaml", ".yml"):
        names = names[:1]  # a folder or list has no splits
    specs = {}
    for name in names:
        try:
            specs[name] = resolve_data(args.data, name)
        except ConfigError:
            if name != "val" or args.split != "train,val":
                raise
    return specs


# ---- build -----------------------------------------------------------------------------------------------------------


def _build(args: argparse.Namespace) -> int:
    from fastyolo_data.caching import PAYLOAD_VARIABLE
    from fastyolo_data.loader import build_dataset
    from fastyolo_data.store import StoredStore

    os.environ[PAYLOAD_VARIABLE] = "jpeg" if args.cache == "lmdb-jpeg" else "tiles"
    kind, failed = args.cache.split("-")[0], False
    for split in _splits(args):
        options = {name: getattr(args, name) for name in _PASSED_ON}
        dataset = build_dataset(args.data, split=split, cache=kind, cache_dir=args.cache_dir, **options)
        if args.dry_run:
            print(f"{split}: {dataset.tiles.forecast(kind)}")
            continue
        store = dataset.tiles.acquire()
        if isinstance(store, StoredStore) and store.complete:
            print(f"{split}: ready")
        else:
            failed = True
            print(f"{split}: not built, or only a part of it", file=sys.stderr)
        dataset.tiles.release()
    return int(failed)


# ---- the others ------------------------------------------------------------------------------------------------------


def _caches(args: argparse.Namespace) -> list[Any]:
    """Return the caches of the data set, in every folder where one may lie."""
    from fastyolo_data.labels import cache_folders
    from fastyolo_data.store.maintain import list_stored

    found: dict[tuple[Path, str], Any] = {}
    for spec in _splits(args).values():
        roots = [os.fspath(spec.root), *(os.fspath(s) for s in spec.sources)]
        for folder in cache_folders(spec, args.cache_dir, "tiles"):
            own = folder == spec.root / ".fastyolo"  # nothing but caches of this data set
            for cache in list_stored(folder):
                if own or _belongs(cache, roots):
                    found[folder, cache.stem] = cache
    return list(found.values())


def _belongs(cache: Any, roots: list[str]) -> bool:
    """Whether the first image of a cache lies in one of the data set's folders."""
    if cache.index is None or not len(cache.index.records):
        return False
    first = cache.index.records.paths[0]
    return any(first == root or first.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def _info(args: argparse.Namespace) -> int:
    from fastyolo_data.store import size_text
    from fastyolo_data.store.maintain import stale_images

    caches, bad = _caches(args), False
    for cache in caches:
        print(f"{cache.folder / cache.stem}: {size_text(cache.nbytes)}")
        if cache.index is not None:
            rule, records = cache.rule, cache.index.records
            broken, stale = int((records.offset < 0).sum()), stale_images(cache)
            what = "image files as they are" if rule["encoded"] else f"tiles of {rule['imgsz']} px ({rule['rounding']})"
            counts = f"{len(records):,} images, {broken:,} broken, {stale:,} changed or gone since"
            print(f"  {rule['kind']}, {what}; {counts}")
        if cache.problem:
            bad = True
            print(f"  {cache.problem}")
    if not caches:
        print("no cache")
    return int(bad)


def _verify(args: argparse.Namespace) -> int:
    from fastyolo_data.machine import cpu_count
    from fastyolo_data.store.maintain import verify_stored

    caches, bad = _caches(args), False
    for cache in caches:
        name = os.fspath(cache.folder / cache.stem)
        if cache.index is None or cache.problem:
            bad = True
            print(f"{name}: {cache.problem}")
            continue
        with tqdm(total=len(cache.index.records), desc="Verifying", unit="img") as bar:

            def tick(done: int, bar: Any = bar) -> bool:
                bar.update(done - bar.n)
                return False

            damaged = verify_stored(cache, threads=args.workers or cpu_count(), tick=tick)
        for path in damaged[:10]:
            print(f"  damaged: {path}")
        print(f"{name}: {len(damaged)} of {len(cache.index.records):,} records are damaged")
        bad |= bool(damaged)
    if not caches:
        print("no cache")
    return int(bad)


def _clean(args: argparse.Namespace) -> int:
    from fastyolo_data.store import size_text
    from fastyolo_data.store.maintain import remove_stored

    caches, failed = _caches(args), False
    for cache in caches:
        try:
            print(f"{cache.folder / cache.stem}: removed, {size_text(remove_stored(cache))}")
        except (OSError, StoreError) as error:
            failed = True
            print(f"{cache.folder / cache.stem}: not removed ({error})", file=sys.stderr)
    if not caches:
        print("no cache")
    return int(failed)
