"""load_labels: what is kept, what is skipped and said, and a cache that never lies."""

from __future__ import annotations

import ast
import logging
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastyolo_data.labels as labels_room
from fastyolo_data.datatypes import DataSpec, LabelTable
from fastyolo_data.errors import ConfigError, ImageDecodeError
from fastyolo_data.labels import load_labels, resolve_data
from fastyolo_data.labels import scan as scan_module

ROW = "0 0.5 0.5 0.25 0.25\n"
AGE = 0.05  # seconds after which a written file counts as settled, see scan._with_doubts


@pytest.fixture
def load(tmp_path: Path, probe: Any) -> Callable[..., LabelTable]:
    """Return load(**options) for <tmp>/ds with classes a, b, c."""

    def _load(names: str = "abc", **options: Any) -> LabelTable:
        spec = DataSpec((tmp_path / "ds/images/train",), tuple(names), tmp_path / "ds", origin="data.yaml")
        return load_labels(spec, probe=options.pop("probe", probe), verbose=options.pop("verbose", False), **options)

    return _load


def _names(table: LabelTable) -> list[str]:
    return [os.path.basename(p) for p in table.im_files]


def _cache_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "ds/.fastyolo").iterdir()
    return path


def _assert_same(a: LabelTable, b: LabelTable) -> None:
    assert list(a.im_files) == list(b.im_files)
    assert a.skipped == b.skipped
    for name in LabelTable.__dataclass_fields__:
        if name not in ("im_files", "skipped"):
            x, y = getattr(a, name), getattr(b, name)
            assert x.dtype == y.dtype
            assert x.flags.writeable
            assert y.flags.writeable
            np.testing.assert_array_equal(x, y)


# --------------------------------------------------------------------------------------------------- what comes out


def test_columns_and_skipped(make: Any, load: Any, caplog: pytest.LogCaptureFixture) -> None:
    make("a", "0 0.5 0.5 0.25 0.25\n2 0.5 0.5 0.5 0.5\n")
    make("b")
    make("c", "7 0.5 0.5 0.25 0.25\n")
    make("d", ROW, image=b"junk")
    make("e", "")
    table = load(prefix="train: ")
    assert _names(table) == ["a.png", "b.png", "e.png"]
    assert table.hw.tolist() == [[12, 16]] * 3
    assert table.box_offsets.tolist() == [0, 2, 2, 2]
    assert table.cls.tolist() == [0, 2]
    assert table.point_offsets.shape == (0,)
    assert table.keypoints.shape == (0, 0, 3)
    stat = os.stat(table.im_files[0])
    assert (table.file_size[0], table.mtime_ns[0]) == (stat.st_size, stat.st_mtime_ns)
    reasons = {os.path.basename(p): r for p, r in table.skipped.items()}
    assert set(reasons) == {"c.png", "d.png"}
    assert "c.txt:1: found class 7" in reasons["c.png"]
    assert "c.png" in caplog.text
    assert "d.png" in caplog.text
    assert "train: 2 files skipped" in caplog.text


def test_dtypes_with_polygons_and_keypoints(make: Any, load: Any, tmp_path: Path, probe: Any) -> None:
    make("a", "0 0 0 1 0 1 1\n1 0 0 .5 0 .5 .5 0 .5\n")
    table = load(task="segment")
    assert table.point_offsets.tolist() == [0, 3, 7]
    assert (table.points.dtype, table.points.shape) == (np.float32, (7, 2))
    make("a", "0 .5 .5 .2 .2 .1 .2 2 .3 .4 1\n")
    spec = DataSpec((tmp_path / "ds/images/train",), ("x",), tmp_path / "ds", kpt_shape=(2, 3))
    table = load_labels(spec, probe=probe, task="pose", verbose=False)
    np.testing.assert_allclose(table.keypoints, [[[0.1, 0.2, 2], [0.3, 0.4, 1]]])
    assert table.keypoints.dtype == np.float32


def test_summary_is_short_however_many_files_are_bad(
    make: Any, load: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "fastyolo_data")
    for i in range(300):
        make(f"bad{i:03}", "0 16 12 32 24\n")
    make("good", ROW)
    make("twice", ROW + ROW)
    table = load(verbose=True)
    assert len(table.skipped) == 300
    assert caplog.text.count("\n") < 20
    assert "2 images, 0 backgrounds, 300 skipped" in caplog.text
    assert "and 295 more" in caplog.text
    assert "1 duplicate" in caplog.text
    out, err = capfd.readouterr()
    assert out == ""
    assert "2 images, 0 backgrounds, 300 skipped" in err  # the progress bar


def test_quiet(make: Any, load: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastyolo_data")
    make("a", ROW)
    load(verbose=False)
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def test_nothing_stops_the_scan(make: Any, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcdefg":
        make(name, ROW)

    def probe(path: str) -> tuple[int, ...]:
        kind = os.path.basename(path)[0]
        if kind == "a":
            raise ImageDecodeError(f"{path}: torn")
        if kind == "b":
            raise ZeroDivisionError("oops")
        if kind == "c":
            return (9, 100)
        if kind == "d":
            return ()
        if kind == "e":
            os.unlink(path.replace("/images/", "/labels/").replace(".png", ".txt"))
        return (100, 10)

    table = load(probe=probe)
    assert _names(table) == ["f.png", "g.png"]
    reasons = " ".join(table.skipped.values())
    for word in ("torn", "ZeroDivisionError: oops", "100x9 pixels", "ValueError", "FileNotFoundError"):
        assert word in reasons


def test_remarks_of_the_probe_are_passed_on(make: Any, load: Any, caplog: pytest.LogCaptureFixture) -> None:
    make("a", ROW + ROW)
    time.sleep(AGE)
    for _ in range(2):
        caplog.clear()
        assert len(load(probe=lambda path: (20, 20, "no end marker"))) == 1
        assert "a.png: no end marker; " in caplog.text
        assert "1 duplicate" in caplog.text


def test_repeated_entries_stay_repeated_and_are_read_once(make: Any, tmp_path: Path, probe: Any) -> None:
    for name, row in (("a", "1 0.5 0.5 0.25 0.25\n"), ("b", ""), ("c", "2 0.5 0.5 0.25 0.25\n"), ("bad", "x")):
        make(name, row)
    lines = ["a", "c", "a", "bad", "b", "a", "bad"]
    (tmp_path / "ds/l.txt").write_text("".join(f"./images/train/{n}.png\n" for n in lines))
    table = load_labels(resolve_data(tmp_path / "ds/l.txt", "train"), probe=probe, verbose=False)
    assert _names(table) == ["a.png"] * 3 + ["b.png", "c.png"]
    assert table.cls.tolist() == [1, 1, 1, 2]
    assert table.box_offsets.tolist() == [0, 1, 2, 3, 3, 4]
    assert probe.names() == ["a.png", "b.png", "bad.png", "c.png"]


def test_classes_and_single_cls_need_no_new_scan(make: Any, load: Any, probe: Any) -> None:
    make("a", "0 0.5 0.5 0.25 0.25\n1 0.1 0.1 0.25 0.25\n2 0.1 0.1 0.25 0.25\n")
    make("b", "1 0.5 0.5 0.25 0.25\n")
    time.sleep(AGE)
    assert load().cls.tolist() == [0, 1, 2, 1]
    probe.names()
    table = load(classes=[0, 2])
    assert table.cls.tolist() == [0, 2]
    assert table.box_offsets.tolist() == [0, 2, 2]
    assert load(classes=[]).cls.tolist() == []
    assert probe.names() == []
    assert load(single_cls=True).cls.tolist() == [0, 0, 0, 0]
    make("c", "9 0.5 0.5 0.25 0.25\n")
    assert load(single_cls=True).cls.tolist() == [0] * 5  # any index will do when all become 0
    assert _names(load()) == ["a.png", "b.png"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "classify"}, ["classify", "detect", "obb"]),
        ({"task": "pose"}, ["kpt_shape"]),
        ({"threads": 0}, ["threads=0"]),
        ({"classes": [3]}, ["[3]", "0 to 2"]),
        ({"classes": ["a"]}, ["'a'"]),
        ({"fraction": 0}, ["fraction=0"]),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: list[str], make: Any, load: Any) -> None:
    make("a", ROW)
    with pytest.raises(ConfigError) as e:
        load(**options)
    for word in words:
        assert word in str(e.value)


def test_nothing_left_is_an_error_with_causes(make: Any, load: Any) -> None:
    make("a", "5 0.5 0.5 0.1 0.1")
    make("b", ROW, image=b"")
    with pytest.raises(ConfigError) as e:
        load()
    for word in ("all 2 were skipped", "a.png", "class 5", "b.png", "data.yaml"):
        assert word in str(e.value)


def test_no_label_file_at_all(make: Any, load: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("a")
    expected = str(tmp_path / "ds/labels/train/a.txt")
    assert len(load()) == 1
    assert expected in caplog.text
    with pytest.raises(ConfigError) as e:
        load(augment=True)
    assert expected in str(e.value)
    make("b", "")  # an empty label file says: background on purpose
    assert len(load(augment=True)) == 2


@pytest.mark.parametrize("threads", [1, 2, 16, None])
def test_any_number_of_threads_gives_the_same(threads: int | None, make: Any, load: Any) -> None:
    for i in range(700):
        make(f"{i:03}", "".join(f"{i % 3} 0.5 0.5 0.{k}1 0.{i:03}\n" for k in range(i % 4)) if i % 5 else "bad")
    one = load(threads=1, rescan=True)
    assert len(one) == 560
    _assert_same(one, load(threads=threads, rescan=True))


def test_a_slow_disk_gets_many_threads(make: Any, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_CHUNK", 4)
    for i in range(200):
        make(f"{i:03}", ROW)
    seen: set[int] = set()

    def probe(path: str) -> tuple[int, int]:
        seen.add(threading.get_ident())
        time.sleep(0.01)
        return (20, 20)

    start = time.perf_counter()
    load(probe=probe)
    assert len(seen) > 8
    assert time.perf_counter() - start < 1.0  # 2 s one after the other


def test_an_interrupt_stops_soon(make: Any, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_CHUNK", 1)
    for i in range(100):
        make(f"{i:03}", ROW)
    calls: list[str] = []

    def probe(path: str) -> tuple[int, int]:
        calls.append(path)
        time.sleep(0.005)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return (20, 20)

    with pytest.raises(KeyboardInterrupt):
        load(probe=probe, threads=2)
    assert len(calls) < 50


# ---------------------------------------------------------------------------------------------------------- the cache


def test_second_start_reads_nothing_and_gives_the_same(make: Any, load: Any, probe: Any, tmp_path: Path) -> None:
    make("a", ROW)
    make("b", "1 0 0 1 0 1 1\n")
    make("c")
    time.sleep(AGE)
    first = load(task="detect")
    assert probe.names() == ["a.png", "b.png", "c.png"]
    before = _cache_file(tmp_path).stat().st_mtime_ns
    _assert_same(first, load())
    assert probe.names() == []
    assert _cache_file(tmp_path).stat().st_mtime_ns == before
    _assert_same(first, load(rescan=True))
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
    assert _names(table) == ["a.png", "b.png", "d.png", "e.png", "f.png", "g.png", "new.png"]
    assert table.cls.tolist() == [2, 0, 0, 0, 0, 1]
    assert table.box_offsets.tolist() == [0, 1, 1, 2, 3, 4, 5, 6]
    time.sleep(AGE)
    load()
    probe.names()
    _assert_same(table, load())
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
    _assert_same(first, load())
    assert len(probe.names()) == 20
    assert str(path) in caplog.text
    _assert_same(first, load())
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
        _assert_same(first, load())
        assert probe.names() == ["a.png"], f"byte {at}"


def test_one_cache_per_list_task_and_class_count(make: Any, load: Any, tmp_path: Path, probe: Any) -> None:
    make("a", "0 0 0 1 0 1 1\n")
    make("b", "2 0 0 1 0 1 1\n")
    time.sleep(AGE)
    load()
    load(task="segment")
    assert _names(load(names="ab")) == ["a.png"]
    (tmp_path / "ds/l.txt").write_text("./images/train/b.png\n")
    listed = load_labels(resolve_data(tmp_path / "ds/l.txt", "train"), probe=probe, verbose=False)
    assert _names(listed) == ["b.png"]
    assert len(list((tmp_path / "ds/.fastyolo").iterdir())) == 4
    probe.names()
    assert load().cls.tolist() == [0, 2]
    assert probe.names() == []


def test_a_fraction_neither_spoils_nor_shrinks_the_cache(make: Any, load: Any, probe: Any) -> None:
    for i in range(10):
        make(f"{i}", ROW)
    time.sleep(AGE)
    assert len(load(fraction=0.5)) == 5
    assert len(probe.names()) == 5
    assert len(load()) == 10
    assert len(probe.names()) == 5
    assert len(load(fraction=0.2)) == 2
    assert len(load()) == 10
    assert probe.names() == []


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


def test_memory_of_a_table(make: Any, load: Any) -> None:
    for i in range(400):
        make(f"{i:03}", "".join(f"0 0.5 0.5 0.25 0.{k:02}1\n" for k in range(10)))
    table = load()
    arrays = [getattr(table, f) for f in LabelTable.__dataclass_fields__ if f not in ("im_files", "skipped")]
    paths = table.im_files.blob.nbytes + table.im_files.offsets.nbytes
    assert sum(a.nbytes for a in arrays) + paths < 200 * 400 + 20 * 4000


# ------------------------------------------------------------------------------------------------------------ the room


def test_exports() -> None:
    assert sorted(labels_room.__all__) == labels_room.__all__
    for name in labels_room.__all__:
        assert hasattr(labels_room, name)


def test_the_room_imports_only_what_it_may() -> None:
    allowed = ("fastyolo_data.datatypes", "fastyolo_data.errors", "fastyolo_data.hyp", "fastyolo_data.labels")
    files = list(Path(labels_room.__file__).parent.glob("*.py"))
    assert len(files) > 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for m in modules:
                assert not m.startswith("fastyolo_data") or m.startswith(allowed), f"{path.name} imports {m}"
                assert m.split(".")[0] not in ("numba", "torch", "cv2", "PIL", "ultralytics", "pickle")
            assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print")
