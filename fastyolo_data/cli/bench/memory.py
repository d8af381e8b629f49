"""Peak memory of a process tree, sampled from outside.

The proportional set size (PSS) counts a page that n processes share as 1/n for each, so its sum over a tree counts
every page once, unless programs outside the tree share pages too: every process that has torch loaded makes the
libraries of the others look smaller (by 100 MB and more when several run). So two sums are kept: the plain PSS, and the
footprint, which takes anonymous and shared memory from the PSS but counts mapped files once at full size, as large as
in the process that has most of them. Alone on a machine both agree within a few per cent; the footprint doesn't depend
on the others.

Only Linux tells the PSS; elsewhere both are the resident set size, which counts shared pages once for each process.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

__all__ = ["METRIC", "PeakSampler", "TreeMemory", "tree_memory"]

METRIC = "pss" if sys.platform == "linux" else "rss"


@dataclass(frozen=True)
class TreeMemory:
    """Memory of a process tree in bytes.

    Attributes:
        pss: sum of the proportional set sizes.
        footprint: the same, but mapped files counted once, whoever else maps them.
    """

    pss: int
    footprint: int


@dataclass(frozen=True)
class _ProcessMemory:
    """Bytes of one process: PSS, its part that isn't mapped files, and the resident part of mapped files."""

    pss: int
    own: int
    files: int


def tree_memory(pid: int) -> TreeMemory:
    """Return the memory of process `pid` and all its descendants; zeros when it is gone."""
    try:
        root = psutil.Process(pid)
        tree = [_process_memory(p) for p in (root, *root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return TreeMemory(0, 0)
    return TreeMemory(sum(m.pss for m in tree), sum(m.own for m in tree) + max(m.files for m in tree))


class PeakSampler:
    """Context manager: samples a process tree in a thread and keeps the largest sums.

    Args:
        pid: root of the tree.
        interval: seconds between samples. A sample walks the page tables of the whole tree (about 10 ms here), so
            nothing that is timed should run meanwhile.

    Attributes:
        peak: largest footprint and largest PSS seen, not necessarily at the same moment.
        samples: number of samples taken.
    """

    def __init__(self, pid: int, interval: float = 0.1) -> None:
        self.pid = pid
        self.interval = interval
        self.peak = TreeMemory(0, 0)
        self.samples = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastyolo-pss", daemon=True)

    def __enter__(self) -> PeakSampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self.interval):
            self._sample()

    def _sample(self) -> None:
        now = tree_memory(self.pid)
        self.peak = TreeMemory(max(self.peak.pss, now.pss), max(self.peak.footprint, now.footprint))
        self.samples += 1


def _process_memory(process: psutil.Process) -> _ProcessMemory:
    """Return the memory of one process; zeros when it ended meanwhile or may not be read."""
    if METRIC == "pss":
        proc = Path("/proc") / str(process.pid)
        try:
            rollup = _kilobytes((proc / "smaps_rollup").read_text())
            files = _kilobytes((proc / "status").read_text())["RssFile"]
            return _ProcessMemory(rollup["Pss"], rollup["Pss"] - rollup["Pss_File"], files)
        except (OSError, KeyError):
            pass  # old kernels and some sandboxes have no such file or field, and a process may end while we read
    try:
        rss = process.memory_info().rss
    except psutil.Error:
        rss = 0
    return _ProcessMemory(rss, rss, 0)


def _kilobytes(text: str) -> dict[str, int]:
    """Return the fields of a /proc file that are given in kB, in bytes."""
    fields = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            fields[name] = int(words[0]) * 1024
    return fields
