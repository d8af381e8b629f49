"""`fastyolo bench --together` and benchmarks/compare_cache_modes.py: all cache modes in one round."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from fastyolo_data.cli.bench.command import _combinations
from fastyolo_data.cli.bench.files import disk_usage, drop_page_cache
from fastyolo_data.cli.bench.measure import Result
from fastyolo_data.cli.bench.report import document, table
from tests.store.support import write_pictures

ROOT = Path(__file__).parents[2]


def test_disk_usage_counts_links_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(1 << 20))
    one = disk_usage(tmp_path)
    os.link(tmp_path / "a", tmp_path / "b")
    assert disk_usage(tmp_path) == one >= 1 << 20
    drop_page_cache(tmp_path)
    assert len((tmp_path / "b").read_bytes()) == 1 << 20


def test_a_stock_loader_runs_once_per_mode_of_its_own() -> None:
    modes = ["none", "ram", "memmap", "lmdb", "lmdb-jpeg"]
    assert _combinations(["ours", "ultralytics"], modes) == [
        *(("ours", mode) for mode in modes),
        ("ultralytics", "none"),
        ("ultralytics", "ram"),
        ("ultralytics", "disk"),
    ]


def result(adapter: str, cache: str, speed: float) -> Result:
    """A measured contender."""
    made = {"images": speed, "seconds": 1.0, "cpu_seconds": 1.0, "other_cores": 0.0}
    times = {"build_seconds": 2.0, "first_batch_seconds": 1.0, "since_start": 3.0}
    return Result(
        adapter, cache, cold=times, warm=times, passes=[made, made], disk_bytes=7_000_000,
        uncached_epoch={"images_per_second": 50.0}, memory={"metric": "pss", "peak": 9, "baseline": 4},
    )  # fmt: skip


def test_table_has_every_mode_and_every_ratio() -> None:
    results = [result("ours", "ram", 600), result("ours", "memmap", 500), result("ultralytics", "ram", 100)]
    content = document(
        results, command="", commit=None, started="", machine={}, settings={"together": True}, dataset={}
    )
    text = table(content)
    assert "ours ram / ultralytics ram: 6.00x" in text
    assert "ours memmap / ultralytics ram: 5.00x" in text
    assert "cold img/s" in text
    assert "7.0" in text


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("compare", ROOT / "benchmarks" / "compare_cache_modes.py")
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    data = write_pictures(tmp_path, 16)
    out = tmp_path / "out.json"
    options = {"--imgsz": 96, "--batch": 4, "--passes": 1, "--seconds": 0.2, "--only": "ours", "--cache": "none,memmap"}
    arguments = [str(part) for option in {**options, "--json": out}.items() for part in option]
    assert compare.run([str(data), *arguments]) == 0
    content = json.loads(out.read_text())
    assert [r["cache"] for r in content["results"]] == ["none", "memmap"]
    stored = {r["cache"]: r["disk_bytes"] for r in content["results"]}
    assert stored["memmap"] > stored["none"] + 100_000
    assert all(r["uncached_epoch"]["images_per_second"] > 0 for r in content["results"])
