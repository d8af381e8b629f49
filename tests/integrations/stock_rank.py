"""One rank of a training of YOLOv5 or YOLOv9 as far as its loader goes, under torchrun with gloo.

    torchrun --nproc_per_node 2 stock_rank.py MODULE IMAGES OUT [FOLDER]

FOLDER holds the code if it is not a package. Writes OUT/rank<r>.json. The training scripts themselves refuse to run
on several CPUs.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from fastyolo_data.labels import scan

HYP = {"mosaic": 1.0, "mixup": 0.1, "fliplr": 0.5, "hsv_h": 0.015, "hsv_s": 0.7, "hsv_v": 0.4, "scale": 0.5}
TRACED = ("barrier", "all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list")


def main(module: str, images: str, out: str, folder: str | None = None) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo")
    sys.path[:0] = [folder] if folder else []
    code = importlib.import_module(module)
    said: dict[str, Any] = {"collectives": [], "scanned": 0}
    for name in TRACED:
        setattr(dist, name, _traced(getattr(dist, name), said["collectives"], name))
    original = scan.read_files

    def read_files(*args: Any, **kwargs: Any) -> Any:
        said["scanned"] += 1
        time.sleep(0.5)  # so that the ranks overlap
        return original(*args, **kwargs)

    scan.read_files = read_files
    options = {"hyp": HYP, "augment": True, "rank": rank, "workers": 2, "shuffle": True, "cache": "ram"}
    loader, dataset = code.create_dataloader(images, 64, 4, 32, **options)
    said["loader"] = type(loader).__module__
    said["before"] = list(said["collectives"])
    said["lengths"] = [len(loader), len(loader.sampler), len(dataset), len(dataset.labels)]
    said["epochs"] = []
    for epoch in (0, 1, 0):
        loader.sampler.set_epoch(epoch)
        batches = list(loader)
        paths = [Path(p).name for b in batches for p in b[2]]
        said["epochs"].append({"paths": paths, "sizes": [len(b[2]) for b in batches]})
    said["during"] = list(said["collectives"])
    (Path(out) / f"rank{rank}.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


def _traced(function: Any, calls: list[str], name: str) -> Any:
    def traced(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return function(*args, **kwargs)

    return traced


if __name__ == "__main__":
    main(*sys.argv[1:])
