"""Find the images of a split, and the label file that belongs to an image."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastyolo_data.errors import ConfigError
from fastyolo_data.labels.filestat import stat_files

__all__ = ["IMG_SUFFIXES", "Found", "find_images", "is_image_name", "label_path", "label_paths"]

# The stock list of 8.4.190 and pfm, which YOLOv5 and v9 accept.
IMG_SUFFIXES = frozenset(
    ("avif", "bmp", "dng", "heic", "heif", "jp2", "jpeg", "jpg", "mpo", "pfm", "png", "tif", "tiff", "webp")
)
_IMAGES, _LABELS = f"{os.sep}images{os.sep}", f"{os.sep}labels{os.sep}"


@dataclass
class Found:
    """The images of a split.

    Attributes:
        im_files: absolute paths in sorted order, repeated entries repeated.
        skipped: path -> reason, for entries that lead to no file.
        hints: things a user will want to know, such as label files in the wrong place.
    """

    im_files: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)


def is_image_name(name: str) -> bool:
    """Whether a file name ends in a known image suffix, in any case."""
    return name.rpartition(".")[2].lower() in IMG_SUFFIXES and "." in name


def label_path(im_file: str | os.PathLike[str]) -> str:
    """Return where the label of an image belongs: the last `/images/` becomes `/labels/`, the suffix `.txt`.

    The path is taken as given; links are not resolved.
    """
    path = os.fspath(im_file)
    head, sep, tail = path.rpartition(_IMAGES)
    if sep:
        path = head + _LABELS + tail
    return path.rpartition(".")[0] + ".txt"


def label_paths(im_files: Sequence[str]) -> list[str]:
    """Return label_path of each image; faster, because images of one folder share the work."""
    folders: dict[str, str] = {}
    out = []
    for path in im_files:
        folder, sep, name = path.rpartition(os.sep)
        base = folders.get(folder)
        if base is None:
            base = folders[folder] = label_path(folder + sep + "x.x")[: -len("x.txt")]
        out.append(base + name.rpartition(".")[0] + ".txt")
    return out


def find_images(sources: Sequence[Path], root: Path, fraction: float = 1.0) -> Found:
    """List the images of folders, .txt lists and image files.

    Args:
        sources: absolute existing paths.
        root: second place to look for plain relative entries of a list; the first is the list's folder, the third
            the working directory.
        fraction: share of the sorted list to keep from its head, or a whole number above 1: how many images.

    Raises:
        ConfigError: nothing was found, or a source or the fraction is unusable.
    """
    found = Found()
    for source in sources:
        if source.is_dir():
            _walk(str(source), found, set())
        elif source.suffix.lower() == ".txt":
            _read_list(source, root, found)
        elif source.is_file() and is_image_name(source.name):
            found.im_files.append(str(source))
        else:
            raise ConfigError(f"{source} is no folder, .txt list or image file; it may have been removed meanwhile")
    if not found.im_files:
        where = ", ".join(map(str, sources))
        reasons = "".join(f"\n  {p}: {r}" for p, r in list(found.skipped.items())[:5])
        raise ConfigError(
            f"no images found in {where}; expected files ending in {', '.join(sorted(IMG_SUFFIXES))} "
            f"(hidden files and folders are left out){reasons}"
        )
    found.im_files.sort()
    found.im_files = found.im_files[: _head(len(found.im_files), fraction)]
    return found


def _head(n: int, fraction: float) -> int:
    """Return how many images a fraction keeps, as the stock code counts."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not fraction > 0:
        raise ConfigError(f"fraction={fraction!r}; expected a share above 0 and up to 1, or a whole number of images")
    if fraction > 1:
        if fraction != int(fraction):
            raise ConfigError(f"fraction={fraction!r}; above 1 it must be a whole number of images")
        return min(n, int(fraction))
    return max(1, round(n * fraction))


def _walk(folder: str, found: Found, above: set[tuple[int, int]]) -> None:
    """Collect the images below a folder. Links are followed, except back into a folder that is being walked."""
    try:
        info = os.stat(folder)
        with os.scandir(folder) as it:
            entries = [e for e in it if not e.name.startswith(".")]
    except OSError as e:
        found.skipped[folder] = f"the folder cannot be read: {e.strerror or e}"
        return
    here = (info.st_dev, info.st_ino)
    if here in above:
        return
    above.add(here)
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    images, texts = [], []
    for entry in entries:
        name = entry.name
        if is_image_name(name) and _is_file(entry):
            images.append(name)
        elif name.endswith(".txt"):
            texts.append(name)
        elif _is_dir(entry):
            _walk(prefix + name, found, above)
        elif is_image_name(name) and entry.is_symlink():
            found.skipped[prefix + name] = f"a link to {_link_target(prefix + name)}, which does not exist"
    above.discard(here)
    found.im_files.extend([prefix + name for name in images])
    if images and texts:
        _hint_texts_beside(prefix, images, texts, found)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _link_target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return "a place that cannot be read"


def _hint_texts_beside(prefix: str, images: Iterable[str], texts: Iterable[str], found: Found) -> None:
    """Warn about label files next to images whose labels are looked for elsewhere."""
    there = set(texts)
    for_images = {name.rpartition(".")[0] + ".txt" for name in images} & there
    if not for_images:
        return
    example = min(for_images)
    expected = label_path(prefix + example)
    if expected == prefix + example:
        return
    folder = os.path.dirname(expected)
    unused = sorted(name for name in for_images if not os.path.exists(os.path.join(folder, name)))
    if unused:
        found.hints.append(
            f"{len(unused)} label files beside the images in {prefix} are ignored (for example {unused[0]}): below a "
            f"folder called images, labels are looked for in {folder}; move them there"
        )


def hint_other_normal_form(missing: Sequence[str]) -> list[str]:
    """Warn about label files whose names differ from the expected ones in Unicode normal form only.

    Args:
        missing: expected label files that do not exist.
    """
    hints = []
    listed: dict[str, dict[str, str]] = {}
    for path in missing:
        folder, name = os.path.split(path)
        if name.isascii():
            continue
        if folder not in listed:
            try:
                names = os.listdir(folder)
            except OSError:
                names = []
            listed[folder] = {unicodedata.normalize("NFC", n): n for n in names if not n.isascii()}
        other = listed[folder].get(unicodedata.normalize("NFC", name))
        if other is not None:
            hints.append(
                f"{path}: this label file does not exist, but one whose name looks the same does, written in another "
                f"Unicode normal form ({other!a}); rename it (a copy from macOS does this)"
            )
    return hints


def _read_list(listing: Path, root: Path, found: Found) -> None:
    """Add the images that a .txt list names."""
    try:
        text = listing.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as e:
        raise ConfigError(f"{listing} cannot be read: {e.strerror or e}") from e
    base = str(listing.parent)
    bases = list(dict.fromkeys((base, str(root), os.getcwd())))
    tidy = _Tidier()
    entries: list[tuple[str, int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry:
            continue
        if not is_image_name(entry):
            found.skipped[tidy(os.path.join(base, entry))] = f"line {number} of {listing} names no image file"
        else:
            entries.append((entry, number, tidy(os.path.join(base, os.path.expanduser(entry)))))
    stats = stat_files([e[2] for e in entries])
    for (entry, number, path), size in zip(entries, stats.size.tolist(), strict=True):
        if size >= 0:
            found.im_files.append(path)
            continue
        tried = [path, *_other_places(entry, bases, tidy)]
        match = next((p for p in tried[1:] if os.path.isfile(p)), None)
        if match is not None:
            found.im_files.append(match)
        else:
            found.skipped[path] = f"line {number} of {listing}: no such file; tried {', '.join(dict.fromkeys(tried))}"


def _other_places(entry: str, bases: Sequence[str], tidy: _Tidier) -> list[str]:
    """Return where else an entry may be: below root and the working directory, or with slashes for backslashes."""
    spellings = [entry]
    if "\\" in entry and os.sep != "\\":
        spellings.append(entry.replace("\\", "/"))
    places = []
    for spelling in spellings:
        fixed = spelling.startswith("./") or os.path.isabs(spelling)
        places += [tidy(os.path.join(b, spelling)) for b in (bases[:1] if fixed else bases)]
    return places


class _Tidier:
    """Shortens `a/./b` and `a/../b`, unless a link makes the short form another place. Remembers folders."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        folder, name = os.path.split(path)
        short = self._folders.get(folder)
        if short is None:
            short = os.path.normpath(folder)
            try:
                if short != folder and not os.path.samefile(short, folder):
                    short = folder
            except OSError:
                pass
            self._folders[folder] = short
        return os.path.join(short, name)
