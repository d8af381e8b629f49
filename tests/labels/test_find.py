"""Finding images and label paths."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from fastyolo_data.errors import ConfigError
from fastyolo_data.labels.find import IMG_SUFFIXES, find_images, hint_other_normal_form, label_path, label_paths

needs_links = pytest.mark.skipif(os.name == "nt", reason="symlinks need privileges on Windows")


def _touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def _names(root: Path, files: list[str]) -> list[str]:
    return [os.path.relpath(f, root).replace(os.sep, "/") for f in files]


def test_folders_are_walked_and_sorted_hidden_and_foreign_files_left_out(tmp_path: Path) -> None:
    _touch(tmp_path, "b.JPG", "a.png", "sub/deep/c.Webp", "._a.png", ".hid/x.jpg", "t.txt", "Thumbs.db", "png", "d.npy")
    (tmp_path / "folder.jpg").mkdir()
    _touch(tmp_path, "folder.jpg/in.bmp")
    found = find_images([tmp_path], tmp_path)
    assert _names(tmp_path, found.im_files) == ["a.png", "b.JPG", "folder.jpg/in.bmp", "sub/deep/c.Webp"]
    assert found.skipped == {}


def test_every_suffix_counts_in_any_case(tmp_path: Path) -> None:
    _touch(tmp_path, *(f"x.{s}" for s in IMG_SUFFIXES), *(f"y.{s.upper()}" for s in IMG_SUFFIXES))
    assert len(find_images([tmp_path], tmp_path).im_files) == 2 * len(IMG_SUFFIXES) == 28


@needs_links
def test_links_are_followed_but_not_round_in_circles(tmp_path: Path) -> None:
    _touch(tmp_path, "store/a.png", "images/b.png")
    (tmp_path / "images/link").symlink_to("../store")
    (tmp_path / "images/again").symlink_to("../store")
    (tmp_path / "store/back").symlink_to("../images")
    (tmp_path / "images/self").symlink_to("self")
    (tmp_path / "images/gone.png").symlink_to("nowhere.png")
    found = find_images([tmp_path / "images"], tmp_path)
    assert _names(tmp_path, found.im_files) == ["images/again/a.png", "images/b.png", "images/link/a.png"]
    assert _names(tmp_path, list(found.skipped)) == ["images/gone.png"]
    assert "nowhere.png" in next(iter(found.skipped.values()))


def test_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(tmp_path, "lists/here.png", "root/there.png", "cwd/yonder.png", "root/sub/back.png", "abs.png", "up.png")
    monkeypatch.chdir(tmp_path / "cwd")
    lines = [
        "\ufeff./here.png",
        "here.png",
        "there.png",
        " yonder.png ",
        "",
        "sub\\back.png",
        str(tmp_path / "abs.png"),
    ]
    lines += ["../up.png", "./there.png", "missing.png", "notes.doc"]
    (tmp_path / "lists/l.txt").write_bytes("\r\n".join(lines).encode())
    found = find_images([tmp_path / "lists/l.txt"], tmp_path / "root")
    want = [
        "abs.png",
        "cwd/yonder.png",
        "lists/here.png",
        "lists/here.png",
        "root/sub/back.png",
        "root/there.png",
        "up.png",
    ]
    assert _names(tmp_path, found.im_files) == want
    skipped = dict(zip(_names(tmp_path, list(found.skipped)), found.skipped.values(), strict=True))
    assert set(skipped) == {"lists/there.png", "lists/missing.png", "lists/notes.doc"}
    assert "line 10" in skipped["lists/missing.png"]
    for place in ("lists", "root", "cwd"):
        assert str(tmp_path / place / "missing.png") in skipped["lists/missing.png"]
    assert str(tmp_path / "root") not in skipped["lists/there.png"]  # ./ means the list's folder only


@needs_links
def test_dots_behind_a_linked_folder_are_kept(tmp_path: Path) -> None:
    _touch(tmp_path, "far/away/x.png", "far/a.png")
    (tmp_path / "near").mkdir()
    (tmp_path / "near/link").symlink_to("../far/away")
    (tmp_path / "near/l.txt").write_text("./link/../a.png\n")
    found = find_images([tmp_path / "near/l.txt"], tmp_path)
    assert len(found.im_files) == 1
    assert os.path.samefile(found.im_files[0], tmp_path / "far/a.png")


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("/d/images/train/a.jpg", "/d/labels/train/a.txt"),
        ("/d/images/train/images/a.b.JPG", "/d/images/train/labels/a.b.txt"),
        ("/d/my_images/a.png", "/d/my_images/a.txt"),
        ("/images/a.png", "/labels/a.txt"),
        ("/d/images.v1/images/x y.png", "/d/images.v1/labels/x y.txt"),
        ("/d/images/images.png", "/d/labels/images.txt"),
    ],
)
@pytest.mark.skipif(os.sep != "/", reason="paths of this test are POSIX ones")
def test_label_path(image: str, label: str) -> None:
    assert label_path(image) == label
    assert label_path(Path(image)) == label
    assert label_paths([image, "/q/z.png", image]) == [label, "/q/z.txt", label]


@pytest.mark.parametrize(("fraction", "n"), [(1.0, 10), (1, 10), (0.25, 2), (0.35, 4), (0.01, 1), (3, 3), (99, 10)])
def test_fraction_cuts_the_head(tmp_path: Path, fraction: float, n: int) -> None:
    _touch(tmp_path, *(f"{i}.png" for i in range(10)))
    assert _names(tmp_path, find_images([tmp_path], tmp_path, fraction).im_files) == [f"{i}.png" for i in range(n)]


@pytest.mark.parametrize("fraction", [0, -1, 2.5, float("nan"), True, "half"])
def test_bad_fractions(tmp_path: Path, fraction: float) -> None:
    _touch(tmp_path, "a.png")
    with pytest.raises(ConfigError, match="fraction="):
        find_images([tmp_path], tmp_path, fraction)


def test_nothing_found_names_places_and_suffixes(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt")
    with pytest.raises(ConfigError) as e:
        find_images([tmp_path], tmp_path)
    assert str(tmp_path) in str(e.value)
    assert "webp" in str(e.value)


def test_texts_beside_images_are_reported_only_where_ignored(tmp_path: Path) -> None:
    _touch(
        tmp_path, "images/a.png", "images/a.txt", "images/b.png", "images/b.txt", "labels/b.txt", "images/readme.txt"
    )
    _touch(tmp_path, "plain/c.png", "plain/c.txt")
    found = find_images([tmp_path], tmp_path)
    assert len(found.hints) == 1
    assert "1 label files" in found.hints[0]
    assert "a.txt" in found.hints[0]
    assert str(tmp_path / "labels") in found.hints[0]


def test_other_normal_form_is_named(tmp_path: Path) -> None:
    composed = unicodedata.normalize("NFC", "été.txt")
    _touch(tmp_path, unicodedata.normalize("NFD", "été.txt"))
    if (tmp_path / composed).exists():
        pytest.skip("this file system does not tell the normal forms apart")
    hints = hint_other_normal_form([str(tmp_path / composed), str(tmp_path / "ö.txt"), str(tmp_path / "plain.txt")])
    assert len(hints) == 1
    assert composed in hints[0]


@pytest.mark.skipif(os.name == "nt", reason="Windows names are Unicode")
def test_names_that_are_no_utf8_survive(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff.png")
    _touch(tmp_path, name)
    assert find_images([tmp_path], tmp_path).im_files == [str(tmp_path / name)]
