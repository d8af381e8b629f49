"""Train one Ultralytics model from scratch with the stock loader and with ours, several seeds each; compare mAP.

Run it on an idle machine: python benchmarks/training/parity_ultralytics.py DATA.yaml -o result.json
Every run is a process of its own; contenders alternate. Equal training means that the means differ by no more than the
seeds of one loader do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

CONTENDERS = ("stock", "fastyolo")


def train(args: argparse.Namespace) -> dict[str, Any]:
    """One training, in this process; returns its final metrics."""
    from ultralytics import YOLO

    from fastyolo_data.integrations.ultralytics import FastDetectionTrainer

    options: dict[str, Any] = {} if args.contender == "stock" else {"trainer": FastDetectionTrainer}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fastyolo-parity-") as project:
        data = _absolute(args.data, Path(project) / "data.yaml")
        model = YOLO(args.model)
        model.train(
            data=data, epochs=args.epochs, imgsz=args.imgsz, batch=args.batch, seed=args.seed, device="cpu",
            val=False, plots=False, pretrained=False, project=project, close_mosaic=args.epochs // 5, verbose=False,
            save=True, exist_ok=True, amp=False, warmup_epochs=1, **options,
        )  # fmt: skip
        served = type(model.trainer.train_loader).__module__
        # The same stock validation for both, so that only training differs.
        metrics = YOLO(model.trainer.last).val(data=data, imgsz=args.imgsz, batch=16, device="cpu", plots=False,
                                               verbose=False, project=project)  # fmt: skip
    return {
        "contender": args.contender, "seed": args.seed, "loader": served, "mAP50": round(float(metrics.box.map50), 4),
        "mAP50-95": round(float(metrics.box.map), 4), "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def _absolute(data: str, copy: Path) -> str:
    """Write a data.yaml whose path is absolute: Ultralytics looks for `path: .` in its working directory."""
    content = yaml.safe_load(Path(data).read_text(encoding="utf-8"))
    content["path"] = str(Path(data).parent / content.get("path", "."))
    copy.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(copy)


def run_all(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every seed with both loaders, one process after the other."""
    runs = []
    for seed in range(args.seeds):
        for contender in CONTENDERS:
            command = [
                sys.executable, __file__, args.data, "--contender", contender, "--seed", str(seed),
                "--model", args.model, "--epochs", str(args.epochs), "--imgsz", str(args.imgsz),
                "--batch", str(args.batch),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
            if done.returncode:
                sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            print(runs[-1], flush=True)
    return runs


def _environment() -> dict[str, str]:
    """Ultralytics without network, installation or settings in the home folder."""
    return {"YOLO_AUTOINSTALL": "False", "YOLO_OFFLINE": "True", "YOLO_CONFIG_DIR": tempfile.gettempdir(), **os.environ}


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and range of mAP per contender."""
    out = {}
    for contender in CONTENDERS:
        values = [r["mAP50"] for r in runs if r["contender"] == contender]
        mean = round(statistics.mean(values), 4)
        out[contender] = {"mAP50": values, "mean": mean, "least": min(values), "most": max(values)}
    return out


def main() -> None:
    """Parse arguments; with --contender do one run and print it as JSON, else do all and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data.yaml")
    parser.add_argument("--model", default="yolo11n.yaml")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--imgsz", type=int, default=256)
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
    runs = run_all(args)
    settings = {k: getattr(args, k) for k in ("model", "epochs", "imgsz", "batch", "seeds")}
    result = {"settings": settings, "runs": runs, "summary": summarise(runs)}
    print(json.dumps(result["summary"], indent=2))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
