"""The training example under benchmarks/training, on generated pictures."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fastyolo_data.cli.bench.demo import DemoSpec, make_demo

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training" / "bccd_detector.py"


@pytest.fixture(scope="module")
def detector() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("bccd_detector", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bccd_detector"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of 24 small pictures of painted shapes."""
    return make_demo(tmp_path_factory.mktemp("demo"), DemoSpec(train=16, val=8, width=160, height=120))


def train(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a user does."""
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def short(data: Path, *args: str) -> Sequence[str]:
    """Arguments of a run of 20 small steps."""
    return "--data", str(data), "--steps", "20", "--imgsz", "96", "--batch", "4", "--log-every", "10", *args


def numbers(output: str) -> list[str]:
    """What must be equal in equal runs: losses and recalls, but no times."""
    return [line for line in output.splitlines() if "loss" in line or "recall" in line]


def test_short_runs_report_everything_and_are_equal(shapes: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in shapes.parent.rglob("*")}
    first, second = (train(*short(shapes, "--min-drop", "-9", "--workers", workers)) for workers in ("2", "0"))
    assert first.returncode == 0, first.stdout + first.stderr
    for word in ("step   10  loss", "step   20  loss", "waited for data", "before training", "after training"):
        assert word in first.stdout
    assert re.search(r"^loss first 20 steps \d+\.\d+ -> last 20 steps \d+\.\d+$", first.stdout, re.MULTILINE)
    assert numbers(first.stdout) == numbers(second.stdout)
    assert {p: p.stat().st_mtime_ns for p in shapes.parent.rglob("*")} == before, "the data folder was touched"


def test_exit_code_1_when_the_loss_does_not_fall(shapes: Path) -> None:
    run = train(*short(shapes, "--min-drop", "0.99"))
    assert run.returncode == 1
    assert "expected 99.0% or more" in run.stderr


def test_absent_data_are_skipped_or_replaced(tmp_path: Path) -> None:
    run = train("--data", str(tmp_path / "no.yaml"), "--no-demo")
    assert run.returncode == 0
    assert "skipped" in run.stdout
    assert "no.yaml" in run.stdout
    assert train("--steps", "0").returncode == 2


@pytest.mark.slow
def test_demo_set_is_learned(tmp_path: Path) -> None:
    run = train("--data", str(tmp_path / "no.yaml"), "--imgsz", "160")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "painting a demo set" in run.stdout
    found = re.search(r"after training: (\S+) \(labels of another picture: (\S+)\)", run.stdout)
    assert found is not None
    own, other = (float(v) for v in found.groups())
    assert own > 0.15
    assert own > 3 * other


def test_cells_belong_to_the_smallest_near_object(detector: ModuleType) -> None:
    centres = detector.cell_centres(8, 8, torch.device("cpu"))
    assert centres[0].tolist() == [4, 4]
    assert centres[9].tolist() == [12, 12]
    boxes = torch.tensor([[0.0, 0, 64, 64], [10, 10, 14, 14]])
    owner = detector.assign(boxes, centres).reshape(8, 8)
    assert owner[1, 1] == 1
    assert (owner == 1).sum() == 1, "a tiny object has the one cell it lies in"
    assert (owner[3:5, 3:5] == 0).all()
    assert owner[7, 7] == -1, "inside the large box but far from its centre"
    assert (detector.assign(boxes[:0], centres) == -1).all()


def test_giou_and_matching(detector: ModuleType) -> None:
    a = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 10]])
    b = torch.tensor([[0.0, 0, 10, 10], [5, 0, 15, 10], [20, 0, 30, 10]])
    assert detector.giou(a, b).tolist() == pytest.approx([1.0, 1 / 3, -1 / 3])
    cls = torch.tensor([0, 0, 1])
    truth = cls, torch.tensor([[0.0, 0, 10, 10], [50, 50, 60, 60], [0, 0, 10, 10]])
    assert detector.matched(truth, truth) == 3
    wrong_class = torch.tensor([1, 1, 0]), truth[1]
    assert detector.matched(wrong_class, truth) == 2, "boxes 0 and 2 coincide, so each finds the other"
    twice = torch.tensor([0, 0]), torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9]])
    assert detector.matched(twice, truth) == 1, "one object is found once"
    assert detector.matched(truth, (cls[:0], truth[1][:0])) == 0


def test_best_boxes_drop_near_duplicates(detector: ModuleType) -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 10], [30, 30, 40, 40]])
    cls = torch.tensor([0, 0, 1, 0])
    kept_cls, kept = detector.best_boxes(torch.tensor([0.9, 0.8, 0.7, 0.6]), cls, boxes, 10)
    assert kept_cls.tolist() == [0, 1, 0]
    assert kept[2].tolist() == [30, 30, 40, 40]
    assert len(detector.best_boxes(torch.tensor([0.9, 0.8, 0.7, 0.6]), cls, boxes, 1)[0]) == 1
    assert len(detector.best_boxes(torch.tensor([0.9, 0.8, 0.7, 0.6]), cls, boxes, 0)[0]) == 0
