"""Turn what a user names as data (yaml, dict, folder, list, image) into the DataSpec of one split."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastyolo_data.datatypes import DataSpec
from fastyolo_data.errors import ConfigError
from fastyolo_data.labels.find import IMG_SUFFIXES, is_image_name

__all__ = ["resolve_data"]

_NOT_SPLITS = ("path", "names", "nc", "kpt_shape", "flip_idx", "download", "channels", "yaml_file")
_USUAL_SPLITS = ("train", "val", "validation", "test", "minival")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".ndjson")

DataInput = str | Path | Mapping[str, Any] | Sequence[Any]


def resolve_data(data: DataInput, split: str) -> DataSpec:
    """Describe one split of a data set. Looks at the disk, changes nothing, never downloads.

    Args:
        data: a data.yaml, a mapping with its keys, an image folder, an image file, a .txt list, or a list of the
            last three.
        split: "train", "val" ("validation" is an alias), "test" or any other key of the yaml; unused for bare
            folders and lists.

    Returns:
        The split's sources as absolute, existing paths, and the class names.

    Raises:
        ConfigError: an unusable yaml, an unknown split, or a path that is nowhere to be found.
    """
    if isinstance(data, Mapping):
        beside = Path(str(data["yaml_file"])).parent if data.get("yaml_file") else Path.cwd()
        return _from_mapping(data, split, beside, str(data.get("yaml_file") or "the data dict"))
    if isinstance(data, (str, os.PathLike)):
        path = Path(data).expanduser()
        if path.suffix.lower() in (".yaml", ".yml"):
            return _from_yaml(path, split)
        return _from_paths([path])
    if isinstance(data, Sequence) and data and all(isinstance(d, (str, os.PathLike)) for d in data):
        return _from_paths([Path(d).expanduser() for d in data])
    raise ConfigError(
        f"data={data!r} cannot be used; pass a data.yaml, a dict with its keys, an image folder, an image file, "
        "a .txt list of images, or a non-empty list of those"
    )


def _from_paths(paths: list[Path]) -> DataSpec:
    """Describe bare folders, lists and images; class names are unknown."""
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist (tried {path.absolute()}); {_hint(str(path))}")
        if path.is_file() and path.suffix.lower() != ".txt" and not is_image_name(path.name):
            raise ConfigError(
                f"{path} is neither a data.yaml, a folder, a .txt list nor an image "
                f"({', '.join(sorted(IMG_SUFFIXES))}); {_hint(str(path))}"
            )
    absolute = tuple(p.absolute() for p in paths)
    first = absolute[0]
    root = first if first.is_dir() else first.parent
    parts = root.parts
    if "images" in parts:  # <root>/images/... is the usual layout
        root = Path(*parts[: len(parts) - 1 - parts[::-1].index("images")])
    return DataSpec(absolute, (), root, origin=", ".join(map(str, paths)))


def _hint(text: str) -> str:
    if "://" in text or text.lower().endswith(_ARCHIVES):
        return "downloads and archives are not handled here; download and unpack the data set, then pass its data.yaml"
    return "check the spelling and the working directory"


def _from_yaml(path: Path, split: str) -> DataSpec:
    """Read a data.yaml and describe its split."""
    import yaml

    if not path.is_file():
        raise ConfigError(f"{path} does not exist (tried {path.absolute()}); {_hint(str(path))}")
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as e:
        raise ConfigError(
            f"{path} cannot be read as YAML: {e}; expected UTF-8 text with keys such as train, names"
        ) from e
    if not isinstance(loaded, dict):
        raise ConfigError(
            f"{path} holds {_kind(loaded)}, expected a mapping with keys such as path, train, val and names"
        )
    return _from_mapping(loaded, split, path.absolute().parent, str(path))


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.80}"


def _from_mapping(data: Mapping[str, Any], split: str, beside: Path, origin: str) -> DataSpec:
    """Check the keys of a data.yaml and find the folders of its split."""
    names = _names(data, origin)
    entries = _entries(data, split, origin)
    roots = list(_roots(data.get("path"), beside.absolute(), origin))
    sources: list[Path] = []
    root_used: Path | None = None
    for entry in entries:
        tried: list[Path] = []
        for root, candidate in _candidates(entry, roots):
            if candidate.exists():
                sources.append(candidate)
                root_used = root_used or root
                break
            if candidate not in tried:
                tried.append(candidate)
        else:
            raise ConfigError(_missing(origin, split, entry, tried, data))
    kpt_shape = _kpt_shape(data.get("kpt_shape"), origin)
    flip_idx = _flip_idx(data.get("flip_idx"), kpt_shape, origin)
    return DataSpec(tuple(sources), names, root_used or roots[0], kpt_shape, flip_idx, origin)


def _roots(path: object, beside: Path, origin: str) -> Iterator[Path]:
    """Yield the folders that relative entries may start from, the preferred one first."""
    if path is None or path == "":
        yield beside
        yield Path.cwd()
        return
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"{origin}: path is {_kind(path)}, expected a folder as text; fix or remove the key")
    base = Path(path).expanduser()
    for start in (beside, Path.cwd()):
        yield _tidy(start / base)


def _tidy(path: Path) -> Path:
    """Drop `.` and `..` where that names the same place (it does not behind a symlinked folder)."""
    plain = Path(os.path.normpath(path))
    try:
        same = plain == path or os.path.samefile(plain, path)
    except OSError:
        same = not path.exists()
    return plain if same else path


def _candidates(entry: str, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield (root, path) places where an entry may be; Roboflow's `../train` also without the `../`."""
    entry = os.path.expanduser(entry)
    for root in roots:
        yield root, _tidy(root / entry)
        if entry.startswith("../"):
            yield root, _tidy(root / entry[3:])
        if "\\" in entry and os.sep != "\\":
            yield root, _tidy(root / entry.replace("\\", "/"))


def _missing(origin: str, split: str, entry: str, tried: Sequence[Path], data: Mapping[str, Any]) -> str:
    places = "\n".join(f"  {p}" for p in tried)
    hint = "fix `path` or the entry, or start from another folder"
    if data.get("download"):
        hint += (
            "; its `download:` key is ignored (nothing is downloaded or run from a yaml), so fetch the data yourself"
        )
    return f"{origin}: {split}: {entry} was not found. Tried:\n{places}\nTo repair it: {hint}"


def _entries(data: Mapping[str, Any], split: str, origin: str) -> list[str]:
    """Return the paths listed under a split."""
    key = {"validation": "val"}.get(split, split)
    value = data.get(key)
    if value is None and key == "val":
        value = data.get("validation")
    if value is None or value == [] or value == "" or key in _NOT_SPLITS:
        there = [k for k in _USUAL_SPLITS if data.get(k)]
        state = "is empty" if key in data and key not in _NOT_SPLITS else "is missing"
        raise ConfigError(
            f"{origin}: split {split!r} {state}; it has {', '.join(there) or 'no split at all'}. "
            f"Choose one of those or add the line `{key}: images/{key}`"
        )
    entries = value if isinstance(value, (list, tuple)) else [value]
    for entry in entries:
        if not isinstance(entry, (str, os.PathLike)) or not str(entry).strip():
            raise ConfigError(f"{origin}: {key} holds {_kind(entry)}, expected a path or a list of paths")
    return [str(e).strip() for e in entries]


def _names(data: Mapping[str, Any], origin: str) -> tuple[str, ...]:
    """Return the class names; `class_0`, `class_1`, … where only nc is given."""
    names, nc = data.get("names"), data.get("nc")
    if nc is not None:
        try:
            ok = not isinstance(nc, bool) and float(nc) == int(float(nc)) > 0
        except (TypeError, ValueError, OverflowError):
            ok = False
        if not ok:
            raise ConfigError(f"{origin}: nc is {_kind(nc)}, expected a whole number of classes, at least 1")
        nc = int(float(nc))
    if names is None:
        if nc is None:
            raise ConfigError(
                f"{origin}: key `names` is missing (and `nc` too); add the class names, for example names: [cat, dog]"
            )
        return tuple(f"class_{i}" for i in range(nc))
    if isinstance(names, Mapping):
        names = _names_of_mapping(names, origin)
    if not isinstance(names, (list, tuple)) or not names:
        raise ConfigError(
            f"{origin}: names is {_kind(names)}, expected a list or an index: name mapping with at least one class"
        )
    if nc is not None and nc != len(names):
        raise ConfigError(f"{origin}: nc is {nc} but names has {len(names)} entries; make them agree or remove nc")
    return tuple(str(n) for n in names)


def _names_of_mapping(names: Mapping[Any, Any], origin: str) -> list[Any]:
    try:
        by_index = {int(k): v for k, v in names.items()}
    except (TypeError, ValueError) as e:
        raise ConfigError(f"{origin}: names has a key that is no whole number ({e}); expected 0, 1, 2, …") from e
    expected = set(range(len(names)))
    if set(by_index) != expected:
        odd = sorted(set(by_index) - expected)
        missing = sorted(expected - set(by_index))
        raise ConfigError(
            f"{origin}: names has {len(names)} entries, so its indices must be 0 to {len(names) - 1}; "
            f"found {odd[:5]} and missed {missing[:5]}; number the classes without gaps from 0"
        )
    return [by_index[i] for i in range(len(by_index))]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kpt_shape(value: object, origin: str) -> tuple[int, int] | None:
    if value is None:
        return None
    ok = isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_int, value))
    if not ok or value[0] < 1 or value[1] not in (2, 3):  # type: ignore[index]
        raise ConfigError(
            f"{origin}: kpt_shape is {_kind(value)}, expected [number of keypoints, 2 or 3], for example [17, 3]"
        )
    return int(value[0]), int(value[1])  # type: ignore[index]


def _flip_idx(value: object, kpt_shape: tuple[int, int] | None, origin: str) -> tuple[int, ...]:
    if value is None or value == []:
        return ()
    if not isinstance(value, (list, tuple)) or not all(map(_is_int, value)):
        raise ConfigError(f"{origin}: flip_idx is {_kind(value)}, expected a list of keypoint indices")
    if kpt_shape is not None and sorted(value) != list(range(kpt_shape[0])):
        raise ConfigError(
            f"{origin}: flip_idx is {list(value)!r}, expected each of 0 to {kpt_shape[0] - 1} once "
            f"(kpt_shape says {kpt_shape[0]} keypoints)"
        )
    return tuple(int(i) for i in value)
