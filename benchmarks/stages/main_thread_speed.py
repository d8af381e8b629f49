"""How much pure-Python speed does the main thread keep while the loader's worker threads load?

Our workers are threads, so whatever they do in Python (instead of in kernels that release the GIL) stops the thread
that trains. This measures it: a counting loop, the worst case of a thread that wants the GIL all the time, runs in the
main thread

* loader: beside the loader with W workers, while a second thread takes batches as fast as they come;
* busy: beside W threads that compute all the time and never hold the GIL (PBKDF2 in OpenSSL);
* equal: beside W such threads that use just as much processor time as the loader's threads did in its last pass.

An idle machine is no fair yardstick: on few cores the main thread must share the processors with any loader, threads
or processes; hence "busy", the ratio that --min looks at. But threads that wait for the GIL (up to 5 ms each time,
beside a thread that never lets go of it) leave their core to the main thread, so a loader that needs the GIL often
looks better against "busy" than it is. "equal" takes that flattery away: what is left is what the hand-overs of the GIL
cost. And how much slower the loader gets is printed: its images per second beside the counting loop, and while the main
thread sleeps. A thread that calls PyTorch lets go of the GIL at every operation, so training is
nowhere near this worst case.

Who takes the batches? If nobody did, the prefetch queue would fill in a moment and the workers would sleep. If the main
thread did, it would wait for batches instead of counting. So a thread does, with one `next` per batch and nothing else:
its Python time (some microseconds per batch) and the wake-ups count against the loader, as in training, where
the main thread itself would spend them.

Passes are interleaved (ABC CBA ABC ...). Each loader pass is divided by the pass of the other kind from the same round;
the results are the medians of these ratios. Many short passes tell more than few long ones when the machine drifts.

    python benchmarks/stages/main_thread_speed.py --min 0.9
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastyolo_data import build_loader
from fastyolo_data.cli.bench.dataset import private_copy, read_source
from fastyolo_data.cli.bench.demo import DemoSpec, make_demo
from fastyolo_data.cli.bench.machine import machine_cpu_seconds
from fastyolo_data.cli.bench.stats import interleave, median_mad

STEP = 1000  # counts between two looks at the clock
HASH_ROUNDS = 40_000  # about 20 ms without the GIL


@dataclass(frozen=True)
class Pass:
    """One timed pass.

    Attributes:
        speed: counts per second of the main thread.
        cores: processor seconds per second used by all other threads of the process.
        images: images delivered per second; 0 without the loader.
        strangers: cores used by other programs.
    """

    speed: float
    cores: float
    images: float
    strangers: float


class Drain(threading.Thread):
    """Takes batches from the loader, epoch after epoch, while `go` is set."""

    def __init__(self, loader: object, batch: int) -> None:
        super().__init__(name="drain", daemon=True)
        self.loader = loader
        self.batch = batch
        self.go = threading.Event()
        self.images = 0
        self.error: BaseException | None = None
        self.stopped = False

    def run(self) -> None:
        """Take batches until `stop`; keeps an exception for the main thread."""
        try:
            while not self.stopped:
                for _ in self.loader:  # type: ignore[attr-defined]
                    self.images += self.batch
                    self.go.wait()
                    if self.stopped:
                        return
        except BaseException as e:
            self.error = e

    def stop(self) -> None:
        """End the thread."""
        self.stopped = True
        self.go.set()
        self.join(timeout=60)


def count(seconds: float) -> float:
    """Count in pure Python for `seconds`; return counts per second."""
    n = 0
    begin = now = time.perf_counter()
    while now - begin < seconds:
        for _ in range(STEP):
            n += 1
        now = time.perf_counter()
    return n / (now - begin)


def timed(seconds: float, drain: Drain | None) -> Pass:
    """Count for `seconds` beside whatever runs, and note what the other threads used and delivered."""
    images = drain.images if drain else 0
    machine, own, main = machine_cpu_seconds(), time.process_time(), time.thread_time()
    begin = time.perf_counter()
    speed = count(seconds)
    wall = time.perf_counter() - begin
    machine, own, main = machine_cpu_seconds() - machine, time.process_time() - own, time.thread_time() - main
    loaded = (drain.images - images) / wall if drain else 0.0
    return Pass(speed, (own - main) / wall, loaded, max(0.0, (machine - own) / wall))


def settle(limit: float = 10.0) -> None:
    """Wait until the process uses hardly any processor time (the prefetch queue is full), at most `limit` seconds."""
    end = time.perf_counter() + limit
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(0.2)
        if time.process_time() - used < 0.02:
            return


@contextlib.contextmanager
def busy_threads(number: int, cores: float) -> Iterator[None]:
    """Keep `number` threads computing without the GIL; together they use at most `cores` cores."""
    stop = threading.Event()

    def work() -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        while not stop.is_set():
            hashlib.pbkdf2_hmac("sha256", b"benchmark", b"salt", HASH_ROUNDS)
            ahead = (time.thread_time() - cpu) * number / cores - (time.perf_counter() - wall)
            if ahead > 0:
                stop.wait(ahead)

    threads = [threading.Thread(target=work, name=f"busy-{i}", daemon=True) for i in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=30)


def measure(drain: Drain, workers: int, passes: int, seconds: float) -> dict[str, list[Pass]]:
    """Return the passes of the three kinds, made in turns."""
    found: dict[str, list[Pass]] = {"loader": [], "busy": [], "equal": []}
    cores = float(workers)
    for kind in interleave(list(found), passes):
        if kind == "loader":
            drain.go.set()
            time.sleep(0.5)  # past the batches that lay ready
            found[kind].append(timed(seconds, drain))
            cores = max(0.01, found[kind][-1].cores)
            drain.go.clear()
            settle()
        else:
            with busy_threads(workers, workers if kind == "busy" else cores):
                time.sleep(0.2)
                found[kind].append(timed(seconds, None))
        if drain.error is not None:
            raise drain.error
    return found


def undisturbed(drain: Drain, seconds: float) -> float:
    """Return the images per second that the loader delivers while the main thread sleeps."""
    drain.go.set()
    time.sleep(0.5)
    images, begin = drain.images, time.perf_counter()
    time.sleep(seconds)
    rate = (drain.images - images) / (time.perf_counter() - begin)
    drain.go.clear()
    settle()
    return rate


def report(found: dict[str, list[Pass]], alone: float, free: float) -> float:
    """Print the medians; return the ratio of the loader to busy threads."""
    print(f"counting alone                     {alone / 1e6:7.2f} M/s")
    for kind, label in (("busy", "beside busy GIL-free threads"), ("equal", "beside an equal GIL-free load")):
        _line(label, found[kind], "")
    images = median_mad([p.images for p in found["loader"]])[0]
    _line("beside the loader", found["loader"], f", {images:.0f} img/s loaded ({free:.0f} if the main thread sleeps)")
    medians = {}
    for kind in ("busy", "equal"):
        ratios = [a.speed / b.speed for a, b in zip(found["loader"], found[kind], strict=True)]
        medians[kind], spread = median_mad(ratios)
        print(f"loader / {kind:<5} {medians[kind]:7.1%} ± {spread:.1%} (median of {len(ratios)} rounds)")
    strangers = median_mad([p.strangers for passes in found.values() for p in passes])[0]
    if strangers > 0.15:
        print(f"Beware: other programs used {strangers:.1f} cores meanwhile; the ratios are not reliable.")
    return medians["busy"]


def _line(label: str, passes: list[Pass], more: str) -> None:
    speed, mad = median_mad([p.speed for p in passes])
    cores = median_mad([p.cores for p in passes])[0]
    print(f"{label:<34} {speed / 1e6:7.2f} M/s ± {mad / 1e6:.2f}, others used {cores:.2f} cores{more}")


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help="data.yaml, folder or list; without it a demo set is generated")
    parser.add_argument("--split", default="train", help="split of the yaml (default: train)")
    parser.add_argument("--imgsz", type=int, default=640)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", default="none")
    parser.add_argument("--passes", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--min", type=float, default=0.0, help="exit with 1 when loader / busy is below this")
    return parser.parse_args()


def main() -> int:
    """Measure and print; return 1 when the ratio is below --min."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="fastyolo-main-thread-", ignore_cleanup_errors=True) as temp:
        data = args.data or str(make_demo(Path(temp), DemoSpec(train=128, val=0)))
        copy = private_copy(read_source(data, [args.split], 1024), Path(temp) / "copy", 1)
        options = {"imgsz": args.imgsz, "batch": args.batch, "workers": args.workers, "cache": args.cache}
        with build_loader(copy, verbose=False, **options) as loader:
            for _ in loader:  # one epoch: compiles, fills the caches
                pass
            settle()
            alone = count(args.seconds)
            drain = Drain(loader, args.batch)
            drain.start()
            settle()
            free = undisturbed(drain, args.seconds)
            found = measure(drain, args.workers, args.passes, args.seconds)
            drain.stop()
    ratio = report(found, alone, free)
    if ratio < args.min:
        print(f"{ratio:.1%} is below the required {args.min:.0%}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
