"""How fast are image bytes turned into pixels, and files probed? libjpeg-turbo in a kernel against OpenCV.

Pixels are compared first. Then every contender runs once per round, in shuffled order; printed are the median over the
rounds ± the median absolute deviation, per image.

    python benchmarks/stages/decode.py [--data FOLDER] [--rounds 15]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from fastyolo_data.decode import Decoder, probe_image
from fastyolo_data.kernels import jpeg

DEFAULT = Path(__file__).resolve().parents[3] / "shared/data/coco_ccby_seg"
JPEG_SUFFIXES = (".jpg", ".jpeg")


def generated(folder: Path, n: int = 32) -> Path:
    """Write n noisy 640x480 JPEG files, for machines without the photos."""
    rng = np.random.default_rng(0)
    for i in range(n):
        small = rng.integers(0, 256, (60, 80, 3), np.uint8)
        im = cv2.resize(small, (640, 480), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{i}.jpg"), cv2.add(im, rng.integers(0, 20, im.shape, np.uint8)))
    return folder


def in_threads(decode_all: Callable[[list[np.ndarray]], None], files: list[np.ndarray], threads: int) -> float:
    """Return seconds until `threads` threads have each decoded all files."""
    workers = [threading.Thread(target=decode_all, args=(files,)) for _ in range(threads)]
    start = time.perf_counter()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return time.perf_counter() - start


def kernel_decoder(min_long_side: int | None = None) -> Callable[[list[np.ndarray]], None]:
    """Return a function that decodes files with a Decoder of its own per thread."""
    local = threading.local()
    shared = jpeg.load()

    def run(files: list[np.ndarray]) -> None:
        decoder = local.__dict__.setdefault("decoder", Decoder(shared))
        for data in files:
            decoder.decode(data, "", min_long_side=min_long_side)

    return run


def opencv_decoder(flags: int = cv2.IMREAD_COLOR) -> Callable[[list[np.ndarray]], None]:
    """Return a function that decodes files with cv2.imdecode."""

    def run(files: list[np.ndarray]) -> None:
        for data in files:
            cv2.imdecode(data, flags)

    return run


def check(files: list[np.ndarray]) -> None:
    """Stop unless the kernel gives OpenCV's pixels."""
    decoder = Decoder(jpeg.load())
    for data in files:
        if not np.array_equal(decoder.decode(data, "").im, cv2.imdecode(data, cv2.IMREAD_COLOR)):
            raise SystemExit("pixels differ from OpenCV's")


def contenders(paths: list[Path]) -> dict[str, Callable[[], float]]:
    """Return name -> function giving the seconds per image of one pass."""
    files = [np.fromfile(p, np.uint8) for p in paths]
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (375, 500, 3), np.uint8)
    big = cv2.GaussianBlur(cv2.resize(blocks, (4000, 3000), interpolation=cv2.INTER_CUBIC), (0, 0), 2)
    large = [cv2.imencode(".jpg", big)[1]]
    check(files + large)

    def timed(run: Callable[[list[np.ndarray]], None], data: list[np.ndarray], threads: int) -> Callable[[], float]:
        return lambda: in_threads(run, data, threads) / (len(data) * threads)

    names = [str(p) for p in paths]
    table = {"probe": lambda: in_threads(lambda ps: [probe_image(p) for p in ps], names * 10, 1) / len(names) / 10}
    for threads in (1, 2):
        table[f"{len(files)} photos, OpenCV, {threads} threads"] = timed(opencv_decoder(), files, threads)
        table[f"{len(files)} photos, kernel, {threads} threads"] = timed(kernel_decoder(), files, threads)
    table["12 Mpix, OpenCV"] = timed(opencv_decoder(), large, 1)
    for divisor, flag in ((1, 0), (2, 17), (4, 33), (8, 65)):
        table[f"12 Mpix, kernel 1/{divisor}"] = timed(kernel_decoder(4000 // divisor), large, 1)
        if flag:
            table[f"12 Mpix, OpenCV 1/{divisor}"] = timed(opencv_decoder(flag), large, 1)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT, help="folder with JPEG files, searched recursively")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    if jpeg.load() is None:
        raise SystemExit("no libjpeg-turbo 3 here, nothing to compare (pip install turbojpeg)")
    print(f"library: {Path(jpeg.load().library).name}, OpenCV {cv2.__version__}")
    with tempfile.TemporaryDirectory() as temp:
        folder = args.data if args.data.is_dir() else generated(Path(temp))
        table = contenders([p for p in sorted(folder.rglob("*")) if p.suffix.lower() in JPEG_SUFFIXES])
        times: dict[str, list[float]] = {name: [] for name in table}
        order = list(table)
        for round_ in range(args.rounds + 1):
            random.Random(round_).shuffle(order)
            for name in order:
                seconds = table[name]()
                if round_:  # the first round warms up
                    times[name].append(seconds)
    print(f"{'':32}{'µs per image':>14}{'±':>8}{'images/s':>10}")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        mad = statistics.median(abs(s - median) for s in seconds)
        print(f"{name:32}{median * 1e6:14.1f}{mad * 1e6:8.1f}{1 / median:10.0f}")


if __name__ == "__main__":
    main()
