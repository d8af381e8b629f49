"""The data a bench run works on, and the private copy of it that every contender gets.

Loaders write label caches, decoded copies and repaired images beside the data, so none of them sees the user's folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastyolo_data.cli.bench.demo import repeat_dataset, write_yaml
from fastyolo_data.errors import ConfigError
from fastyolo_data.labels.data_yaml import resolve_data
from fastyolo_data.labels.find import find_images, label_paths

__all__ = ["Source", "private_copy", "read_source"]


@dataclass(frozen=True)
class Source:
    """The images to load.

    Attributes:
        images, labels: files, position by position; a label that doesn't exist makes its image a background.
        names: class names.
        found: number of images there were before the limit.
        origin: the data as the user named it.
        pose: kpt_shape and flip_idx of the yaml, as far as it has them.
    """

    images: tuple[Path, ...]
    labels: tuple[Path, ...]
    names: tuple[str, ...]
    found: int
    origin: str
    pose: dict[str, list[int]] = field(default_factory=dict)

    def total_bytes(self) -> int:
        """Return the size of the image files."""
        return sum(p.stat().st_size for p in self.images)


def read_source(data: str, splits: Sequence[str], limit: int) -> Source:
    """Find the images of some splits.

    Args:
        data: data.yaml, image folder or .txt list.
        splits: splits of the yaml whose images are taken together.
        limit: at most this many images, evenly spread over the list.

    Raises:
        ConfigError: no such data, split or images.
    """
    files: list[str] = []
    names: tuple[str, ...] = ()
    pose: dict[str, list[int]] = {}
    for split in splits:
        spec = resolve_data(data, split)
        files += find_images(spec.sources, spec.root).im_files
        names = names or spec.names
        pose |= {k: list(v) for k, v in (("kpt_shape", spec.kpt_shape), ("flip_idx", spec.flip_idx)) if v}
    found = len(files)
    if found > limit:
        files = [files[i * found // limit] for i in range(limit)]
    labels = tuple(Path(p) for p in label_paths(files))
    return Source(tuple(map(Path, files)), labels, names or _numbered_names(labels), found, data, pose)


def private_copy(source: Source, folder: Path, times: int) -> str:
    """Copy the images and labels below `folder`, each `times` times, as one train split; return the data.yaml.

    Raises:
        ConfigError: the disk has not enough room.
    """
    folder.mkdir(parents=True, exist_ok=True)
    need, free = source.total_bytes(), shutil.disk_usage(folder).free
    if need * 1.1 > free:
        raise ConfigError(
            f"a copy of the images takes {need / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB left; "
            f"lower --images or point the TMPDIR variable to a larger disk"
        )
    repeat_dataset(source.images, source.labels, folder, times)
    return os.fspath(write_yaml(folder, "images", "images", source.names, **source.pose))


def _numbered_names(labels: Sequence[Path]) -> tuple[str, ...]:
    """Return a name for each class that occurs in the label files, for data that comes without names."""
    highest = 0
    for path in labels:
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                first = line.split(maxsplit=1)[:1]
                if first and first[0].replace(".", "", 1).isdigit():
                    highest = max(highest, int(float(first[0])))
    return tuple(f"class{i}" for i in range(highest + 1))
