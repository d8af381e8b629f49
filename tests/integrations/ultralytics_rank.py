"""One rank of a distributed run on the CPU: what the trainer's loaders deliver, as JSON. Started by a test."""

from __future__ import annotations

import json
import os
import sys

import torch.distributed as dist


def main(yaml: str, out: str) -> None:
    """Build the loaders as the trainer does, run two epochs, write down what came."""
    dist.init_process_group("gloo")
    from torch.utils.data.distributed import DistributedSampler
    from ultralytics.data.build import ContiguousDistributedSampler

    from fastyolo_data.integrations.ultralytics import FastDetectionTrainer

    rank = int(os.environ["LOCAL_RANK"])
    trainer = FastDetectionTrainer(
        overrides={"model": "yolo11n.yaml", "data": yaml, "imgsz": 64, "batch": 8, "device": "cpu", "project": out}
    )
    trainer.args.workers = 2  # the trainer sets 0 on the CPU
    train = trainer.get_dataloader(trainer.data["train"], batch_size=4, rank=rank, mode="train")
    epochs = []
    for epoch in range(2):
        train.sampler.set_epoch(epoch)
        order = [train.dataset.im_files[i] for i in train.sampler]
        files = [f for batch in train for f in batch["im_file"]]
        epochs.append({"order": order, "files": files})
    val = trainer.get_dataloader(trainer.data["val"], batch_size=4, rank=rank, mode="val")
    stock = DistributedSampler(train.dataset), ContiguousDistributedSampler(val.dataset, batch_size=4)
    result = {
        "epochs": epochs,
        "batches": len(train),
        "val": [f for batch in val for f in batch["im_file"]],
        "val_order": [val.dataset.im_files[i] for i in val.sampler],
        "stock_val": [val.dataset.im_files[i] for i in stock[1]],
        "stock_samples": [len(s) for s in stock],
        "samples": [len(train.sampler), len(val.sampler)],
    }
    train.close()
    val.close()
    with open(f"{out}/rank{rank}.json", "w") as file:
        json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
