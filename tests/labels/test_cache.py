"""The label cache: it saves every read it can, and it never lies."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastyolo_data.datatypes import DataSpec
from fastyolo_data.labels import load_labels, resolve_data
from fastyolo_data.labels import scan as scan_module
from fastyolo_data.labels.filestat import FileStats, stat_files
from tests.labels.support import assert_same, names_of

ROW = "0 0.5 0.5 0.25 0.25\n"
AGE = 0.05  # seconds after which a written file counts as settled, see scan._with_doubts


def _cache_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "ds/.fastyolo").iterdir()
    return path


def test_second_start_reads_nothing_and_gives_the_same(make: Any, load: Any, probe: Any, tmp_path: Path) -> None:
    make("a", ROW)
    make("b", "1 0 0 1 0 1 1\n")
    make("c")
    time.sleep(AGE)
    first = load(task="detect")
    assert probe.names() == ["a.png", "b.png", "c.png"]
    before = _cache_file(tmp_path).stat().st_mtime_ns
    assert_same(first, load())
    assert probe.names() == []
    assert _cache_file(tmp_path).stat().st_mtime_ns == before
    assert_same(first, load(rescan=True))
    assert probe.names() == ["a.png", "b.png", "c.png"]


def test_only_what_changed_is_read_again(make: Any, load: Any, probe: Any, tmp_path: Path) -> None:
    for name in "abcdefg":
        make(name, ROW)
    make("bad", "x y")
    time.sleep(AGE)
    load()
    probe.names()
    labels, images = tmp_path / "ds/labels/train", tmp_path / "ds/images/train"
    make("new", "1 0.5 0.5 0.1 0.1\n")
    (labels / "a.txt").write_text("2" + ROW[1:])
    (labels / "b.txt").unlink()
    (images / "c.png").unlink()
    shutil.copy2(images / "d.png", tmp_path / "d")
    (tmp_path / "d").replace(images / "d.png")  # equal size and mtime, another file
    table = load()
    assert probe.names() == ["a.png", "b.png", "bad.png", "d.png", "new.png"]
    assert names_of(table) == ["a.png", "b.png", "d.png", "e.png", "f.png", "g.png", "new.png"]
    assert table.cls.tolist() == [2, 0, 0, 0, 0, 1]
    assert table.box_offsets.tolist() == [0, 1, 1, 2, 3, 4, 5, 6]
    time.sleep(AGE)
    load()
    probe.names()
    assert_same(table, load())
    assert probe.names() == ["bad.png"]  # what could not be used gets another chance at every start


def test_swapped_labels_of_equal_size_are_noticed(make: Any, load: Any, tmp_path: Path) -> None:
    make("a", "0" + ROW[1:])
    make("b", "1" + ROW[1:])
    labels = tmp_path / "ds/labels/train"
    for p in labels.iterdir():
        os.utime(p, (1e9, 1e9))
    time.sleep(AGE)
    assert load().cls.tolist() == [0, 1]
    time.sleep(AGE)
    (labels / "a.txt").rename(labels / "t")
    (labels / "b.txt").rename(labels / "a.txt")
    (labels / "t").rename(labels / "b.txt")
    assert load().cls.tolist() == [1, 0]


def test_an_edit_within_one_clock_tick_is_noticed(make: Any, load: Any, tmp_path: Path) -> None:
    for i in range(30):
        make("a", f"{i % 3}" + ROW[1:])
        assert load().cls.tolist() == [i % 3]


@pytest.mark.parametrize("damage", ["empty", "junk", "half", "header", "longer", "flip", "version", "pickle"])
def test_a_damaged_cache_is_built_again(
    damage: str, make: Any, load: Any, probe: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(20):
        make(f"{i:02}", ROW)
    time.sleep(AGE)
    first = load()
    path = _cache_file(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "version":
        data[16] ^= 0xFF
    else:
        data = {
            "empty": b"",
            "junk": b"\x80\x04junk" * 99,
            "half": data[: len(data) // 2],
            "header": data[:20],
            "longer": data + b"\0",
            "pickle": b"\x93NUMPY" + data,
        }[damage]
    path.write_bytes(data)
    probe.names()
    assert_same(first, load())
    assert len(probe.names()) == 20
    assert str(path) in caplog.text
    assert_same(first, load())
    assert probe.names() == []


def test_every_flipped_byte_of_a_cache_is_noticed(make: Any, load: Any, tmp_path: Path, probe: Any) -> None:
    make("a", ROW)
    time.sleep(AGE)
    first = load()
    path = _cache_file(tmp_path)
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        probe.names()
        assert_same(first, load())
        assert probe.names() == ["a.png"], f"byte {at}"


def test_one_cache_per_list_task_and_class_count(make: Any, load: Any, tmp_path: Path, probe: Any) -> None:
    make("a", "0 0 0 1 0 1 1\n")
    make("b", "2 0 0 1 0 1 1\n")
    time.sleep(AGE)
    load()
    load(task="segment")
    assert names_of(load(names="ab")) == ["a.png"]
    (tmp_path / "ds/l.txt").write_text("./images/train/b.png\n")
    listed = load_labels(resolve_data(tmp_path / "ds/l.txt", "train"), probe=probe, verbose=False)
    assert names_of(listed) == ["b.png"]
    assert len(list((tmp_path / "ds/.fastyolo").iterdir())) == 4
    probe.names()
    assert load().cls.tolist() == [0, 2]
    assert probe.names() == []


def test_a_fraction_neither_spoils_nor_shrinks_the_cache(make: Any, load: Any, probe: Any) -> None:
    make("bad", "x")
    for i in range(10):
        make(f"{i}", ROW)
    time.sleep(AGE)
    assert len(load()) == 10
    assert len(load(fraction=0.5)) == 6  # 11 files; the bad one is the last
    probe.names()
    assert len(load(fraction=0.5)) == 6
    assert probe.names() == []
    assert len(load()) == 10
    assert probe.names() == ["bad.png"]


def test_the_cache_folder(make: Any, load: Any, tmp_path: Path, user_cache: Path, probe: Any, monkeypatch: Any) -> None:
    make("a", ROW)
    load(cache_dir=tmp_path / "mine/deep")
    assert len(list((tmp_path / "mine/deep").iterdir())) == 1
    assert not (tmp_path / "ds/.fastyolo").exists()
    (tmp_path / "ds/.fastyolo").write_text("in the way: stands for a folder that cannot be written")
    time.sleep(AGE)
    load()
    assert len(list(user_cache.iterdir())) == 1
    probe.names()
    load()
    assert probe.names() == []
    monkeypatch.setenv("FASTYOLO_CACHE_DIR", str(tmp_path / "env"))
    load()
    assert len(list((tmp_path / "env/labels").iterdir())) == 1


def test_no_cache_among_images(make: Any, tmp_path: Path, user_cache: Path, probe: Any) -> None:
    im = make("a", ROW)
    folder = tmp_path / "plain"
    folder.mkdir()
    shutil.copy(im, folder)
    load_labels(resolve_data(folder, "train"), probe=probe, verbose=False)
    assert [p.name for p in folder.iterdir()] == ["a.png"]
    assert len(list(user_cache.iterdir())) == 1


def test_no_cache_anywhere_is_a_warning(
    make: Any, load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make("a", ROW)
    (tmp_path / "file").write_text("")
    assert len(load(cache_dir=tmp_path / "file/x")) == 1
    assert "cache_dir" in caplog.text


def _load_in_process(root: str, go: Any, answers: Any) -> None:
    go.wait()
    spec = DataSpec((Path(root) / "images/train",), ("a",), Path(root))
    table = load_labels(spec, probe=lambda p: (20, 20), verbose=False)
    answers.put((len(table), float(table.xywhn.sum())))


def test_several_processes_at_once(make: Any, tmp_path: Path) -> None:
    for i in range(300):
        make(f"{i:03}", ROW)
    ctx = multiprocessing.get_context("fork" if os.name != "nt" else "spawn")
    go, answers = ctx.Event(), ctx.Queue()
    workers = [ctx.Process(target=_load_in_process, args=(str(tmp_path / "ds"), go, answers)) for _ in range(4)]
    for w in workers:
        w.start()
    go.set()
    results = [answers.get(timeout=60) for _ in workers]
    for w in workers:
        w.join(60)
    assert results == [(300, 300 * 1.5)] * 4
    assert [p.suffix for p in (tmp_path / "ds/.fastyolo").iterdir()] == [".fastyolo"]  # no temporary file is left


def test_files_younger_than_a_clock_tick_are_read_again(
    make: Any, load: Any, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("a", ROW)
    time.sleep(AGE)
    monkeypatch.setattr(scan_module, "_TICK_NS", 10**12)
    load()
    monkeypatch.undo()
    probe.names()
    load()
    assert probe.names() == ["a.png"]
    load()
    assert probe.names() == []


@pytest.mark.parametrize("column", ["size", "mtime_ns", "ctime_ns"])
def test_every_column_of_the_stats_counts(column: str) -> None:
    a = {c: np.array([-1, 5, 6, 7]) for c in ("size", "mtime_ns", "ctime_ns")}
    b = {c: v.copy() for c, v in a.items()}
    b[column][2] += 1
    assert FileStats(**a).same(FileStats(**b)).tolist() == [True, True, False, True]


@pytest.mark.parametrize("slow", [False, True])
def test_stat_files(slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastyolo_data.labels.filestat._SLOW", 0 if slow else 9)
    paths = []
    for i in range(200):
        paths.append(str(tmp_path / f"{i}"))
        if i % 3:
            Path(paths[-1]).write_bytes(b"x" * i)
    paths += [str(tmp_path), "a\0b"]
    stats = stat_files(paths)
    assert stats.size.tolist() == [i if i % 3 else -1 for i in range(200)] + [-1, -1]
    assert stats.mtime_ns[1] == os.stat(paths[1]).st_mtime_ns
    assert stats.ctime_ns[1] == os.stat(paths[1]).st_ctime_ns
    assert len(stat_files([]).size) == 0
