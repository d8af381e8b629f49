"""Tasks beyond detection through the public loader: forms of batches, empty pictures, options, refusals."""

from __future__ import annotations

import logging
import shutil

import numpy as np
import pytest
import torch

import fastyolo_data as fy
from fastyolo_data.augment import Targets, collect_targets
from fastyolo_data.errors import ConfigError
from tests.loaders import QUICK, fingerprint

KINDS = {"segment": "polygons", "pose": "pose", "obb": "obb"}


def build(request, task, **kw):
    return fy.build_loader(request.getfixturevalue(f"generated_{KINDS[task]}"), task=task, **{**QUICK, **kw})


@pytest.mark.parametrize("task", KINDS)
def test_batches_do_not_depend_on_workers_or_numerics(request, task):
    hyp = {"degrees": 10.0, "mixup": 0.3, "flipud": 0.5}
    labels = []
    for workers, numerics in ((0, "fast"), (3, "fast"), (2, "exact")):
        with build(request, task, workers=workers, numerics=numerics, hyp=hyp) as loader:
            batches = list(loader)
        for batch in batches if numerics == "exact" else ():
            batch["img"] = torch.zeros(0)
        labels.append([fingerprint({k: v for k, v in b.items() if k != "img"}) for b in batches])
    assert labels[0] == labels[1] == labels[2]
    assert len(labels[0]) == 3


@pytest.mark.parametrize("task", KINDS)
def test_single_samples_are_rows_of_no_batch(request, task):
    with build(request, task, split="val") as loader:
        batch, dataset = next(iter(loader)), loader.dataset
        for row in range(4):
            sample, mine = dataset[row], batch["batch_idx"] == row
            for key in {"cls", "bboxes", "keypoints"} & set(batch):
                assert torch.equal(sample[key], batch[key][mine])
            if task == "segment":
                assert torch.equal(sample["masks"][0].float(), batch["masks"][row].float())
                assert torch.equal(sample["sem_masks"], batch["sem_masks"][row])


def pictures_without_objects(path, target):
    """A copy of a data set with empty label files."""
    root = shutil.copytree(path.parent, target)
    for file in root.glob("labels/*/*.txt"):
        file.write_text("")
    return root / path.name


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("split", ["train", "val"])
def test_batches_of_backgrounds(request, tmp_path, task, split):
    path = pictures_without_objects(request.getfixturevalue(f"generated_{KINDS[task]}"), tmp_path / "set")
    for overlap in (True, False):
        with fy.build_loader(path, task=task, split=split, hyp={"overlap_mask": overlap}, **QUICK) as loader:
            batch = next(iter(loader))
        assert batch["cls"].shape == (0, 1)
        assert batch["bboxes"].shape == (0, 5 if task == "obb" else 4)
        if task == "pose":
            assert batch["keypoints"].shape == (0, 5, 3)
        if task == "segment":
            assert batch["masks"].shape == ((8 if overlap else 0), 24, 24)
            assert batch["masks"].dtype == torch.float32
            assert not batch["sem_masks"].any()


def test_form_of_masks_follows_the_batch():
    """uint8, int32 with more than 255 instances, and float32 as soon as one picture has none."""

    def one(n, dtype):
        return Targets(np.zeros(n), np.zeros((n, 4)), None, np.full((1, 2, 2), n, dtype), np.zeros((2, 2), np.float32))

    few, many, none = one(3, np.uint8), one(300, np.int32), one(0, np.uint8)
    for dtype, parts in {np.uint8: [few], np.int32: [few, many], np.float32: [many, none]}.items():
        masks = collect_targets(parts)["masks"]
        assert masks.dtype == dtype
        assert masks[0, 0, 0] == len(parts[0].cls)


def test_without_flip_idx_nothing_is_flipped(generated_pose, tmp_path, caplog):
    root = shutil.copytree(generated_pose.parent, tmp_path / "set")
    path = root / generated_pose.name
    path.write_text("".join(line for line in path.open() if "flip_idx" not in line))
    with caplog.at_level(logging.WARNING, logger="fastyolo_data"):
        dataset = fy.build_dataset(path, task="pose", hyp={"fliplr": 1.0, "flipud": 1.0}, **QUICK)
    assert [r.message.count("no flip_idx") for r in caplog.records] == [1]
    assert (dataset.hyp.fliplr, dataset.hyp.flipud) == (0.0, 0.0)
    plan = dataset.planner().plan(dataset.order(0), 0, 0, 8)
    assert not plan.fliplr.any()
    assert not plan.flipud.any()
    caplog.clear()
    dataset.set_hyp(fy.Hyp(fliplr=1.0))
    assert dataset.hyp.fliplr == 0.0
    assert not caplog.records


def test_flips_permute_keypoints(generated_pose):
    """Mirrored pictures have left and right keypoints exchanged, by flip_idx 1 0 2 4 3."""
    still = {"mosaic": 0.0, "scale": 0.0, "translate": 0.0, "fliplr": 0.0}
    batches = []
    for fliplr in (0.0, 1.0):
        with fy.build_loader(generated_pose, task="pose", hyp={**still, "fliplr": fliplr}, **QUICK) as loader:
            batches.append(next(iter(loader)))
    plain, mirrored = (b["keypoints"] for b in batches)
    want = plain[:, [1, 0, 2, 4, 3]].clone()
    want[..., 0] = 1 - want[..., 0]
    assert torch.allclose(mirrored, want, atol=1e-6)
    assert torch.equal(batches[1]["img"], batches[0]["img"].flip(-1))


@pytest.mark.parametrize("dialect", ["yolov5", "yolov9"])
@pytest.mark.parametrize("overlap", [True, False])
def test_tuples_of_five(generated_polygons, dialect, overlap):
    hyp = {"overlap_mask": overlap, "mask_ratio": 2, "fliplr": 1.0}
    options = {"task": "segment", "dialect": dialect, "hyp": hyp, **QUICK}
    for split in ("train", "val"):
        with fy.build_loader(generated_polygons, split=split, **options) as loader:
            images, targets, paths, shapes, masks = next(iter(loader))
            assert len(loader.dataset[0]) == 5
        assert masks.shape == (8 if overlap else len(targets), 48, 48)
        assert len(paths) == len(shapes) == len(images) == 8
        if overlap:  # every number is the row of a target of that picture
            for row, mask in enumerate(masks):
                assert mask.max() <= (targets[:, 0] == row).sum()


@pytest.mark.parametrize(
    ("task", "dialect", "message"),
    [
        ("pose", "yolov5", r"task='pose' with dialect='yolov5': this dialect has 'detect', 'segment'.*'ultralytics'"),
        ("segment", "yolov7", r"this dialect has 'detect'.*'ultralytics' or 'yolov5' or 'yolov9'"),
        ("classify", "ultralytics", r"task='classify': expected one of 'detect', 'segment', 'pose', 'obb'"),
    ],
)
def test_tasks_that_a_dialect_lacks(generated_boxes, task, dialect, message):
    with pytest.raises(ConfigError, match=message):
        fy.build_loader(generated_boxes, task=task, dialect=dialect, **QUICK)


def test_masks_that_would_be_empty_are_refused(generated_polygons):
    with pytest.raises(ConfigError, match="mask_ratio=97: masks of pictures of 96 px would be empty"):
        fy.build_loader(generated_polygons, task="segment", hyp={"mask_ratio": 97}, **QUICK)


@pytest.mark.parametrize("task", ["segment", "obb"])
def test_boxes_are_no_labels_for_polygon_tasks(generated_boxes, task):
    dataset = fy.build_dataset(generated_boxes, task=task, **QUICK)
    assert len(dataset.skipped) == 21
    assert len(dataset) == 3  # backgrounds
    assert all("found a box row" in reason for reason in dataset.skipped.values())
