"""Train one Ultralytics model from scratch with the stock loader and with ours, several seeds each; compare mAP.

Run it on an idle machine: python benchmarks/training/parity_ultralytics.py DATA.yaml -o result.json
Every run is a process of its own; contenders alternate. Equal training means that the means differ by no more than the
seeds of one loader do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runs import CONTENDERS, absolute_data, compare


def train(args: argparse.Namespace) -> dict[str, Any]:
    """One training, in this process; returns its final metrics."""
    from ultralytics import YOLO

    from fastyolo_data.integrations.ultralytics import FastDetectionTrainer

    options: dict[str, Any] = {} if args.contender == "stock" else {"trainer": FastDetectionTrainer}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fastyolo-parity-") as project:
        data = absolute_data(args.data, Path(project) / "data.yaml")
        model = YOLO(args.model)
        model.train(
            data=data, epochs=args.epochs, imgsz=args.imgsz, batch=args.batch, seed=args.seed, device="cpu",
            val=False, plots=False, pretrained=False, project=project, close_mosaic=args.epochs // 5, verbose=False,
            save=True, exist_ok=True, amp=False, warmup_epochs=1, **options,
        )  # fmt: skip
        ours = type(model.trainer.train_loader).__module__.startswith("fastyolo_data")
        # The same stock validation for both, so that only training differs.
        metrics = YOLO(model.trainer.last).val(data=data, imgsz=args.imgsz, batch=16, device="cpu", plots=False,
                                               verbose=False, project=project)  # fmt: skip
    return {
        "ours": ours,
        "mAP50": round(float(metrics.box.map50), 4),
        "mAP50-95": round(float(metrics.box.map), 4),
        "seconds": round(time.perf_counter() - began, 1),
    }


def run_apart(args: argparse.Namespace, contender: str, seed: int) -> dict[str, Any]:
    """One training in a process of its own."""
    command = [
        sys.executable, __file__, args.data, "--contender", contender, "--seed", str(seed), "--model", args.model,
        "--epochs", str(args.epochs), "--imgsz", str(args.imgsz), "--batch", str(args.batch),
    ]  # fmt: skip
    # Without network, installation or settings in the home folder.
    quiet = {"YOLO_AUTOINSTALL": "False", "YOLO_OFFLINE": "True", "YOLO_CONFIG_DIR": tempfile.gettempdir()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**quiet, **os.environ})
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Parse arguments; with --contender do one run and print it as JSON, else do all and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data.yaml")
    parser.add_argument("--model", default="yolo11n.yaml")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--imgsz", type=int, default=224)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    args.data = str(Path(args.data).resolve())
    if args.contender:
        print(json.dumps(train(args)))
        return
    settings = {k: getattr(args, k) for k in ("model", "epochs", "imgsz", "batch", "seeds")}
    compare(lambda contender, seed: run_apart(args, contender, seed), args.seeds, settings, args.output)


if __name__ == "__main__":
    main()
