"""Two ranks. Ultralytics starts DDP on accelerators only, so its loaders are built under gloo on the CPU here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ultralytics", reason="the drop-in needs the package: pip install ultralytics")

from tests.conftest import write_set
from tests.integrations.ultralytics_sets import absolute

WORLD = 2


def test_two_ranks(tmp_path):
    yaml = absolute(write_set(tmp_path / "set", "boxes", n=23))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for rank in range(WORLD):
        env = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(Path(__file__).parents[2]),
        }  # fmt: skip
        command = [sys.executable, str(Path(__file__).with_name("ultralytics_rank.py")), str(yaml), str(tmp_path)]
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [process.communicate(timeout=240)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(outputs)
    results = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(WORLD)]
    assert [r["batches"] for r in results] == [3, 3]
    for r in results:
        assert r["samples"] == r["stock_samples"]
        assert r["val"] == r["val_order"] == r["stock_val"]
        for epoch in r["epochs"]:
            assert epoch["files"] == epoch["order"]
        assert r["epochs"][0]["files"] != r["epochs"][1]["files"]
    for e in range(2):
        files = results[0]["epochs"][e]["files"] + results[1]["epochs"][e]["files"]
        assert len(files) == 24
        assert len(set(files)) == 23  # one image twice, so that both ranks have equally many
    assert len(results[0]["val"] + results[1]["val"]) == len({*results[0]["val"], *results[1]["val"]}) == 11
