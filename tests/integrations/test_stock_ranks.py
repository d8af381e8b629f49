"""create_dataloader of YOLOv5 and YOLOv9, patched, in two ranks that torchrun starts through `fastyolo run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch.utils.data import DistributedSampler

from tests.conftest import write_set

N = 23


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["yolov5", "yolov9"])
def test_two_ranks(stock_env, tmp_path, kind):
    images = write_set(tmp_path / "set", "boxes", n=N).parent / "images" / "train"
    module = "yolov5.utils.dataloaders" if kind == "yolov5" else "utils.dataloaders"
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0", "--rdzv_backend", "c10d"]
    script = Path(__file__).with_name("stock_rank.py")
    command = ["-m", "fastyolo_data", "run", *torchrun, "--rdzv_endpoint", "127.0.0.1:0", script]
    places = [str(stock_env.packages / "yolov9")] if kind == "yolov9" else []
    done = stock_env.run([*command, module, images, tmp_path, *places], tmp_path, timeout=550)
    assert done.returncode == 0, done.stdout[-6000:]
    first, second = (json.loads((tmp_path / f"rank{r}.json").read_text()) for r in range(2))
    assert {first["loader"], second["loader"]} == {"fastyolo_data.loader"}
    assert done.stdout.count(f"fastyolo_data: replaces {module}.create_dataloader") == 1  # one rank says it
    assert done.stdout.count(f"{N} images by {kind} rules") == 1

    # One rank read the labels while the other waited for its cache, and no collective was held meanwhile: a slow scan
    # must not run into the time limit of the process group.
    assert sorted([first["scanned"], second["scanned"]]) == [0, 1]
    assert first["before"] == second["before"] == first["during"] == second["during"] == []

    share = len(DistributedSampler(range(N), num_replicas=2, rank=0))
    assert first["lengths"] == second["lengths"] == [3, share, N, N]
    for mine, theirs in zip(first["epochs"], second["epochs"], strict=True):
        assert mine["sizes"] == theirs["sizes"] == [4, 4, 4]
        together = mine["paths"] + theirs["paths"]
        assert len(set(together)) == N  # every image, one of them twice so that both ranks have equally many
        assert len(mine["paths"]) == len(theirs["paths"]) == share
    zero, one, again = (e["paths"] for e in first["epochs"])
    assert zero == again != one
