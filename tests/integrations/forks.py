"""Stand-ins for forks of YOLOv5, YOLOv7 and YOLOv9: their module layout, the signatures and nothing more."""

from __future__ import annotations

from pathlib import Path

DATA_MODULE = {"yolov5": "dataloaders", "yolov7": "datasets", "yolov9": "dataloaders"}

_ARGUMENTS = {
    "yolov5": "single_cls=False, hyp=None, augment=False, cache=False, pad=0.0, rect=False, rank=-1, workers=8, "
    "image_weights=False, quad=False, prefix='', shuffle=False",
    "yolov7": "opt, hyp=None, augment=False, cache=False, pad=0.0, rect=False, rank=-1, world_size=1, workers=8, "
    "image_weights=False, quad=False, prefix=''",
    "yolov9": "single_cls=False, hyp=None, augment=False, cache=False, pad=0.0, rect=False, rank=-1, workers=8, "
    "image_weights=False, close_mosaic=False, quad=False, min_items=0, prefix='', shuffle=False",
}

_DATA = '''
import math

class LoadImagesAndLabels:
    """Pictures and labels."""
    def __init__(self, path, img_size=640):
        self.path = path

    def load_image(self, i):
        return {rounding}(i)

    def __getitem__(self, i):
        return self.load_image(i)

def create_dataloader(path, imgsz, batch_size, stride, {arguments}):
    return "stock loader", LoadImagesAndLabels(path)
'''

_SEGMENT = """
from ..{data} import LoadImagesAndLabels

def polygon2mask(polygon):
    return polygon

class LoadImagesAndLabelsAndMasks(LoadImagesAndLabels):
    def __getitem__(self, i):
        return {item}

def create_dataloader(path, imgsz, batch_size, stride, {arguments}, mask_downsample_ratio=1, overlap_mask=False):
    return "stock loader", LoadImagesAndLabelsAndMasks(path)
"""

# What a training program does with the data modules; reports what it has got.
_TRAIN = """
import json, logging.config, multiprocessing, os, sys
if __name__ == "__main__":
    logging.config.dictConfig({{"version": 1, "disable_existing_loggers": True, "root": {{"level": "ERROR"}}}})
from {package}utils.{data} import create_dataloader
from {package}utils.segment.{data} import create_dataloader as create_segments

def report():
    names = {{"detect": create_dataloader, "segment": create_segments}}
    found = {{k: hasattr(f, "__wrapped__") for k, f in names.items()}}
    return {{**found, "cache": os.environ.get("FASTYOLO_CACHE"), "rank": os.environ.get("RANK")}}

def in_child(queue):
    queue.put(report())

if __name__ == "__main__":
    reports = [report()]
    if "--child" in sys.argv:
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        child = context.Process(target=in_child, args=(queue,))
        child.start()
        reports.append(queue.get(timeout=120))
        child.join()
    if "--folder" in sys.argv:
        import torch.distributed
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
        folder = sys.argv[sys.argv.index("--folder") + 1]
        with open(os.path.join(folder, os.environ["RANK"] + ".json"), "w") as file:
            json.dump(reports, file)
        torch.distributed.destroy_process_group()
    print(json.dumps(reports))
"""


def write_fork(root: Path, kind: str, package: str = "", *, rounding: str = "math.ceil", item: str = "i") -> Path:
    """Write a fork and return its folder.

    Args:
        root: folder to write into.
        kind: whose layout and signatures.
        package: name of a package around it all; without, `utils` is a package of its own as in the real ones.
        rounding: what load_image calls.
        item: what the segmentation data set returns.
    """
    values = {
        "data": DATA_MODULE[kind],
        "arguments": _ARGUMENTS[kind],
        "rounding": rounding,
        "item": item,
        "package": f"{package}." if package else "",
    }
    top = root / package
    segment = top / "utils" / "segment"
    segment.mkdir(parents=True)
    for folder in (segment, segment.parent, *([top] if package else [])):
        (folder / "__init__.py").write_text("")
    (segment.parent / f"{values['data']}.py").write_text(_DATA.format(**values))
    (segment / f"{values['data']}.py").write_text(_SEGMENT.format(**values))
    (top / "train.py").write_text(_TRAIN.format(**values))
    return top
