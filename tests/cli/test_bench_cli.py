"""The `fastyolo bench` command, from arguments to files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import pytest

import fastyolo_data
from fastyolo_data.cli.bench import chart, report
from fastyolo_data.cli.bench.demo import DemoSpec, make_demo
from fastyolo_data.cli.bench.machine import describe_machine, git_commit
from fastyolo_data.cli.bench.measure import Result
from fastyolo_data.cli.main import main

HAS_ULTRALYTICS = importlib.util.find_spec("ultralytics") is not None
needs_ultralytics = pytest.mark.skipif(
    not HAS_ULTRALYTICS, reason="ultralytics isn't installed (pip install ultralytics)"
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data.yaml of 8 small images."""
    return make_demo(tmp_path_factory.mktemp("demo"), DemoSpec(train=8, val=1, width=160, height=120))


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    """Run `fastyolo bench` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "fastyolo_data", "bench", *args],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def check_result(path: Path, names: list[str], images: int) -> dict[str, Any]:
    """Check a JSON file of a quick run and return it."""
    content = json.loads(path.read_text())
    assert content["schema"] == report.SCHEMA
    assert content["dataset"]["images"] == images
    assert content["machine"]["cpus"]["logical"] >= 1
    assert content["command"].startswith("fastyolo ")
    assert [r["adapter"] for r in content["results"]] == names
    for r in content["results"]:
        assert len(r["passes"]) == 2
        assert all(p["images"] > 0 and p["cpu_seconds"] > 0 for p in r["passes"])
        assert r["memory"]["peak"] > 0
        assert r["versions"]["torch"]
        s = r["summary"]
        assert s["images_per_second"] > 0
        assert 0 < s["first_batch_warm_seconds"] < s["first_batch_warm_since_start_seconds"]
    return content


@pytest.fixture
def short_temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of its own for temporary files; pytest's are too deep for the sockets of multiprocessing."""
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield folder


@needs_ultralytics
def test_stock_loader_end_to_end(tiny: Path, tmp_path: Path, short_temporary: str) -> None:
    before = {p: p.stat().st_mtime_ns for p in tiny.parent.rglob("*")}
    out, png = tmp_path / "out" / "bench.json", tmp_path / "out" / "bench.png"
    options = ["--only", "ultralytics", "--quick", "--no-gpu-sim", "--imgsz", "160", "--batch", "4", "--repeat", "2"]
    run = bench(str(tiny), *options, "--json", str(out), "--chart", str(png))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "img/s" in run.stdout
    assert "this takes about" in run.stdout
    content = check_result(out, ["ultralytics"], 16)
    assert content["results"][0]["versions"]["ultralytics"]
    assert cv2.imread(str(png)) is not None
    assert {p: p.stat().st_mtime_ns for p in tiny.parent.rglob("*")} == before, "the user's folder was touched"
    left = [n for n in os.listdir(short_temporary) if n.startswith(("fastyolo-bench", "pymp"))]
    assert not left, "temporary files stayed"


@pytest.mark.skipif(not hasattr(fastyolo_data, "build_loader"), reason="build_loader isn't in this checkout yet")
@pytest.mark.parametrize("against", ["ours", "both"])
def test_our_loader_end_to_end(tiny: Path, tmp_path: Path, against: str) -> None:
    if against == "both" and not HAS_ULTRALYTICS:
        pytest.skip("ultralytics isn't installed (pip install ultralytics)")
    out = tmp_path / "bench.json"
    options = ["--quick", "--no-gpu-sim", "--imgsz", "160", "--batch", "4", "--json", str(out)]
    run = bench(str(tiny), *options, *(["--only", "ours"] if against == "ours" else []))
    assert run.returncode == 0, run.stdout + run.stderr
    check_result(out, ["ours"] if against == "ours" else ["ours", "ultralytics"], 8)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--batch", "0"], "--batch"),
        (["--workers", "-1"], "--workers"),
        (["--imgsz", "100"], "multiple of 32"),
        (["--seconds", "0"], "--seconds"),
        (["--cache", "tape"], "none, ram, disk, memmap, lmdb"),
        (["--against", "darknet"], "darknet"),
        (["--cache", ","], "--cache"),
        (["--split", "moon"], "moon"),
        (["--passes", "many"], "--passes"),
        (["--task", "classify"], "--task"),
        (["--task", "segment", "--against", "yolov5"], "'yolov5' has detect only"),
    ],
)
def test_bad_arguments_end_with_2(
    tiny: Path, arguments: list[str], word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(tiny), *arguments]) == 2
    assert word in capfd.readouterr().err


def test_other_tasks_need_data(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--task", "segment"]) == 2
    assert "demo set has boxes only" in capfd.readouterr().err


@needs_ultralytics
def test_a_task_with_keys_of_its_own_in_the_yaml(generated_pose: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    options = ["--quick", "--no-gpu-sim", "--imgsz", "96", "--batch", "4", "--task", "pose", "--json", str(out)]
    run = bench(str(generated_pose), *options)  # batches of both loaders are compared before anything is timed
    assert run.returncode == 0, run.stdout + run.stderr
    assert check_result(out, ["ours", "ultralytics"], 24)["settings"]["task"] == "pose"


def test_no_such_data_ends_with_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tmp_path / "no.yaml")]) == 2
    assert "no.yaml" in capfd.readouterr().err


def test_help_and_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "bench" in capfd.readouterr().out
    assert main(["bench", "--help"]) == 0
    assert "--gpu-sim" in capfd.readouterr().out
    assert main(["--version"]) == 0
    assert fastyolo_data.__version__ in capfd.readouterr().out
    assert main([]) == 2
    assert main(["juggle"]) == 2


def example() -> dict[str, Any]:
    """Return a document of two contenders in two cache modes, with numbers made up to be easy to check."""
    results = []
    for cache in ("none", "ram"):
        for name, speed in (("ours", 600.0), ("ultralytics", 200.0)):
            passes = [
                {"images": speed, "batches": 10, "seconds": 1.0, "cpu_seconds": 2.0, "other_cores": 0.4}
                for _ in range(3)
            ]
            gpu = [{"rate": r, "busy_seconds": min(1.0, speed / r), "seconds": 1.0} for r in (100.0, 400.0)]
            start = {"first_batch_seconds": 0.5, "since_start": 2.5}
            memory = {"metric": "pss", "peak": 9e8, "baseline": 6e8, "samples": 9}
            results.append(Result(name, cache, {"torch": "2"}, start, start, {}, memory, passes, gpu))
    return report.document(
        results,
        command="fastyolo bench",
        commit=None,
        started="2026-01-01T00:00:00+00:00",
        machine=describe_machine(),
        settings={"imgsz": 640, "batch": 16, "workers": 2},
        dataset={"images": 64},
    )


def test_table_shows_every_number() -> None:
    text = report.table(example())
    assert text.count("cache: ") == 2
    assert "ours / ultralytics: 3.00x images per second (3.00 to 3.00 over the pairs of passes), 0.33x CPU" in text
    for word in ("600.0", "200.0", "3.33", "0.50 s", "300", "memory MB", "100%", "50%", "400 img/s", "0.4 cores"):
        assert word in text


def test_json_is_written_whole(tmp_path: Path) -> None:
    content = example()
    report.write_json(tmp_path / "new" / "a.json", content)
    assert json.loads((tmp_path / "new" / "a.json").read_text()) == content
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.json"]


def test_chart_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart.draw(tmp_path / "a.png", example())
    im = cv2.imread(str(tmp_path / "a.png"))
    assert im is not None
    assert im.shape[1] > 1000


def test_missing_matplotlib_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install"):
        chart.check_matplotlib()


def test_commit_of_this_checkout_and_of_none(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
    commit = git_commit(Path(fastyolo_data.__file__).parent)
    assert commit is None or len(commit.split("-")[0]) == 40
