"""Real training runs of the installed Ultralytics with our loader, on the CPU."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
import torch

pytest.importorskip("ultralytics", reason="the drop-in needs the package: pip install ultralytics")

from ultralytics import YOLO
from ultralytics.models.yolo.detect import train as detect_train
from ultralytics.utils import LOGGER

import fastyolo_data
from fastyolo_data.integrations import ultralytics as fast
from fastyolo_data.integrations.ultralytics import FastDataLoader
from tests.integrations.ultralytics_sets import Arguments, absolute

# task: real set, generated set, model, trainer
TASKS = {
    "detect": ("bccd", "generated_boxes", "yolo11n.yaml", "FastDetectionTrainer"),
    "segment": ("coco_ccby_seg", "generated_polygons", "yolo11n-seg.yaml", "FastSegmentationTrainer"),
    "pose": ("mouse_pose", "generated_pose", "yolo11n-pose.yaml", "FastPoseTrainer"),
    "obb": ("hit_uav_obb", "generated_obb", "yolo11n-obb.yaml", "FastOBBTrainer"),
}


@dataclass
class Watch:
    """What happened in a run: the files of every epoch in the order of delivery, and warnings."""

    files: list[list[str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def trainer(self, base: type) -> type:
        """A trainer class that notes the batches it gets."""
        watch = self

        class Watched(base):
            def preprocess_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
                while len(watch.files) <= self.epoch:
                    watch.files.append([])
                watch.files[self.epoch] += batch["im_file"]
                return super().preprocess_batch(batch)

        return Watched

    def __enter__(self) -> Watch:
        self._handler = logging.Handler(logging.WARNING)
        self._handler.emit = lambda record: self.complaints.append(record.getMessage())
        LOGGER.addHandler(self._handler)
        self._caught = warnings.catch_warnings(record=True)
        self._warned = self._caught.__enter__()
        warnings.simplefilter("always")
        return self

    def __exit__(self, *_: Any) -> None:
        self._caught.__exit__(None, None, None)
        LOGGER.removeHandler(self._handler)
        self.complaints += [f"{w.category.__name__}: {w.message}" for w in self._warned]


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """The stock package with our loader in it."""
    assert "ultralytics.data.build.build_dataloader" in fastyolo_data.patch("ultralytics")
    try:
        yield
    finally:
        fastyolo_data.unpatch()


class Interrupted(Exception):
    """A run that is stopped by force."""


@pytest.fixture(scope="module")
def sets(request, shared_copy):
    """Function: task -> yaml of a real set, or of a generated one."""

    def find(task: str) -> Path:
        real, generated, _, _ = TASKS[task]
        if (Path(__file__).resolve().parents[3] / "shared" / "data" / real).is_dir():
            return shared_copy(real)
        return request.getfixturevalue(generated)

    return find


def options(yaml: Path, folder: Path, **kw: Any) -> dict[str, Any]:
    """Arguments of a short run."""
    return {
        "data": str(absolute(yaml)), "imgsz": 64, "batch": 8, "device": "cpu", "project": str(folder), "exist_ok": True,
        "workers": 2, "close_mosaic": 1, "epochs": 3, "plots": True, "verbose": False, **kw,
    }  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_train_interrupt_resume_validate(task, sets, tmp_path):
    _, _, model, trainer = TASKS[task]
    args = options(sets(task), tmp_path, name="run", fraction=[15, 6])

    def interrupt(trainer: Any) -> None:
        if trainer.epoch == 1:
            raise Interrupted

    with Watch() as first:
        yolo = YOLO(model)
        yolo.add_callback("on_train_epoch_start", interrupt)
        with pytest.raises(Interrupted):
            yolo.train(trainer=first.trainer(getattr(fast, trainer)), **{**args, "plots": False})
    run = yolo.trainer
    assert type(run.train_loader) is type(run.test_loader) is FastDataLoader
    n = len(run.train_loader.dataset)
    assert [len(f) for f in first.files] == [n]
    assert run.train_loader.stats()["samples"] == n
    assert run.test_loader.stats()["samples"] == len(run.test_loader.dataset)

    with Watch() as second:
        yolo = YOLO(tmp_path / "run" / "weights" / "last.pt")
        yolo.train(trainer=second.trainer(getattr(fast, trainer)), resume=True, plots=True)
    run = yolo.trainer
    assert [len(f) for f in second.files] == [0, n, n]
    assert run.train_loader.stats()["samples"] == 2 * n
    assert run.test_loader.stats()["samples"] == 3 * len(run.test_loader.dataset)  # two epochs and the best weights
    order = Arguments(sets(task), task=task, imgsz=64, batch=8, fraction=[15, 6])
    loader = order.loader(order.dataset("train"))
    for epoch, files in enumerate((first.files[0], *second.files[1:])):  # goes on in the order of an unbroken run
        loader.set_epoch(epoch)
        assert [loader.dataset.im_files[i] for i in loader.sampler] == files
    assert (tmp_path / "run" / "train_batch4.jpg").is_file()  # the first batch without mosaic
    assert (tmp_path / "run" / "val_batch0_labels.jpg").is_file()
    assert len((tmp_path / "run" / "results.csv").read_text().splitlines()) == 4

    with Watch() as stock:
        YOLO(model).train(**{**args, "name": "stock", "epochs": 1, "plots": False})
    assert {_kind(c) for c in first.complaints + second.complaints} <= {_kind(c) for c in stock.complaints}


def _kind(complaint: str) -> str:
    return complaint[:40]


def test_stock_trainer_through_patch(generated_boxes, tmp_path):
    stock = detect_train.build_yolo_dataset, detect_train.build_dataloader
    args = options(generated_boxes, tmp_path, epochs=1, plots=False)
    with patched(), Watch() as watch:
        yolo = YOLO("yolo11n.yaml")
        yolo.train(trainer=watch.trainer(detect_train.DetectionTrainer), **args)
    assert (detect_train.build_yolo_dataset, detect_train.build_dataloader) == stock
    assert type(yolo.trainer.train_loader) is type(yolo.trainer.test_loader) is FastDataLoader
    assert [len(f) for f in watch.files] == [24]
    assert yolo.trainer.train_loader.stats()["samples"] == 24


def test_the_yolo_command_with_our_options(generated_boxes, tmp_path):
    args = options(generated_boxes, tmp_path, epochs=1, plots=False, name="command")
    words = [f"{k}={v}" for k, v in args.items()]
    ours = ["fastyolo.cache=memmap", f"fastyolo.cache_dir={tmp_path}", "fastyolo.workers=2"]
    command = [sys.executable, "-m", "fastyolo_data", "yolo", "detect", "train", "model=yolo11n.yaml", *words, *ours]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    assert "Using 2 dataloader workers" in done.stdout  # on the CPU the stock code has none
    assert list(tmp_path.rglob("*.tiles")), sorted(tmp_path.iterdir())
    assert (tmp_path / "command" / "weights" / "best.pt").is_file()


def environment() -> dict[str, str]:
    """For processes that must import the package that is tested here."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def test_trainer_class_in_the_file_of_ddp(sets, tmp_path):
    """Ultralytics pickles the class of the trainer for its subprocesses; the file it writes is run here as it would."""
    pytest.importorskip("cloudpickle", reason="Ultralytics pickles with it: pip install cloudpickle")
    from ultralytics.utils.dist import generate_ddp_file

    args = options(sets("detect"), tmp_path, name="ddp", fraction=16, epochs=1, plots=False, val=False)
    yolo = YOLO("yolo11n.yaml")
    trainer = fast.FastDetectionTrainer(overrides={**args, "model": "yolo11n.yaml"}, _callbacks=yolo.callbacks)
    file = Path(generate_ddp_file(trainer))
    script = file.read_text() + (
        "    from fastyolo_data.integrations.ultralytics import FastDataLoader\n"
        "    assert type(trainer.train_loader) is FastDataLoader\n"
        "    print('samples', trainer.train_loader.stats()['samples'])\n"
    )
    file.write_text(script)
    try:
        done = subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
            env=environment(),
        )  # fmt: skip
    finally:
        file.unlink()
        file.with_suffix(".pt").unlink()
    assert done.returncode == 0, done.stderr
    assert "samples 16" in done.stdout


def test_memory_running_out_in_the_first_epoch(generated_boxes, tmp_path, monkeypatch):
    """Ultralytics closes the train loader, halves the batch and builds both loaders anew."""
    args = options(generated_boxes, tmp_path, epochs=1, plots=False, val=False)

    class Small(fast.FastDetectionTrainer):
        seen: ClassVar[list[int]] = []

        def preprocess_batch(self, batch):
            self.seen.append(len(batch["img"]))
            if len(self.seen) == 1:
                raise RuntimeError("CUDA out of memory. (said by a test)")
            return super().preprocess_batch(batch)

    yolo = YOLO("yolo11n.yaml")
    yolo.train(trainer=Small, **args)
    assert Small.seen == [8, *[4] * 6]
    assert yolo.trainer.train_loader.stats()["samples"] == 24


def test_what_plots_callbacks_and_autobatch_touch(generated_boxes, tmp_path):
    from ultralytics.utils.torch_utils import unwrap_model

    args = options(generated_boxes, tmp_path, epochs=1, plots=True)
    trainer = fast.FastDetectionTrainer(overrides={**args, "model": "yolo11n.yaml"})
    trainer._setup_train()
    labels = [len(label["cls"]) for label in trainer.build_dataset(trainer.data["train"], "train", 16).labels]
    assert max(labels) > 0
    assert (Path(trainer.save_dir) / "labels.jpg").is_file()
    assert trainer.get_class_counts().sum() == sum(labels)
    assert len(trainer.train_loader.dataset) == 24  # comet, events
    validator = trainer.get_validator()
    for batch in itertools.islice(validator.dataloader, 1):  # comet reads some batches of it and leaves
        assert len(batch["im_file"]) == 12
    assert list(validator.dataloader.sampler) == list(range(12))
    trainer._close_dataloader_mosaic()
    assert trainer.train_loader.dataset.fast_hyp.mosaic == 0
    assert unwrap_model(trainer.model).stride.max() == 32
    trainer.train_loader.close()
    trainer.test_loader.close()


def _labelled_by_itself(images: list[Path], model: YOLO, root: Path) -> Path:
    """A validation set whose labels are what an untrained model finds, so that its metrics are not zero."""
    batch = np.stack([cv2.resize(cv2.imread(str(f)), (96, 96)) for f in images])
    net = model.model
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        net.train()(torch.from_numpy(batch[..., ::-1].transpose(0, 3, 1, 2).copy()).float() / 255)
    net.eval()
    for branch in net.model[-1].cv3:
        branch[-1].bias.data[:] = -20.0
        branch[-1].bias.data[:3] = -2.0  # three classes will do: suppression of 80 takes minutes
    for folder in ("images", "labels"):
        (root / folder / "val").mkdir(parents=True)
    for f in images:
        result = model.predict(str(f), imgsz=96, conf=0.02, max_det=6, device="cpu", verbose=False)[0]
        (root / "labels" / "val" / f"{f.stem}.txt").write_text("\n".join(_rows(result)) + "\n")
        shutil.copy(f, root / "images" / "val" / f.name)
    keypoints = "\nkpt_shape: [17, 3]" if model.task == "pose" else ""
    yaml = root / "data.yaml"
    yaml.write_text(
        f"path: {root}\ntrain: images/val\nval: images/val\nnames: {list(model.names.values())}{keypoints}\n"
    )
    return yaml


def _rows(result: Any) -> list[str]:
    """Label rows of a prediction, inside the picture."""
    found = result.obb if result.obb is not None else result.boxes
    values = found.xyxyxyxyn.reshape(-1, 8) if result.obb is not None else found.xywhn
    if result.masks is not None:
        values = [torch.from_numpy(xy).ravel() for xy in result.masks.xyn]
    if result.keypoints is not None:
        points = torch.cat((result.keypoints.xyn, torch.full((len(values), 17, 1), 2.0)), 2)
        points[..., :2] = points[..., :2].clamp(0, 1)
        values = torch.cat((values, points.reshape(-1, 51)), 1)
    high = 2.0 if result.keypoints is not None else 1.0
    rows = zip(found.cls.int().tolist(), values, strict=True)
    return [f"{c} " + " ".join(f"{v:.5f}" for v in row.clamp(0, high).tolist()) for c, row in rows if len(row)]


@pytest.mark.parametrize("task", TASKS)
def test_metrics_of_the_same_weights(task, sets, tmp_path):
    torch.manual_seed(0)
    model = YOLO(TASKS[task][2])
    images = sorted((sets(task).parent / "images" / "val").iterdir())[:8]
    yaml = _labelled_by_itself(images, model, tmp_path / "set")
    args = {"data": str(yaml), "imgsz": 96, "batch": 3, "device": "cpu", "plots": False, "verbose": False, "conf": 0.02}
    for rect in (True, False):
        stock = model.val(**args, rect=rect, project=str(tmp_path), name="stock").results_dict
        served: list[Any] = []
        model.add_callback("on_val_end", lambda validator, served=served: served.append(validator.dataloader))
        with patched():
            ours = model.val(**args, rect=rect, project=str(tmp_path), name="ours").results_dict
        assert [type(loader) for loader in served] == [FastDataLoader]
        assert served[0].stats()["samples"] == len(images)
        model.clear_callback("on_val_end")
        assert stock["metrics/mAP50(B)"] > 0.001
        assert ours == pytest.approx(stock, abs=1e-4)
