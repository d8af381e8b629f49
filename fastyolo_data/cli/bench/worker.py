"""The child process of the benchmark: started by client.py with the arguments ADAPTER STARTED.

It reads one JSON request a line from stdin and answers each with one JSON line. Loaders print to stdout, so the
answers go to a private copy of that file descriptor and fd 1 is pointed at stderr. STARTED is time.time() of the
moment in which the parent started this process.

Requests: load · build (settings) · first · describe (batches) · warm (max_seconds) · run (seconds, rate) · quit
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from fastyolo_data.cli.bench.adapters import ADAPTERS, Settings
from fastyolo_data.cli.bench.machine import machine_cpu_seconds

__all__ = ["Session", "main"]


class Session:
    """The state of one contender between requests; each method answers the request of its name."""

    def __init__(self, adapter: str, started: float) -> None:
        self.adapter = ADAPTERS[adapter]()
        self.started = started
        self.stream: Iterator[dict[str, Any]] = iter(())
        self.build_start = 0.0

    def load(self) -> dict[str, Any]:
        """Import the loader's packages."""
        already = sorted({"torch", "numba", "cv2"} & sys.modules.keys())
        begin = time.perf_counter()
        self.adapter.load()
        seconds = time.perf_counter() - begin
        versions = {n: str(sys.modules[n].__version__) for n in ("torch", "cv2", "numba") if n in sys.modules}
        if self.adapter.package and hasattr(sys.modules.get(self.adapter.package), "__version__"):
            versions[self.adapter.package] = str(sys.modules[self.adapter.package].__version__)
        return {"import_seconds": seconds, "versions": versions, "already_imported": already}

    def build(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Create the loader."""
        self.build_start = time.perf_counter()
        self.adapter.build(Settings(**settings))
        self.stream = self.adapter.batches()
        return {"build_seconds": time.perf_counter() - self.build_start, "epoch_batches": self.adapter.epoch_batches()}

    def first(self) -> dict[str, Any]:
        """Wait for the first batch; the seconds since the build began, and since the process began."""
        images = len(next(self.stream)["img"])
        after_import = time.perf_counter() - self.build_start
        return {"images": images, "first_batch_seconds": after_import, "since_start": time.time() - self.started}

    def describe(self, batches: int) -> dict[str, Any]:
        """Return what the parent compares between contenders: layout of a batch and averages over a few batches."""
        seen = [_describe_batch(next(self.stream)) for _ in range(batches)]
        numbers = [s["numbers"] for s in seen]
        return {
            "layout": seen[0]["layout"],
            "numbers": {key: sum(n[key] for n in numbers) / len(numbers) for key in numbers[0]},
        }

    def warm(self, max_seconds: float) -> dict[str, Any]:
        """Load one epoch, or as much of it as fits into max_seconds."""
        begin, done = time.perf_counter(), 0
        while done < self.adapter.epoch_batches() and time.perf_counter() - begin < max_seconds:
            next(self.stream)
            done += 1
        return {"batches": done, "seconds": time.perf_counter() - begin}

    def run(self, seconds: float, rate: float | None) -> dict[str, Any]:
        """Time whole batches for about `seconds`.

        The batches that lay ready when the request came are taken first, untimed, and so are four more: then queues
        are as empty as they will be at the end.

        Args:
            seconds: the pass ends with the first batch after this time.
            rate: None takes batches as fast as they come; else a stand-in for a GPU that is busy 1/rate seconds for
                each image sleeps that long after each batch (without the GIL, as a thread that waits for a GPU).
        """
        for _ in range(self.adapter.prefetched() + 4):
            next(self.stream)
        images = batches = 0
        busy = 0.0
        machine, cpu = machine_cpu_seconds(), tree_cpu_seconds()
        begin = now = time.perf_counter()
        while now - begin < seconds:
            count = len(next(self.stream)["img"])
            if rate is not None:
                time.sleep(count / rate)
                busy += count / rate
            images += count
            batches += 1
            now = time.perf_counter()
        cpu, machine = tree_cpu_seconds() - cpu, machine_cpu_seconds() - machine
        return {
            "images": images,
            "batches": batches,
            "seconds": now - begin,
            "cpu_seconds": cpu,
            "busy_seconds": busy,
            "other_cores": max(0.0, (machine - cpu) / (now - begin)),
        }


def tree_cpu_seconds() -> float:
    """Return user plus system seconds of this process, its descendants, and those descendants that have ended."""
    root = psutil.Process()
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:  # ended between the listing and here: its parent's children_* fields have its time
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _describe_batch(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the layout of a batch (key → type, dtype, trailing shape) and numbers that must be plausible."""
    layout = {}
    for key, value in batch.items():
        if hasattr(value, "dtype"):
            trailing = list(value.shape[1:]) if key == "img" or value.ndim > 1 else []
            layout[key] = [type(value).__name__, str(value.dtype), trailing]
        else:
            layout[key] = [type(value).__name__, "", []]
    img, boxes = batch["img"], batch["bboxes"]
    n = len(img)
    inside = boxes[:, :2] if boxes.shape[1] == 5 else boxes  # a turned box may be longer than the picture, and turned
    numbers = {
        "images": float(n),
        "pixel_mean": float(img.float().mean()),
        "pixel_std": float(img.float().std()),
        "boxes_per_image": len(boxes) / n,
        "box_area": float((boxes[:, 2] * boxes[:, 3]).mean()) if len(boxes) else 0.0,
        "box_min": float(inside.min()) if len(boxes) else 0.0,
        "box_max": float(inside.max()) if len(boxes) else 0.0,
        "batch_idx_max": float(batch["batch_idx"].max()) if len(boxes) else 0.0,
    }
    return {"layout": layout, "numbers": numbers}


def _answer(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request; an exception becomes an answer, for the parent to raise."""
    try:
        handler: Callable[..., dict[str, Any]] = getattr(session, request.pop("do"))
        return {"ok": True, **handler(**request)}
    except Exception as e:
        return {"ok": False, "error": f"{type(e).__name__}: {e}", "traceback": traceback.format_exc()}


def main(argv: list[str]) -> int:
    """Serve requests until stdin ends or `quit` comes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    session = Session(argv[0], float(argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "quit":
            break
        answers.write(json.dumps(_answer(session, request)) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
