"""Read image sizes and label texts of many files, in as many threads as the disk deserves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.labels.columns import Columns, offsets_of
from fastyolo_data.labels.filestat import UNKNOWN, FileStats, stat_files
from fastyolo_data.labels.find import label_path, label_paths
from fastyolo_data.labels.parse_many import parse_labels
from fastyolo_data.labels.rows import LabelRules

__all__ = ["Files", "Probe", "Read", "Run", "read_files"]

_CHUNK = 128  # files per task of a thread: large enough for array speed, small enough for a lively progress bar
_TRIAL = 8  # files that tell a slow disk from a fast one; also the files per task on a slow one
_SLOW_FILE = 300e-6  # seconds per image and label; 40e-6 on a local disk whose files are in memory
_MIN_SIDE = 10  # pixels; the stock code drops smaller images
_IO_THREADS = 32

Probe = Callable[[str], tuple[int, int] | tuple[int, int, str]]


@dataclass(frozen=True)
class Run:
    """The settings of one call of load_labels, and when it began (ns)."""

    rules: LabelRules
    probe: Probe
    threads: int | None
    verbose: bool
    prefix: str
    started: int


@dataclass
class Files:
    """The distinct images of a split, and the stats of them and of their label files."""

    im_files: list[str]
    images: FileStats
    labels: FileStats

    @classmethod
    def look_at(cls, im_files: Sequence[str]) -> Files:
        distinct = list(dict.fromkeys(im_files))
        return cls(distinct, stat_files(distinct), stat_files(distinct, label_paths))


@dataclass
class Read:
    """What reading some files gave; positions count within those files."""

    hw: npt.NDArray[np.int32]
    columns: Columns
    errors: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)


def read_files(files: Files, todo: npt.NDArray[np.int64], run: Run) -> Read:
    """Probe the images and parse the labels at positions todo, in threads, with a progress bar."""
    from tqdm import tqdm

    parts: list[Read] = []
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
    result = Read(np.concatenate([p.hw for p in parts]), Columns.concat([p.columns for p in parts]))
    starts = offsets_of(np.array([len(p.hw) for p in parts])).tolist()
    for lo, part in zip(starts, parts, strict=False):
        result.errors |= {lo + i: e for i, e in part.errors.items()}
        result.notes |= {lo + i: e for i, e in part.notes.items()}
    return result


def _parts(work: Callable[[int, int], Read], n: int, threads: int | None) -> Iterator[Read]:
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


def _read_chunk(files: Files, positions: npt.NDArray[np.int64], run: Run) -> Read:
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
    return Read(hw, parsed.columns, errors | parsed.errors, notes)


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
