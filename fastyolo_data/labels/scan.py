"""Read and verify every image and label of a split, from the cache where nothing changed."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import TASKS, DataSpec, LabelTable, PackedStrings
from fastyolo_data.errors import ConfigError
from fastyolo_data.labels.cache import ScanRecords, cache_folders, cache_name, read_cache, write_cache
from fastyolo_data.labels.columns import Columns, offsets_of
from fastyolo_data.labels.filestat import FileStats
from fastyolo_data.labels.find import find_images
from fastyolo_data.labels.read_files import Files, Probe, Read, Run, read_files
from fastyolo_data.labels.report import check_any_label, nothing_left, report
from fastyolo_data.labels.rows import LabelRules
from fastyolo_data.lock import BuildLock

__all__ = ["load_labels"]

_LOG = logging.getLogger("fastyolo_data")
_TICK_NS = 20_000_000  # kernels stamp files with a clock of up to 10 ms
_COARSE_TICK_NS = 2_000_000_000  # FAT and old network file systems


def load_labels(
    spec: DataSpec,
    *,
    probe: Probe,
    task: str = "detect",
    single_cls: bool = False,
    classes: Sequence[int] | None = None,
    fraction: float = 1.0,
    cache_dir: Path | None = None,
    rescan: bool = False,
    threads: int | None = None,
    verbose: bool = True,
    augment: bool = False,
    prefix: str = "",
) -> LabelTable:
    """Return every usable image of a split with its labels. Writes nothing but the label cache.

    Args:
        spec: the split, from resolve_data.
        probe: returns (h, w) of an image with its EXIF turn applied, then a remark if the user should know something
            about a usable file; raises ImageDecodeError for an unusable one.
        task: "detect", "segment", "pose" or "obb": what label rows mean.
        single_cls, classes: make every class 0; keep only boxes of these classes (images stay).
        fraction: share of the sorted image list to use, from its head; above 1 a number of images.
        cache_dir: folder for the label cache instead of the data set's `.fastyolo` or the user's cache folder.
        rescan: read every file again, whatever the cache says.
        threads: for reading; None picks few for a local and many for a slow disk.
        verbose: show a progress bar and a summary.
        augment: for training: that there is no label file at all is an error, not a warning.
        prefix: put before every message, for example "train: ".

    Raises:
        ConfigError: bad arguments, no usable image, or (augment) no label file.
    """
    rules = _rules(spec, task, single_cls, classes, threads)
    run = Run(rules, probe, threads, verbose, prefix, time.time_ns())
    found = find_images(spec.sources, spec.root, fraction)
    scan = _scan_or_reuse(Files.look_at(found.im_files), spec, run, cache_dir, rescan, fraction)
    skipped = {**found.skipped, **scan.skipped}
    if not len(scan.records):
        raise ConfigError(nothing_left(spec, prefix, skipped))
    report(scan.records, skipped, found.hints, prefix, verbose, scan.how(run))
    check_any_label(scan.records, augment, prefix)
    columns = _chosen_labels(scan.records.columns, task, single_cls, classes, prefix)
    return _table(scan.records, columns, found.im_files, skipped)


@dataclass
class _Scan:
    """Usable images in order, reasons for the others, and how many files were read rather than taken from a cache."""

    records: ScanRecords
    skipped: dict[str, str]
    read: int

    def how(self, run: Run) -> str:
        """Say where the labels came from and how long it took."""
        seconds = (time.time_ns() - run.started) / 1e9
        cached = len(self.records) + len(self.skipped) - self.read
        return f"{self.read} files read, {cached} from the label cache, {seconds:.1f} s"


def _rules(
    spec: DataSpec, task: str, single_cls: bool, classes: Sequence[int] | None, threads: int | None
) -> LabelRules:
    """Check the arguments of load_labels."""
    if task not in TASKS:
        raise ConfigError(f"task={task!r}; choose one of {', '.join(TASKS)}")
    if task == "pose" and spec.kpt_shape is None:
        raise ConfigError(f"{spec.origin}: task 'pose' needs kpt_shape, for example kpt_shape: [17, 3]; add it")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads={threads}; expected at least 1, or None for an automatic choice")
    if classes is not None:
        nc = len(spec.names)
        wrong = [c for c in classes if isinstance(c, (str, bool)) or int(c) != c or c < 0 or (nc and c >= nc)]
        if wrong:
            raise ConfigError(f"classes holds {wrong!r}; expected class indices from 0 to {nc - 1 if nc else '…'}")
    return LabelRules(task, 0 if single_cls else len(spec.names), spec.kpt_shape)


# ------------------------------------------------------------------------------------------------------- cache or scan


def _scan_or_reuse(
    files: Files, spec: DataSpec, run: Run, cache_dir: Path | None, rescan: bool, fraction: float
) -> _Scan:
    """Take unchanged files from the cache, read the others, and bring the cache up to date.

    Of several processes that start together, such as the ranks of one training, one reads the files; the others wait
    for its cache.
    """
    folders, name = cache_folders(spec, cache_dir), cache_name(spec, run.rules, fraction)
    scan = None if rescan else _reuse(files, read_cache(folders, name))
    if scan is not None:
        return scan
    with _one_reader(folders, name, run.prefix) as waited:
        old = None if rescan and not waited else read_cache(folders, name)
        scan = _reuse(files, old) if waited else None
        return _read_changed(files, old, folders, name, run) if scan is None else scan


def _reuse(files: Files, old: ScanRecords | None) -> _Scan | None:
    """Return everything from the cache, or None if a file has to be read."""
    if old is None:
        return None
    old_at = _unchanged(old, files)
    if (old_at < 0).any():
        return None
    same = np.array_equal(old_at, np.arange(len(old)))
    return _Scan(old if same else _merge(files, old, old_at, None, np.zeros(0, np.int64)), {}, 0)


def _read_changed(files: Files, old: ScanRecords | None, folders: list[Path], name: str, run: Run) -> _Scan:
    n = len(files.im_files)
    old_at = np.full(n, -1, np.int64) if old is None else _unchanged(old, files)
    todo = np.flatnonzero(old_at < 0)
    fresh = read_files(files, todo, run)
    records = _merge(files, old, old_at, fresh, todo)
    skipped = {files.im_files[todo[i]]: reason for i, reason in sorted(fresh.errors.items())}
    if len(todo) > len(fresh.errors) or (old is not None and len(records) < len(old)):
        write_cache(folders, name, _with_doubts(records, run.started))
    return _Scan(records, skipped, len(todo))


@contextlib.contextmanager
def _one_reader(folders: list[Path], name: str, prefix: str) -> Iterator[bool]:
    """Hold the lock of a label cache; yield whether another process had it before.

    Where no cache can be written or the file system has no locks, every process reads for itself.
    """
    with contextlib.ExitStack() as stack:
        waited = False
        for folder in folders:
            path = (folder / name).with_suffix(".lock")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                waited = stack.enter_context(BuildLock(path).held(f"{prefix}waiting for the label scan of"))
            except OSError:
                continue
            stack.callback(_remove, path)
            break
        yield waited


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows keeps files that are open
        path.unlink()


def _unchanged(old: ScanRecords, files: Files) -> npt.NDArray[np.int64]:
    """Return for each image its position in the cache, or -1 when it is new or its image or label changed."""
    paths = PackedStrings.pack(files.im_files)
    if np.array_equal(paths.offsets, old.paths.offsets) and np.array_equal(paths.blob, old.paths.blob):
        at = np.arange(len(paths))
    else:
        where = {p: i for i, p in enumerate(old.paths)}
        at = np.array([where.get(p, -1) for p in files.im_files], np.int64)
    known = np.flatnonzero(at >= 0)
    same = files.images.take(known).same(old.images.take(at[known]))
    same &= files.labels.take(known).same(old.labels.take(at[known]))
    at[known[~same]] = -1
    return at


def _merge(
    files: Files, old: ScanRecords | None, old_at: npt.NDArray[np.int64], fresh: Read | None, todo: npt.NDArray
) -> ScanRecords:
    """Return the records of all usable images, in the order of files."""
    n = len(files.im_files)
    hw = np.zeros((n, 2), np.int32)
    usable = np.ones(n, bool)
    notes: dict[int, str] = {}
    parts, order = [], np.zeros(n, np.int64)
    reused = np.flatnonzero(old_at >= 0)
    if old is not None and len(reused):
        parts.append(old.columns.take(old_at[reused]))
        order[reused] = np.arange(len(reused))
        hw[reused] = old.hw[old_at[reused]]
        notes = {int(i): old.notes[j] for i, j in zip(reused, old_at[reused].tolist(), strict=True) if j in old.notes}
    if fresh is not None:
        parts.append(fresh.columns)
        order[todo] = np.arange(len(todo)) + len(reused)
        hw[todo] = fresh.hw
        usable[todo[list(fresh.errors)]] = False
        notes |= {int(todo[i]): note for i, note in fresh.notes.items()}
    kept = np.flatnonzero(usable)
    position = {int(k): i for i, k in enumerate(kept)} if notes else {}
    return ScanRecords(
        PackedStrings.pack(files.im_files[i] for i in kept.tolist()),
        hw[kept],
        files.images.take(kept),
        files.labels.take(kept),
        Columns.concat(parts).take(order[kept]),
        {position[i]: note for i, note in sorted(notes.items()) if i in position},
    )


def _with_doubts(records: ScanRecords, started: int) -> ScanRecords:
    """Return records for the cache in which files written just before the scan never count as unchanged.

    A later write may leave such a file with equal size and equal time stamps, because those tick coarsely.
    """

    def doubtful(stats: FileStats) -> npt.NDArray[np.bool_]:
        stamp = stats.mtime_ns if os.name == "nt" else stats.ctime_ns
        coarse = (stamp % 1_000_000_000 == 0) & (stamp > started - _COARSE_TICK_NS)
        return (stats.size >= 0) & ((stamp > started - _TICK_NS) | coarse)

    doubt = doubtful(records.images) | doubtful(records.labels)
    if not doubt.any():
        return records
    mtime_ns = np.where(doubt, -1, records.images.mtime_ns)
    images = FileStats(records.images.size, mtime_ns, records.images.ctime_ns)
    return ScanRecords(records.paths, records.hw, images, records.labels, records.columns, records.notes)


# --------------------------------------------------------------------------------------------------------- the result


def _chosen_labels(
    columns: Columns, task: str, single_cls: bool, classes: Sequence[int] | None, prefix: str
) -> Columns:
    """Apply what is not part of the cache: the stock rule on mixed polygons, `classes` and `single_cls`."""
    if task == "detect" and len(columns.points) and (columns.npoints == 0).any():
        _LOG.warning(
            "%s%d of %d boxes have no polygon; the polygons of the others are not used, as in the stock code",
            prefix, int((columns.npoints == 0).sum()), len(columns.npoints),
        )  # fmt: skip
        columns = columns.without_polygons()
    if classes is not None:
        columns = columns.keep(np.isin(columns.cls, np.asarray(list(classes), np.float32)))
    if single_cls:
        columns = replace(columns, cls=np.zeros_like(columns.cls))
    return columns


def _table(records: ScanRecords, columns: Columns, im_files: Sequence[str], skipped: dict[str, str]) -> LabelTable:
    """Build the table of all kept images, repeated entries repeated. Its arrays are its own and writable."""
    paths = records.paths
    images, hw = records.images, records.hw
    if len(im_files) != len(paths):
        at = {p: i for i, p in enumerate(paths)}
        idx = np.array([at[p] for p in im_files if p in at], np.int64)
        if len(idx) != len(paths):
            paths, hw, images, columns = paths.take(idx), hw[idx], images.take(idx), columns.take(idx)
    has_polygons = len(columns.points) > 0
    return LabelTable(
        PackedStrings(_own(paths.blob), _own(paths.offsets)),
        _own(hw),
        _own(images.size),
        _own(images.mtime_ns),
        offsets_of(columns.counts),
        _own(columns.cls),
        _own(columns.xywhn),
        offsets_of(columns.npoints) if has_polygons else np.zeros(0, np.int64),
        _own(columns.points),
        _own(columns.keypoints),
        skipped,
    )


def _own(a: npt.NDArray) -> npt.NDArray:
    """Return the array itself, or a copy of one that views the cache file."""
    return a if a.flags.writeable and a.base is None else a.copy()
