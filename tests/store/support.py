"""Two kinds of image sets for the store tests: plain numbers in files, made into tiles by a rule, and real pictures."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import cv2
import numpy as np

from fastyolo_data import build_loader
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.store import DiskStore, Images, Memory, Recipe, fill_ram, open_stored

BACKENDS = ("ram", "memmap", "lmdb", "lmdb-jpeg")
STORED = BACKENDS[1:]
RULE = {"imgsz": 64, "rounding": "ceil", "area": False, "scaled": False, "opencv": 4}


def picture(data: bytes, h: int, w: int) -> np.ndarray:
    """The tile that the fake decoder makes of a file."""
    seed = int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "big")
    return np.random.default_rng(seed).integers(0, 256, (h, w, 3), np.uint8)


class FakeMaker:
    """Makes tiles from numbers in files; counts, and can be slow."""

    made: list[str] = []  # noqa: RUF012 - shared on purpose, cleared by FakeSet
    lock = threading.Lock()

    def __init__(self, delay: float) -> None:
        self._delay = delay

    def make(self, data, path, hw0, tile_hw):
        with self.lock:
            self.made.append(path)
        if self._delay:
            time.sleep(self._delay)
        if bytes(data[:6]) == b"broken":
            raise ImageDecodeError(f"{path}: broken")
        return picture(data.tobytes(), *tile_hw)


class FakeSet:
    """n files in a folder, and their stores."""

    def __init__(self, root: Path, n: int, delay: float = 0.0, side: int = 48) -> None:
        self.root, self.n, self.delay, self.side = root, n, delay, side
        self.cache = root / "cache"
        (root / "images").mkdir(parents=True, exist_ok=True)
        self.files = [str(root / "images" / f"bild ä {i:04d}.bin") for i in range(n)]
        for i, file in enumerate(self.files):
            if not os.path.exists(file):
                self.write(i, f"picture {i}")

    def write(self, i: int, text: str) -> None:
        Path(self.files[i]).write_text(text * 40)

    def add(self, text: str) -> None:
        self.files.append(str(self.root / "images" / f"bild ä {len(self.files):04d}.bin"))
        self.write(len(self.files) - 1, text)

    def images(self) -> Images:
        rng = np.arange(len(self.files))
        tile_hw = np.stack((self.side + rng % 5, self.side - rng % 7), 1)
        stats = [os.stat(f) if os.path.exists(f) else None for f in self.files]
        size = np.array([s.st_size if s else 0 for s in stats], np.int64)
        mtime = np.array([s.st_mtime_ns if s else 0 for s in stats], np.int64)
        disk = DiskStore(list(self.files), tile_hw * 2, tile_hw, lambda: FakeMaker(self.delay))
        return Images(disk, size, mtime)

    def recipe(self, backend: str) -> Recipe:
        return Recipe(backend.split("-")[0], RULE, "abc", encoded=backend == "lmdb-jpeg")

    def open(self, backend: str, threads: int = 2, **options):
        FakeMaker.made.clear()
        images = self.images()
        if backend == "none":
            return images.disk
        if backend == "ram":
            return fill_ram(images.disk, Memory(lambda: 1 << 34), threads=threads, **options)
        return open_stored(images, self.recipe(backend), [self.cache], threads=threads, **options)

    def made(self) -> list[str]:
        """Files that were decoded since the last open, sorted; reading from a store is not meant to add any."""
        return sorted(FakeMaker.made)

    def check(self, store, only: range | None = None) -> None:
        """Compare every tile with what the file says."""
        reader, images = store.reader(), self.images()
        for i in only or range(len(self.files)):
            h, w = images.disk.tile_hw[i]
            expected = picture(Path(self.files[i]).read_bytes(), h, w)
            assert np.array_equal(reader.tile(i), expected), f"tile {i} is wrong"

    def left(self) -> list[str]:
        """Names in the cache folder that are neither index, data file nor lock."""
        names = [p.name for p in self.cache.iterdir()] if self.cache.exists() else []
        return [x for x in names if not x.endswith((".index", ".lock", ".tiles", ".lmdb"))]

    def data_files(self) -> list[Path]:
        """Data files in the cache folder."""
        return sorted(p for p in self.cache.iterdir() if p.suffix in (".tiles", ".lmdb"))


def write_pictures(root: Path, n: int = 16) -> Path:
    """A small YOLO set of JPEG, PNG, grey and EXIF-rotated files; returns its yaml."""
    from PIL import Image

    rng = np.random.default_rng(3)
    sizes = [(120, 160), (160, 107), (83, 125), (240, 320), (16, 12)]
    for split in ("train", "val"):
        for folder in ("images", "labels"):
            (root / folder / split).mkdir(parents=True)
        for i in range(n):
            h, w = sizes[i % len(sizes)]
            im = cv2.resize(rng.integers(0, 256, (7, 9, 3), np.uint8), (w, h), interpolation=cv2.INTER_CUBIC)
            name = root / "images" / split / f"é{i:03d}"
            if i % 4 == 0:
                cv2.imwrite(f"{name}.png", im)
            elif i % 4 == 1:
                cv2.imwrite(f"{name}.jpg", cv2.cvtColor(im, cv2.COLOR_BGR2GRAY))
            else:
                exif = Image.Exif()
                exif[0x0112] = 1 if i % 4 == 2 else 3 + i % 6
                Image.fromarray(im).save(f"{name}.jpg", exif=exif, quality=90)
            rows = [f"{i % 2} 0.5 0.5 {0.2 + 0.01 * i:.3f} 0.4", "1 0.3 0.4 0.2 0.2"][: i % 3]
            (root / "labels" / split / f"é{i:03d}.txt").write_text("\n".join(rows))
    (root / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [a, b]\n", encoding="utf-8")
    return root / "data.yaml"


def select(backend: str, monkeypatch) -> str:
    """Return the `cache` option of a backend, with the environment set for it."""
    monkeypatch.setenv("FASTYOLO_LMDB_PAYLOAD", "jpeg" if backend == "lmdb-jpeg" else "tiles")
    return backend.split("-")[0]


def digest(data: Path, epochs: int = 1, **options) -> str:
    """Hash of every batch of some epochs."""
    found = hashlib.sha256()
    options = {"imgsz": 96, "batch": 5, "verbose": False, "stride": 32, **options}
    with build_loader(data, **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                for key in ("img", "cls", "bboxes", "batch_idx"):
                    found.update(batch[key].numpy().tobytes())
    return found.hexdigest()
