"""What real trainings with YOLOv5 and YOLOv9 need, as small as their code takes it, and a way to start them."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

from tests.conftest import SHARED, write_set
from tests.stock_env import StockEnv

JOBS = Path(__file__).with_name("stock_jobs.py")

# A stem, three scales and a head: everything that the code looks for in a model, at a few percent of YOLOv5n's work.
YOLOV5 = """
nc: 80
depth_multiple: 1.0
width_multiple: 1.0
anchors: [[10, 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119], [116, 90, 156, 198, 373, 326]]
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C3, [16]]
  - [-1, 1, Conv, [32, 3, 2]]
  - [-1, 1, Conv, [32, 3, 2]]
  - [-1, 1, Conv, [32, 3, 2]]
head:
  - [[3, 4, 5], 1, HEAD]
"""

YOLOV9 = """
nc: 80
depth_multiple: 1.0
width_multiple: 1.0
anchors: 3
backbone:
  - [-1, 1, Silence, []]
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, ADown, [16]]
  - [-1, 1, RepNCSPELAN4, [32, 16, 8, 1]]
  - [-1, 1, ADown, [32]]
  - [-1, 1, ADown, [32]]
head:
  - [4, 1, Conv, [16, 1, 1]]
  - [5, 1, Conv, [16, 1, 1]]
  - [6, 1, Conv, [16, 1, 1]]
HEAD
"""

YOLOV9_DETECT = """
  - [[4, 5, 6, 7, 8, 9], 1, DualDDetect, [nc]]
"""

YOLOV9_SEGMENT = """
  - [2, 1, Conv, [16, 1, 1]]
  - [2, 1, Conv, [16, 1, 1]]
  - [[4, 5, 6, 7, 8, 9, 10, 11], 1, DualDSegment, [nc, 32, 16]]
"""

HYP = """
lr0: 0.01
lrf: 0.1
momentum: 0.937
weight_decay: 0.0005
warmup_epochs: 1.0
warmup_momentum: 0.8
warmup_bias_lr: 0.1
cls_pw: 1.0
obj: 1.0
obj_pw: 1.0
iou_t: 0.2
anchor_t: 4.0
fl_gamma: 0.0
hsv_h: 0.015
hsv_s: 0.7
hsv_v: 0.4
degrees: 5.0
translate: 0.1
scale: 0.5
shear: 0.0
perspective: 0.0
flipud: 0.1
fliplr: 0.5
mosaic: 0.8
mixup: 0.2
copy_paste: 0.0
"""


def write_models(folder: Path) -> Path:
    """Write v5.yaml, v5-seg.yaml, v9-dual.yaml, v9-dual-seg.yaml, hyp5.yaml and hyp9.yaml; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "v5": YOLOV5.replace("HEAD", "Detect, [nc, anchors]"),
        "v5-seg": YOLOV5.replace("HEAD", "Segment, [nc, anchors, 32, 16]"),
        "v9-dual": YOLOV9.replace("HEAD", YOLOV9_DETECT),
        "v9-dual-seg": YOLOV9.replace("HEAD", YOLOV9_SEGMENT),
        "hyp5": HYP + "box: 0.05\ncls: 0.5\n",
        "hyp9": HYP + "box: 7.5\ncls: 0.5\ndfl: 1.5\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def write_data(folder: Path, name: str, kind: str) -> Path:
    """Copy the first 16 training and 8 validation images of a shared set, or generate as many; its yaml.

    Args:
        folder: where to; does not exist.
        name: of the set in ../shared/data.
        kind: "boxes" or "polygons", for the generated set.
    """
    source = SHARED / "data" / name
    if not source.is_dir():
        write_set(folder, kind, n=16)
        names = "[a, b, c]"
    else:
        for split, count in (("train", 16), ("val", 8)):
            for image in sorted((source / "images" / split).iterdir())[:count]:
                label = source / "labels" / split / f"{image.stem}.txt"
                for file in (image, label):
                    copy = folder / file.relative_to(source)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, copy)
        names = json.dumps(read_names(source / f"{name}.yaml"))
    path = folder / "data.yaml"
    path.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {names}\n", encoding="utf-8")
    return path


def read_names(path: Path) -> list[str]:
    """Class names of a data.yaml."""
    import yaml

    names = yaml.safe_load(path.read_text(encoding="utf-8"))["names"]
    return list(names.values()) if isinstance(names, dict) else names


def run_jobs(env: StockEnv, cwd: Path, jobs: list[dict[str, Any]], path: Path | None = None) -> tuple[list[Any], str]:
    """Carry out jobs of stock_jobs.py through `fastyolo run`; their results and everything that was printed."""
    extra = ["--path", path] if path else []
    done = env.run(["-m", "fastyolo_data", "run", JOBS, json.dumps(jobs), *extra], cwd, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:]
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("RESULTS ")]
    return json.loads(line.removeprefix("RESULTS ")), done.stdout


def results(folder: Path) -> list[dict[str, float]]:
    """The rows of a results.csv; all numbers are finite. YOLOv5's segmentation adds a short one at the end."""
    with (folder / "results.csv").open(encoding="utf-8") as f:
        rows = [{k.strip(): float(v) for k, v in row.items() if v is not None} for row in csv.DictReader(f)]
    assert all(math.isfinite(v) for row in rows for v in row.values())
    return rows


def assert_same_validation(found: dict[str, Any], images: int) -> None:
    """Both loaders gave the same predictions and metrics, and each was used when it was its turn."""
    assert found["unpatched"]
    assert found["ours"]["counts"].keys() == {"ours"}
    assert found["stock"]["counts"] == {"stock": images}
    assert len(found["predictions"]) == images
    assert all(found["predictions"])
    assert found["same_predictions"]
    for ours, stock in zip(found["ours"]["metrics"], found["stock"]["metrics"], strict=True):
        assert abs(ours - stock) <= 1e-4
