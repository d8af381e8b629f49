"""Read and verify every image and label of a split, from the cache where nothing changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import TASKS, DataSpec, LabelTable, PackedStrings
from fastyolo_data.errors import ConfigError, ImageDecodeError
from fastyolo_data.labels.cache import ScanRecords, cache_folders, cache_name, read_cache, write_cache
from fastyolo_data.labels.columns import Columns, offsets_of
from fastyolo_data.labels.filestat import UNKNOWN, FileStats, stat_files
from fastyolo_data.labels.find import find_images, label_path, label_paths
from fastyolo_data.labels.parse_many import parse_labels
from fastyolo_data.labels.report import check_any_label, nothing_left, report
from fastyolo_data.labels.rows import LabelRules

__all__ = ["load_labels"]

_LOG = logging.getLogger("fastyolo_data")
_CHUNK = 128  # files per task of a thread: large enough for array speed, small enough for a lively progress bar
_TRIAL = 8  # files that tell a slow disk from a fast one; also the files per task on a slow one
_SLOW_FILE = 300e-6  # seconds per image and label; 40e-6 on a local disk whose files are in memory
_MIN_SIDE = 10  # pixels; the stock code drops smaller images
_IO_THREADS = 32
_TICK_NS = 20_000_000  # kernels stamp files with a clock of up to 10 ms
_COARSE_TICK_NS = 2_000_000_000  # FAT and old network file systems

Probe = Callable[[str], tuple[int, int] | tuple[int, int, str]]


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
    run = _Run(rules, probe, threads, verbose, prefix, time.time_ns())
    found = find_images(spec.sources, spec.root, fraction)
    scan = _scan_or_reuse(_Files.look_at(found.im_files), spec, run, cache_dir, rescan, fraction)
    skipped = {**found.skipped, **scan.skipped}
    if not len(scan.records):
        raise ConfigError(nothing_left(spec, prefix, skipped))
    report(scan.records, skipped, found.hints, prefix, verbose, scan.how(run))
    check_any_label(scan.records, augment, prefix)
    columns = _chosen_labels(scan.records.columns, task, single_cls, classes, prefix)
    return _table(scan.records, columns, found.im_files, skipped)


@dataclass(frozen=True)
class _Run:
    """The settings of one call of load_labels, and when it began (ns)."""

    rules: LabelRules
    probe: Probe
    threads: int | None
    verbose: bool
    prefix: str
    started: int


@dataclass
class _Files:
    """The distinct images of a split, and the stats of them and of their label files."""

    im_files: list[str]
    images: FileStats
    labels: FileStats

    @classmethod
    def look_at(cls, im_files: Sequence[str]) -> _Files:
        distinct = list(dict.fromkeys(im_files))
        return cls(distinct, stat_files(distinct), stat_files(distinct, label_paths))


@dataclass
class _Scan:
    """Usable images in order, reasons for the others, and how many files were read rather than taken from a cache."""

    records: ScanRecords
    skipped: dict[str, str]
    read: int

    def how(self, run: _Run) -> str:
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
    files: _Files, spec: DataSpec, run: _Run, cache_dir: Path | None, rescan: bool, fraction: float
) -> _Scan:
    """Take unchanged files from the cache, read the others, and bring the cache up to date."""
    folders, name = cache_folders(spec, cache_dir), cache_name(spec, run.rules, fraction)
    old = None if rescan else read_cache(folders, name)
    n = len(files.im_files)
    old_at = np.full(n, -1, np.int64) if old is None else _unchanged(old, files)
    todo = np.flatnonzero(old_at < 0)
    if old is not None and not len(todo):
        records = old if np.array_equal(old_at, np.arange(len(old))) else _merge(files, old, old_at, None, todo)
        return _Scan(records, {}, 0)
    fresh = _read_files(files, todo, run)
    records = _merge(files, old, old_at, fresh, todo)
    skipped = {files.im_files[todo[i]]: reason for i, reason in sorted(fresh.errors.items())}
    if len(todo) > len(fresh.errors) or (old is not None and len(records) < len(old)):
        write_cache(folders, name, _with_doubts(records, run.started))
    return _Scan(records, skipped, len(todo))


def _unchanged(old: ScanRecords, files: _Files) -> npt.NDArray[np.int64]:
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
    files: _Files, old: ScanRecords | None, old_at: npt.NDArray[np.int64], fresh: _Read | None, todo: npt.NDArray
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


# ------------------------------------------------------------------------------------------------------- reading files


@dataclass
class _Read:
    """What reading some files gave; positions count within those files."""

    hw: npt.NDArray[np.int32]
    columns: Columns
    errors: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)


def _read_files(files: _Files, todo: npt.NDArray[np.int64], run: _Run) -> _Read:
    """Probe the images and parse the labels at positions todo, in threads, with a progress bar."""
    from tqdm import tqdm

    parts: list[_Read] = []
    images = backgrounds = skipped = 0
    where = os.path.dirname(label_path(files.im_files[todo[0]]))
    with tqdm(total=len(todo), desc=f"{run.prefix}Scanning {where}", unit="img", disable=not run.verbose) as bar:
        for part in _parts(lambda lo, hi: _read_chunk(files, todo[lo:hi], run), len(todo), run.threads):
            parts.append(part)
            good = len(part.hw) - len(part.errors)
            images += good
            skipped += len(part.errors)
            backgrounds += int((part.columns.counts == 0).sum()) - len(part.errors)
            bar.set_postfix_str(f"{images} images, {backgrounds} backgrounds, {skipped} skipped", refresh=False)
            bar.update(len(part.hw))
    result = _Read(np.concatenate([p.hw for p in parts]), Columns.concat([p.columns for p in parts]))
    starts = offsets_of(np.array([len(p.hw) for p in parts])).tolist()
    for lo, part in zip(starts, parts, strict=False):
        result.errors |= {lo + i: e for i, e in part.errors.items()}
        result.notes |= {lo + i: e for i, e in part.notes.items()}
    return result


def _parts(work: Callable[[int, int], _Read], n: int, threads: int | None) -> Iterator[_Read]:
    """Yield work(lo, hi) over 0..n in order, from as many threads as the disk deserves.

    A few files are read first to see whether most of the time passes waiting.
    """
    first = min(_TRIAL, n)
    wall, cpu = time.perf_counter(), time.thread_time()
    yield work(0, first)
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    slow = wall > 3 * cpu and wall > _SLOW_FILE * first
    chunk = min(_CHUNK, _TRIAL) if slow else _CHUNK
    if threads is None:
        threads = _IO_THREADS if slow else min(2, os.cpu_count() or 1)
    else:
        chunk = min(chunk, max(_TRIAL, (n - first) // (4 * threads)))
    bounds = [(lo, min(lo + chunk, n)) for lo in range(first, n, chunk)]
    if threads == 1 or len(bounds) < 2:
        for lo, hi in bounds:
            yield work(lo, hi)
        return
    pool = ThreadPoolExecutor(min(threads, len(bounds)), thread_name_prefix="fastyolo-scan")
    try:
        yield from pool.map(lambda b: work(*b), bounds)
    finally:
        pool.shutdown(cancel_futures=True)


def _read_chunk(files: _Files, positions: npt.NDArray[np.int64], run: _Run) -> _Read:
    """Probe and parse a few files. Whatever is wrong with one of them ends up in errors."""
    hw = np.zeros((len(positions), 2), np.int32)
    errors: dict[int, str] = {}
    notes: dict[int, str] = {}
    names = label_paths([files.im_files[at] for at in positions.tolist()])
    texts = []
    sizes = files.labels.size[positions].tolist()
    for i, (at, size) in enumerate(zip(positions.tolist(), sizes, strict=True)):
        text = b""
        try:
            h, w, *remark = run.probe(files.im_files[at])
            if h < _MIN_SIDE or w < _MIN_SIDE:
                raise ImageDecodeError(f"the image has {w}x{h} pixels, expected at least {_MIN_SIDE} on each side")
            hw[i] = h, w
            if remark and remark[0]:
                notes[i] = remark[0]
            if size > 0 or size == UNKNOWN:  # opening it says what is wrong; it must not pass for a background
                text = _read_text(names[i], size)
        except ImageDecodeError as e:
            errors[i] = str(e)
        except Exception as e:  # a probe may raise anything; one file must not end the scan of all
            errors[i] = f"{type(e).__name__}: {e}"
        texts.append(text)
    parsed = parse_labels(texts, names, run.rules)
    for i, note in parsed.notes.items():
        notes[i] = f"{notes[i]}; {note}" if i in notes else note
    return _Read(hw, parsed.columns, errors | parsed.errors, notes)


def _read_text(path: str, size: int) -> bytes:
    """Return the whole file; usually one read of the expected size."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        data = os.read(fd, size + 1)
        if len(data) != size:  # it changed since the stat, or the read was short
            while more := os.read(fd, 1 << 20):
                data += more
    finally:
        os.close(fd)
    return data


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
