"""The real training and validation of YOLOv5 (PyPI 7.0.14) through `fastyolo run`, on the CPU, with a tiny model."""

from __future__ import annotations

import pytest

from tests.integrations.stock_material import assert_same_validation, results, run_jobs, write_data, write_models

pytestmark = pytest.mark.timeout(900)
IMGSZ, BATCH = 96, 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folder with models, hyper-parameters and the sets boxes/ and polygons/."""
    folder = write_models(tmp_path_factory.mktemp("yolov5"))
    write_data(folder / "boxes", "bccd", "boxes")
    write_data(folder / "polygons", "coco_ccby_seg", "polygons")
    return folder


def options(place, name, kind="boxes", **more):
    """Options of one training, by their names in the script."""
    model = "v5.yaml" if kind == "boxes" else "v5-seg.yaml"
    return {
        "weights": "", "cfg": str(place / model), "hyp": str(place / "hyp5.yaml"), "imgsz": IMGSZ, "batch_size": BATCH,
        "data": str(place / kind / "data.yaml"), "device": "cpu", "workers": 0, "project": str(place / "runs"),
        "name": name, "epochs": 1, "noplots": True, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(stock_env, place):
    """Two epochs as a user starts them: what was printed, and the folder of the run."""
    given = options(place, "script", epochs=2, workers=2, save_period=1)
    del given["noplots"]
    switches = [x for k, v in given.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    script = stock_env.packages / "yolov5" / "train.py"
    done = stock_env.run(["-m", "fastyolo_data", "run", script, *switches, "--multi-scale"], place, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout, place / "runs" / "script"


def test_script_trains_with_our_loader(place, trained):
    output, folder = trained
    assert "fastyolo_data: replaces yolov5.utils.dataloaders.create_dataloader (YOLOv5 PyPI 7.0.14)" in output
    assert output.count("images by yolov5 rules") == 2
    assert len(results(folder)) == 2
    for file in ("weights/last.pt", "weights/best.pt", "labels.jpg", "train_batch0.jpg", "val_batch0_pred.jpg"):
        assert (folder / file).stat().st_size
    assert not list((place / "boxes").rglob("*.cache"))  # the label cache of the stock data set


def test_options_resume_and_validation(stock_env, place, trained):
    weights = trained[1] / "weights"
    jobs = [
        {"do": "train", "module": "yolov5.train", "options": given}
        for given in (
            options(place, "quad", cache="ram", image_weights=True, quad=True, single_cls=True),
            options(place, "rect", cache="disk", rect=True),
            {"resume": str(weights / "epoch0.pt")},
        )
    ]
    validation = {
        "data": str(place / "boxes" / "data.yaml"), "weights": str(weights / "best.pt"), "imgsz": IMGSZ,
        "batch_size": 5, "conf_thres": 1e-5, "device": "cpu", "workers": 0, "project": str(place / "val"),
    }  # fmt: skip
    jobs.append({"do": "validate", "module": "yolov5.val", "options": validation})
    (quad, rect, resumed, validated), output = run_jobs(stock_env, place, jobs)
    # Two batches of training, one of validation after the epoch and one for the best weights.
    assert quad == rect == resumed == {"ours": 4}
    assert len(results(place / "runs" / "quad")) == len(results(place / "runs" / "rect")) == 1
    assert len(results(trained[1])) == 3  # a row was added
    assert "Resuming training from" in output
    assert_same_validation(validated, images=8)
    assert validated["stock"]["metrics"][2] > 0  # mAP50
    assert not list((place / "boxes").rglob("*.npy"))


def test_segmentation(stock_env, place):
    jobs = [
        {"do": "train", "module": "yolov5.segment.train", "options": given}
        for given in (
            options(place, "overlap", "polygons", noplots=False, multi_scale=True),
            options(place, "apart", "polygons", cache="ram", no_overlap=True, mask_ratio=2, single_cls=True),
        )
    ]
    validation = {
        "data": str(place / "polygons" / "data.yaml"), "imgsz": IMGSZ, "batch_size": 5, "conf_thres": 1e-5,
        "device": "cpu", "workers": 0, "project": str(place / "val-seg"), "single_cls": True,
        "weights": str(place / "runs" / "apart" / "weights" / "best.pt"),
    }  # fmt: skip
    jobs.append({"do": "validate", "module": "yolov5.segment.val", "options": validation})
    (overlap, apart, validated), output = run_jobs(stock_env, place, jobs)
    assert "replaces yolov5.utils.segment.dataloaders.create_dataloader (YOLOv5 PyPI 7.0.14, segmentation)" in output
    assert overlap == apart == {"ours": 4}
    assert len(results(place / "runs" / "overlap")) == len(results(place / "runs" / "apart")) == 2
    assert (place / "runs" / "overlap" / "train_batch0.jpg").stat().st_size  # with masks
    assert_same_validation(validated, images=8)
