"""patch() and unpatch() on forks that are imported before, in between and after."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from types import FunctionType, ModuleType

import pytest

import fastyolo_data as fy
from fastyolo_data.integrations import patching
from tests.integrations.forks import DATA_MODULE, write_fork

KINDS = ["yolov5", "yolov7", "yolov9"]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """The stand-ins are edited forks, so they have to be trusted; nothing stays patched."""
    for name in [n for n in os.environ if n.startswith("FASTYOLO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FASTYOLO_TRUST", "1")
    yield
    fy.unpatch()
    for name in [n for n in sys.modules if n.startswith("patched_fork_")]:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a fork and return a function that imports one of its modules."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(kind):
        package = f"patched_fork_{len(list(tmp_path.iterdir()))}"
        write_fork(tmp_path, kind, package)
        importlib.invalidate_caches()
        return lambda name: importlib.import_module(f"{package}.{name.format(data=DATA_MODULE[kind])}")

    return write


def is_ours(function: FunctionType) -> bool:
    return hasattr(function, "__wrapped__")


def snapshot() -> dict[tuple[str, str], object]:
    """Every object that a module outside of this library refers to."""
    modules = {k: m for k, m in sys.modules.items() if isinstance(m, ModuleType) and not k.startswith("fastyolo_data")}
    return {(k, name): value for k, m in modules.items() for name, value in list(vars(m).items())}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_imported_already_is_replaced_everywhere_and_restored(write, kind):
    fork = write(kind)
    data, segment, train = fork("utils.{data}"), fork("utils.segment.{data}"), fork("train")
    train.renamed = data.create_dataloader
    stock, cls = data.create_dataloader, data.LoadImagesAndLabels
    fy.patch()
    fy.unpatch()  # the first time imports libraries that change others
    before, environment, meta_path = snapshot(), dict(os.environ), list(sys.meta_path)
    names = fy.patch()
    assert {f"{data.__name__}.create_dataloader", f"{segment.__name__}.create_dataloader"} <= set(names)
    assert is_ours(data.create_dataloader)
    assert data.create_dataloader.__wrapped__ is stock
    assert train.create_dataloader is train.renamed is data.create_dataloader
    assert train.create_segments is segment.create_dataloader
    assert is_ours(train.create_segments)
    assert data.LoadImagesAndLabels is segment.LoadImagesAndLabels is cls  # classes stay
    assert fy.unpatch() == names
    after = snapshot()
    assert [k for k in before if after.get(k) is not before[k]] == []
    assert dict(os.environ) == environment
    assert sys.meta_path == meta_path


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_imported_later_gets_it_by_value(write, kind):
    fork = write(kind)
    fy.patch()
    train = fork("train")  # imports both data modules
    data = fork("utils.{data}")
    assert is_ours(train.create_dataloader)
    assert is_ours(train.create_segments)
    fy.unpatch()
    assert train.create_dataloader is data.create_dataloader
    assert not is_ours(data.create_dataloader)
    assert not is_ours(train.create_segments)


def test_nothing_is_patched_after_unpatch(write):
    fork = write("yolov5")
    fy.patch()
    fy.unpatch()
    fy.unpatch()
    assert not is_ours(fork("train").create_dataloader)


def test_twice_is_once(write):
    fork = write("yolov5")
    data = fork("utils.{data}")
    stock, before = data.create_dataloader, list(sys.meta_path)
    first = fy.patch()
    ours = data.create_dataloader
    assert fy.patch() == first
    assert data.create_dataloader is ours
    assert ours.__wrapped__ is stock
    assert len(sys.meta_path) == len(before) + 1
    assert os.environ["PYTHONPATH"].count("integrations") == 1
    fy.unpatch()
    assert data.create_dataloader is stock


def test_reloaded_module_is_patched_again(write):
    data = write("yolov5")("utils.{data}")
    fy.patch()
    importlib.reload(data)
    assert is_ours(data.create_dataloader)
    assert not is_ours(data.create_dataloader.__wrapped__)
    fy.unpatch()
    assert not is_ours(data.create_dataloader)


def test_target_selects(write):
    v5, v7, v9 = (write(kind)("utils.{data}") for kind in KINDS)
    names = fy.patch("yolov7")
    assert {n.partition(".")[0] for n in names} == {v7.__name__.partition(".")[0]}
    assert is_ours(v7.create_dataloader)
    assert not is_ours(v5.create_dataloader)
    assert os.environ["FASTYOLO_PATCH"] == "yolov7"
    fy.patch("yolov9")
    assert os.environ["FASTYOLO_PATCH"] == "yolov7,yolov9"
    assert is_ours(v9.create_dataloader)
    assert not is_ours(v5.create_dataloader)
    fy.patch()
    assert os.environ["FASTYOLO_PATCH"] == "all"
    assert is_ours(v5.create_dataloader)


@pytest.mark.parametrize("target", ["yolov8", "", "YOLOv5", 5])
def test_unknown_target_is_refused(target):
    before = dict(os.environ)
    with pytest.raises(fy.ConfigError, match="'ultralytics', 'yolov5', 'yolov7', 'yolov9', or None"):
        fy.patch(target)
    assert dict(os.environ) == before


def test_what_others_replaced_meanwhile_stays(write):
    fork = write("yolov5")
    data, train = fork("utils.{data}"), fork("train")
    stock = data.create_dataloader
    fy.patch()
    train.create_dataloader = mine = lambda *args: args
    fy.unpatch()
    assert train.create_dataloader is mine
    assert data.create_dataloader is stock


def test_edited_code_keeps_its_loader_and_says_why_once(write, monkeypatch, caplog):
    monkeypatch.delenv("FASTYOLO_TRUST")
    fork = write("yolov5")
    data = fork("utils.{data}")
    with caplog.at_level(logging.INFO, "fastyolo_data"):
        fy.patch()
        fy.patch()
    assert not is_ours(data.create_dataloader)
    lines = [r for r in caplog.records if f"{data.__name__} (YOLOv5)" in r.message]
    assert len(lines) == 1
    assert lines[0].levelno == logging.WARNING
    assert "LoadImagesAndLabels.__getitem__" in lines[0].message
    assert "FASTYOLO_TRUST=1" in lines[0].message


def test_every_replacement_is_told(write, caplog):
    with caplog.at_level(logging.INFO, "fastyolo_data"):
        data = write("yolov9")("utils.{data}")
        fy.patch()
    line = next(r.message for r in caplog.records if data.__name__ in r.message)
    assert line.startswith(f"fastyolo_data: replaces {data.__name__}.create_dataloader (YOLOv9 ")


def test_ranks_other_than_the_first_are_silent(write, monkeypatch, caplog):
    monkeypatch.setenv("RANK", "1")
    data = write("yolov9")("utils.{data}")
    with caplog.at_level(logging.INFO, "fastyolo_data"):
        fy.patch()
    assert is_ours(data.create_dataloader)
    assert caplog.records == []


def test_off_replaces_nothing(write, monkeypatch):
    monkeypatch.setenv("FASTYOLO_OFF", "1")
    data = write("yolov5")("utils.{data}")
    before = dict(os.environ)
    assert fy.patch() == ()
    assert not is_ours(data.create_dataloader)
    assert dict(os.environ) == before


def test_environment_keeps_what_was_there(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/somewhere", "/else"]))
    fy.patch()
    assert os.environ["PYTHONPATH"].split(os.pathsep)[1:] == ["/somewhere", "/else"]
    fy.unpatch()
    assert os.environ["PYTHONPATH"].split(os.pathsep) == ["/somewhere", "/else"]


def test_bad_option_is_an_error_not_a_reason_for_the_stock_loader(write, monkeypatch):
    fork = write("yolov5")
    fy.patch()
    monkeypatch.setenv("FASTYOLO_TRUST", "perhaps")
    with pytest.raises(fy.ConfigError, match="FASTYOLO_TRUST='perhaps': expected 1 or 0"):
        fork("train")


def test_our_own_faults_do_not_break_an_import(write, monkeypatch, caplog):
    monkeypatch.setitem(patching.INTEGRATIONS, "yolov5", "fastyolo_data.integrations.yolov5_that_is_not_there")
    fork = write("yolov5")
    fy.patch()
    with caplog.at_level(logging.INFO, "fastyolo_data"):
        train = fork("train")
    assert not is_ours(train.create_dataloader)
    assert any("keeps its own loader" in r.message and "yolov5_that_is_not_there" in r.exc_text for r in caplog.records)


def test_several_threads_patch_at_once(write):
    data = write("yolov5")("utils.{data}")
    stock = data.create_dataloader
    start = threading.Barrier(4)

    def work():
        start.wait()
        fy.patch()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert data.create_dataloader.__wrapped__ is stock
    fy.unpatch()
    assert data.create_dataloader is stock
