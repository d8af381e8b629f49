"""Peak proportional set size (PSS) of a process tree, sampled from outside.

PSS counts a page that n processes share as 1/n for each, so the sum over a tree counts every page once. Only Linux
tells it; elsewhere the resident set size is taken, which counts shared pages once for each process.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import TracebackType

import psutil

__all__ = ["METRIC", "PeakSampler", "tree_bytes"]

METRIC = "pss" if sys.platform == "linux" else "rss"


def tree_bytes(pid: int) -> int:
    """Return the PSS (else RSS) in bytes of process `pid` and all its descendants; 0 when it is gone."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_process_bytes(p) for p in tree)


class PeakSampler:
    """Context manager: samples a process tree in a thread and keeps the largest sum.

    Args:
        pid: root of the tree.
        interval: seconds between samples. A sample walks the page tables of the whole tree (about 10 ms here), so
            nothing that is timed should run meanwhile.

    Attributes:
        peak: largest sum seen, in bytes.
        samples: number of samples taken.
    """

    def __init__(self, pid: int, interval: float = 0.1) -> None:
        self.pid = pid
        self.interval = interval
        self.peak = 0
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
        self.peak = max(self.peak, tree_bytes(self.pid))
        self.samples += 1


def _process_bytes(process: psutil.Process) -> int:
    """Return one process's PSS (else RSS) in bytes; 0 when it ended meanwhile or may not be read."""
    if METRIC == "pss":
        try:
            return _parse_rollup(Path(f"/proc/{process.pid}/smaps_rollup").read_text())
        except (OSError, ValueError):
            pass  # kernels before 4.14 and some sandboxes have no rollup, and a process may end while we read
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def _parse_rollup(text: str) -> int:
    """Return the bytes of the `Pss:` line of an smaps_rollup text."""
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no Pss line")
