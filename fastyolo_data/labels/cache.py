"""The label cache: one sealed file of plain arrays per image list and task, checked file by file when it is used.

Files that could not be used are not stored, so they get another chance at every start.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import DataSpec, PackedStrings
from fastyolo_data.labels.columns import Columns
from fastyolo_data.labels.filestat import FileStats
from fastyolo_data.labels.rows import LabelRules
from fastyolo_data.sealed import read_sealed, write_sealed

__all__ = ["ScanRecords", "cache_folders", "cache_name", "read_cache", "write_cache"]

_LOG = logging.getLogger("fastyolo_data")
_MAGIC = b"FASTYOLO-LABELS\n"
_VERSION = 1  # raise it whenever parsing, or what the probe accepts, gives other results
_FIELDS = {
    "path_blob": "|u1", "path_offsets": "<i8", "hw": "<i4",
    "im_size": "<i8", "im_mtime": "<i8", "im_ctime": "<i8", "lb_size": "<i8", "lb_mtime": "<i8", "lb_ctime": "<i8",
    "counts": "<i4", "cls": "<f4", "xywhn": "<f4", "npoints": "<i4", "points": "<f4", "keypoints": "<f4",
}  # fmt: skip


@dataclass
class ScanRecords:
    """What a scan learned about n usable images.

    Attributes:
        paths: image files, in sorted order, without repeats.
        hw: (n, 2) int32.
        images, labels: file stats at the time of the scan; a label of size -1 did not exist.
        columns: their labels.
        notes: position -> remark about the label file.
    """

    paths: PackedStrings
    hw: npt.NDArray[np.int32]
    images: FileStats
    labels: FileStats
    columns: Columns
    notes: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)


def cache_name(spec: DataSpec, rules: LabelRules, fraction: float = 1.0) -> str:
    """Return the cache file's name: another one for each list, fraction, task, number of classes and kpt_shape."""
    key = [_VERSION, [str(s) for s in spec.sources], str(spec.root), rules.task, rules.nc, rules.kpt_shape, fraction]
    digest = hashlib.blake2b(json.dumps(key).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return f"labels-{rules.task}-{digest}.fastyolo"


def cache_folders(spec: DataSpec, cache_dir: Path | None, kind: str = "labels") -> list[Path]:
    """Return the folders a cache may live in, the preferred one first; never one that holds images.

    These are cache_dir alone where given; else `.fastyolo` in the data set's root, then the folder `kind` in
    FASTYOLO_CACHE_DIR or the user's cache folder.
    """
    if cache_dir is not None:
        return [Path(cache_dir).expanduser()]
    folders = []
    if not any(spec.root == s or s in spec.root.parents for s in spec.sources):
        folders.append(spec.root / ".fastyolo")
    own = os.environ.get("FASTYOLO_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folders.append(Path(own or os.path.join(base, "fastyolo_data")).expanduser() / kind)
    return folders


def read_cache(folders: Sequence[Path], name: str) -> ScanRecords | None:
    """Return the newest readable cache, or None. A damaged or foreign file is reported and left alone."""
    dated = []
    for folder in folders:
        try:
            dated.append((os.stat(folder / name).st_mtime_ns, folder / name))
        except OSError:
            continue
    for _, path in sorted(dated, reverse=True):
        try:
            return _decode(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            _LOG.warning("label cache %s cannot be used (%s); it is built again", path, e)
    return None


def write_cache(folders: Sequence[Path], name: str, records: ScanRecords) -> Path | None:
    """Write the cache to the first folder that takes it, atomically; None (and a warning) when none does."""
    errors = []
    arrays = _arrays(records)
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_sealed(folder / name, _MAGIC, _VERSION, {"notes": records.notes}, arrays)
            return folder / name
        except OSError as e:
            errors.append(f"{folder}: {e.strerror or e}")
    _LOG.warning("no label cache was written, the next start scans again (%s); pass cache_dir", "; ".join(errors))
    return None


def _arrays(records: ScanRecords) -> dict[str, npt.NDArray]:
    c, im, lb = records.columns, records.images, records.labels
    found = (
        records.paths.blob, records.paths.offsets, records.hw,
        im.size, im.mtime_ns, im.ctime_ns, lb.size, lb.mtime_ns, lb.ctime_ns,
        c.counts, c.cls, c.xywhn, c.npoints, c.points, c.keypoints,
    )  # fmt: skip
    return {k: np.ascontiguousarray(a, dtype) for (k, dtype), a in zip(_FIELDS.items(), found, strict=True)}


def _decode(data: bytes) -> ScanRecords:
    """Return the records of a file's content; the arrays are read-only views of it.

    Raises:
        ValueError (or KeyError, TypeError): the content is not a complete cache of this version.
    """
    header, a = read_sealed(data, _MAGIC, _VERSION, _FIELDS)
    columns = Columns(a["counts"], a["cls"], a["xywhn"], a["npoints"], a["points"], a["keypoints"])
    records = ScanRecords(
        PackedStrings(a["path_blob"], a["path_offsets"]),
        a["hw"],
        FileStats(a["im_size"], a["im_mtime"], a["im_ctime"]),
        FileStats(a["lb_size"], a["lb_mtime"], a["lb_ctime"]),
        columns,
        {int(k): str(v) for k, v in header["notes"].items()},
    )
    _check_sizes(records)
    return records


def _check_sizes(r: ScanRecords) -> None:
    n, m = len(r.paths), len(r.columns.cls)
    per_file = (r.hw, r.images.size, r.images.mtime_ns, r.images.ctime_ns, r.labels.size, r.labels.mtime_ns,
                r.labels.ctime_ns, r.columns.counts)  # fmt: skip
    fits = (
        all(len(a) == n for a in per_file)
        and len(r.columns.xywhn) == len(r.columns.npoints) == m == r.columns.counts.sum()
        and len(r.columns.keypoints) in (0, m)
        and r.columns.npoints.sum() == len(r.columns.points)
        and r.paths.offsets[-1] == len(r.paths.blob)
        and all(0 <= k < n for k in r.notes)
    )
    if not fits:
        raise ValueError("its arrays do not fit together")
