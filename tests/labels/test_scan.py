"""load_labels: what is kept, what is skipped and said, and a cache that never lies."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastyolo_data.labels as labels_room
from fastyolo_data.datatypes import DataSpec, LabelTable
from fastyolo_data.errors import ConfigError, ImageDecodeError
from fastyolo_data.labels import load_labels, read_files, resolve_data
from tests.labels.support import assert_same, names_of

ROW = "0 0.5 0.5 0.25 0.25\n"
AGE = 0.05  # seconds after which a written file counts as settled, see scan._with_doubts


# --------------------------------------------------------------------------------------------------- what comes out


def test_columns_and_skipped(make: Any, load: Any, caplog: pytest.LogCaptureFixture) -> None:
    make("a", "0 0.5 0.5 0.25 0.25\n2 0.5 0.5 0.5 0.5\n")
    make("b")
    make("c", "7 0.5 0.5 0.25 0.25\n")
    make("d", ROW, image=b"junk")
    make("e", "")
    table = load(prefix="train: ")
    assert names_of(table) == ["a.png", "b.png", "e.png"]
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
    assert names_of(table) == ["f.png", "g.png"]
    reasons = " ".join(table.skipped.values())
    for word in ("torn", "ZeroDivisionError: oops", "100x9 pixels", "ValueError", "FileNotFoundError"):
        assert word in reasons


@pytest.mark.skipif(os.name == "nt", reason="symlinks need privileges on Windows")
def test_a_label_that_cannot_be_examined_is_no_background(make: Any, load: Any, tmp_path: Path) -> None:
    make("a", ROW)
    make("b")
    (tmp_path / "ds/labels/train/b.txt").symlink_to("b.txt")
    table = load()
    assert names_of(table) == ["a.png"]
    assert "OSError" in next(iter(table.skipped.values()))


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
    assert names_of(table) == ["a.png"] * 3 + ["b.png", "c.png"]
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
    assert names_of(load()) == ["a.png", "b.png"]


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
    bad = make("b", ROW, image=b"")
    with pytest.raises(ConfigError) as e:
        load()
    for word in ("all 2 were skipped", "a.png", "class 5", "b.png", "data.yaml"):
        assert word in str(e.value)
    assert f"{bad}: {bad}" not in str(e.value)  # the reason names the path already


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
    assert_same(one, load(threads=threads, rescan=True))


def test_a_slow_disk_gets_many_threads(make: Any, load: Any) -> None:
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
    monkeypatch.setattr(read_files, "_CHUNK", 1)
    for i in range(100):
        make(f"{i:03}", ROW)
    calls: list[str] = []

    def probe(path: str) -> tuple[int, int]:
        calls.append(path)
        time.sleep(0.005)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return (20, 20)

    with pytest.raises(KeyboardInterrupt):
        load(probe=probe, threads=2)
    assert 30 <= len(calls) < 60


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


def test_of_two_that_start_together_one_reads_and_the_other_waits(make: Any, load: Any, tmp_path: Path) -> None:
    for i in range(12):
        make(f"{i:03}", ROW)
    time.sleep(AGE)  # a file written just now would be read again
    calls: list[str] = []

    def probe(path: str) -> tuple[int, int]:
        calls.append(path)
        time.sleep(0.02)
        return (20, 20)

    tables: list[LabelTable] = []
    threads = [threading.Thread(target=lambda: tables.append(load(probe=probe))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(calls) == 12
    assert_same(*tables)
    assert [p.suffix for p in (tmp_path / "ds/.fastyolo").iterdir()] == [".fastyolo"]  # the lock is gone again
