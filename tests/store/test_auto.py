"""cache="auto": the decision as a function of numbers, and the line that says why."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from fastyolo_data import build_dataset, build_loader
from fastyolo_data.store import Numbers, decide
from tests.store.support import write_pictures

GB = 10**9
USUAL = Numbers(images=5_000, decode=2e-3, bytes=5 * GB, memory=24 * GB, limit="MemAvailable", disk=80 * GB, threads=2)


@pytest.mark.parametrize(
    ("change", "cache", "why"),
    [
        ({}, "ram", "fit into memory"),
        ({"bytes": 15 * GB}, "memmap", "too large for arrays"),
        ({"bytes": 15 * GB, "disk": 10 * GB}, "none", "too large for memory and disk"),
        ({"memory": 2 * GB}, "none", "would not beat decoding"),
        ({"memory": 2 * GB, "decode": 30e-3}, "memmap", "still faster than decoding"),
        ({"memory": 2 * GB, "decode": 30e-3, "disk": GB}, "none", "would not beat decoding"),
        ({"decode": 1e-4}, "none", "caching would not help"),
        ({"stored": True}, "memmap", "there already"),
        ({"stored": True, "memory": 2 * GB}, "none", "would not beat decoding"),
        ({"ranks": 8}, "memmap", "the ranks share"),
        ({"ranks": 2, "disk": 0}, "ram", "fit into memory"),
        ({"images": 0, "bytes": 0, "decode": 0.0}, "none", "would not help"),
    ],
)
def test_decisions(change: dict, cache: str, why: str) -> None:
    decision = decide(replace(USUAL, **change))
    assert decision.cache == cache
    assert why in decision.reason


def test_the_line_has_the_numbers() -> None:
    assert decide(USUAL).reason.startswith(
        "5,000 images, 2.0 ms to decode one, 5 GB as tiles, 24 GB memory (MemAvailable) and 80 GB disk free: "
    )


def test_auto_decides_when_the_loader_is_built(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastyolo_data")
    data = write_pictures(tmp_path, 6)
    dataset = build_dataset(data, imgsz=96, verbose=False)
    dataset.load_image(0), dataset[1]
    assert "cache='auto'" not in caplog.text, "single samples are not worth a cache"
    with build_loader(data, imgsz=96, verbose=False) as loader:
        assert len(next(iter(loader))["img"])
    lines = [r.message for r in caplog.records if "cache='auto' is" in r.message]
    assert len(lines) == 1
    assert "6 images" in lines[0]
    assert "train: " in lines[0]
