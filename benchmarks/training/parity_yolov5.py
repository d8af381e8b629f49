"""Train YOLOv5n from scratch with the stock loader and with ours, several seeds each; compare mAP.

In an environment with yolov5==7.0.14 (see tests/stock_env.py), on an idle machine:
python benchmarks/training/parity_yolov5.py DATA.yaml -o result.json
Every run is a process of its own, `python -m yolov5.train` or `python -m fastyolo_data run -m yolov5.train`; contenders
alternate. Equal training means that the means differ by no more than the seeds of one loader do.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from runs import absolute_data, compare


def run(args: argparse.Namespace, contender: str, seed: int) -> dict[str, Any]:
    """One training; returns the metrics of its last weights, and whether our loader served it."""
    with tempfile.TemporaryDirectory(prefix="fastyolo-parity-") as folder:
        home = Path(folder)
        command = [sys.executable, *([] if contender == "stock" else ["-m", "fastyolo_data", "run"])]
        command += [
            "-m", "yolov5.train", "--weights", "", "--cfg", str(_package() / "models" / args.model),
            "--epochs", str(args.epochs),
            "--data", str(absolute_data(args.data, home / "data.yaml")), "--imgsz", str(args.imgsz),
            "--batch-size", str(args.batch), "--seed", str(seed), "--workers", str(args.workers), "--device", "cpu",
            "--project", folder, "--name", "run", "--noplots", "--optimizer", "AdamW", "--hyp", str(_hyp(home)),
        ]  # fmt: skip
        began = time.perf_counter()
        log = _call(command, home)
        seconds = time.perf_counter() - began
        # Stock validation of both; one image at a time, as NMS has a time limit per batch that a busy machine exceeds.
        table = _call(
            [
                sys.executable, "-m", "yolov5.val", "--weights", str(home / "run" / "weights" / "last.pt"), "--data",
                str(home / "data.yaml"), "--imgsz", str(args.imgsz), "--batch-size", "1", "--device", "cpu",
                "--project", folder, "--name", "val",
            ],
            home,
        )  # fmt: skip
        map50, map_ = re.findall(r"^ +all(?: +[\d.e-]+){4} +([\d.e-]+) +([\d.e-]+)", table, re.MULTILINE)[-1]
    return {
        "ours": "images by yolov5 rules" in log,
        "mAP50": float(map50),
        "mAP50-95": float(map_),
        "seconds": round(seconds, 1),
    }


def _call(command: list[str], home: Path) -> str:
    """Run a script of the package; return what it logged."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(home), cwd=home)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stderr


def _package() -> Path:
    import yolov5

    return Path(yolov5.__file__).parent


def _hyp(home: Path) -> Path:
    """The low-augmentation hyper-parameters of the package, with a learning rate for AdamW and few epochs."""
    hyp = yaml.safe_load((_package() / "data" / "hyps" / "hyp.scratch-low.yaml").read_text(encoding="utf-8"))
    path = home / "hyp.yaml"
    path.write_text(yaml.safe_dump({**hyp, "lr0": 0.002, "warmup_epochs": 1.0}), encoding="utf-8")
    return path


def _environment(home: Path) -> dict[str, str]:
    """What yolov5 7.0.14 needs with a present torch and without network: a font, and checkpoints that hold classes."""
    import matplotlib

    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    shutil.copy(fonts / "DejaVuSans.ttf", home / "Arial.ttf")
    settings = {"YOLOV5_CONFIG_DIR": str(home), "YOLO_CONFIG_DIR": str(home), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
                "WANDB_MODE": "disabled", "YOLO_OFFLINE": "True"}  # fmt: skip
    return {**os.environ, **settings}


def main() -> None:
    """Parse arguments, do all runs and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data.yaml")
    parser.add_argument("--model", default="yolov5n.yaml")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--imgsz", type=int, default=192)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    settings = {k: getattr(args, k) for k in ("model", "epochs", "imgsz", "batch", "workers", "seeds")}
    compare(lambda contender, seed: run(args, contender, seed), args.seeds, settings, args.output)


if __name__ == "__main__":
    main()
