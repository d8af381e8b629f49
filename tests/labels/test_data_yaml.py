"""data.yaml in all its forms, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fastyolo_data.errors import ConfigError
from fastyolo_data.labels import resolve_data


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("ds/images/train", "ds/images/val", "ds/cfg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ds/images/train/a.png").write_bytes(b"")
    (tmp_path / "ds/list.txt").write_text("./images/train/a.png\n")
    return tmp_path / "ds"


def _write(root: Path, text: str | dict[str, Any], name: str = "data.yaml") -> Path:
    path = root / name
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("train", "sources"),
    [
        ("images/train", ["images/train"]),
        ("./images/train/", ["images/train"]),
        (["images/train", "images/val"], ["images/train", "images/val"]),
        ("list.txt", ["list.txt"]),
        ("images/train/a.png", ["images/train/a.png"]),
        ("../images/train", ["images/train"]),  # as Roboflow writes it
        ("images\\train", ["images/train"]),
    ],
)
def test_entries(root: Path, train: Any, sources: list[str]) -> None:
    spec = resolve_data(_write(root, {"train": train, "names": ["x"]}), "train")
    assert list(spec.sources) == [root / s for s in sources]
    assert spec.root == root
    assert spec.names == ("x",)


@pytest.mark.parametrize("path", [None, ".", "../ds", "{root}"])
def test_path_is_looked_up_beside_the_yaml(root: Path, path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent.parent)
    data = {"train": "images/train", "nc": 2}
    if path:
        data["path"] = path.format(root=root)
    spec = resolve_data(str(_write(root, data)), "train")
    assert spec.sources == (root / "images/train",)
    assert spec.names == ("class_0", "class_1")


def test_path_is_then_looked_up_from_the_working_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    spec = resolve_data(_write(root, {"path": "ds", "train": "images/train", "names": ["x"]}, "cfg/d.yaml"), "train")
    assert spec.sources == (root / "images/train",)
    assert spec.root == root


def test_a_dict_and_its_yaml_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"train": "images/train", "names": {1: "b", 0: "a"}, "yaml_file": str(root / "data.yaml")}
    assert resolve_data(data, "train").names == ("a", "b")
    monkeypatch.chdir(root)
    del data["yaml_file"]
    assert resolve_data(data, "train").sources == (root / "images/train",)


def test_validation_is_val(root: Path) -> None:
    path = _write(root, {"train": "images/train", "validation": "images/val", "names": ["x"]})
    assert resolve_data(path, "val").sources == resolve_data(path, "validation").sources == (root / "images/val",)


def test_bare_inputs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    for data in ("images/train", "list.txt", "images/train/a.png", root / "images/train", ["list.txt", "images/val"]):
        spec = resolve_data(data, "train")
        assert all(s.is_absolute() and s.exists() for s in spec.sources)
        assert spec.names == ()
        assert spec.root == root


def test_bom_keypoints_and_text_names(root: Path) -> None:
    text = "\ufefftrain: images/train\nnames: {'0': yes, '1': 12}\nkpt_shape: [3, 2]\nflip_idx: [1, 0, 2]\nnc: 2.0\n"
    spec = resolve_data(_write(root, text), "train")
    assert (spec.kpt_shape, spec.flip_idx, spec.names) == ((3, 2), (1, 0, 2), ("True", "12"))


BASE = {"train": "images/train", "names": ["x", "y"]}


@pytest.mark.parametrize(
    ("data", "split", "words"),
    [
        (BASE, "test", ["'test'", "missing", "train", "test: images/test"]),
        ({**BASE, "val": None}, "val", ["'val'", "empty"]),
        (BASE, "names", ["'names'", "missing"]),
        ({"train": "images/train"}, "train", ["names", "missing", "nc"]),
        ({**BASE, "nc": 3}, "train", ["nc is 3", "2 entries"]),
        ({**BASE, "nc": "many"}, "train", ["nc", "many"]),
        ({**BASE, "nc": True}, "train", ["nc", "True"]),
        ({**BASE, "names": {0: "a", 2: "b"}}, "train", ["0 to 1", "[2]", "[1]"]),
        ({**BASE, "names": {"a": 0}}, "train", ["whole number"]),
        ({**BASE, "names": []}, "train", ["names", "at least one"]),
        ({**BASE, "names": "cat"}, "train", ["names", "cat", "list"]),
        ({**BASE, "train": "images/nowhere"}, "train", ["images/nowhere", "Tried", "ds/images/nowhere"]),
        ({**BASE, "train": "gone", "download": "https://x/y.zip"}, "train", ["download", "ignored"]),
        ({**BASE, "train": 5}, "train", ["train", "5"]),
        ({**BASE, "train": [None]}, "train", ["train", "nothing"]),
        ({**BASE, "path": 3}, "train", ["path", "3"]),
        ({**BASE, "kpt_shape": [17]}, "train", ["kpt_shape", "[17, 3]"]),
        ({**BASE, "kpt_shape": [17, 4]}, "train", ["kpt_shape"]),
        ({**BASE, "kpt_shape": [2, 3], "flip_idx": [0, 0]}, "train", ["flip_idx", "0 to 1"]),
        ({**BASE, "flip_idx": "01"}, "train", ["flip_idx"]),
        ("train: [a\n", "train", ["YAML", "data.yaml"]),
        ("", "train", ["nothing", "mapping"]),
        ("- a\n- b\n", "train", ["list", "mapping"]),
    ],
)
def test_errors_say_what_to_do(root: Path, data: Any, split: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as e:
        resolve_data(_write(root, data), split)
    for word in ["data.yaml", *words]:
        assert word in str(e.value)


def test_every_tried_place_is_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    with pytest.raises(ConfigError) as e:
        resolve_data(_write(root, {**BASE, "path": "data", "train": "../t"}), "train")
    for place in (root / "t", root / "data/t", root.parent / "t", root.parent / "data/t"):
        assert f"  {place}\n" in str(e.value)


@pytest.mark.parametrize(
    "data", ["nowhere", "no.yaml", "https://x/y.zip", "setup.cfg", [], None, 5, ["nowhere"], [None]]
)
def test_unusable_inputs(data: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    (root / "setup.cfg").write_text("")
    with pytest.raises(ConfigError):
        resolve_data(data, "train")


def test_a_yaml_cannot_run_code(root: Path) -> None:
    with pytest.raises(ConfigError, match="YAML"):
        resolve_data(_write(root, f"train: !!python/object/apply:os.mkdir ['{root}/pwned']\nnames: [x]\n"), "train")
    assert not (root / "pwned").exists()
