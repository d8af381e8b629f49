"""Segment, pose and obb: the same plan through the installed Ultralytics and through ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fastyolo_data as fy
from fastyolo_data.assemble import BatchJob, BatchMemory
from fastyolo_data.augment import Renderer

pytest.importorskip("ultralytics", reason="parity with Ultralytics needs the package: pip install ultralytics")

from tests.parity.stock_ultralytics import stock_dataset, stock_letterbox, stock_sample

HYPS = {
    "default": {},
    "no_mosaic": {"mosaic": 0.0, "degrees": 10.0},
    "rotation": {"degrees": 30.0, "shear": 8.0, "flipud": 0.5},
    "perspective": {"perspective": 0.001, "degrees": 10.0},
    "mixup": {"mixup": 1.0, "mosaic": 0.5, "flipud": 0.5},
    "copy_paste": {"copy_paste": 0.6, "mosaic": 0.6, "mixup": 0.3, "degrees": 10.0},
    "cutmix": {"cutmix": 1.0, "mosaic": 0.6, "degrees": 10.0, "fliplr": 0.5},
    "objects": {"copy_paste": 0.8, "copy_paste_mode": "mixup", "mosaic": 0.6, "cutmix": 0.5, "flipud": 0.5},
    "rect": {"rect": True, "degrees": 5.0},
}
MASKS = [{}, {"overlap_mask": False}, {"mask_ratio": 1}, {"mask_ratio": 2}, {"mask_ratio": 1, "overlap_mask": False}]
SIZE, N = 256, 12


def samples(data_yaml: Path, task: str, hyp: dict):
    """Yield (plan, row, ours, stock) of the first samples of an epoch; ours and stock are dicts of arrays."""
    rect = "rect" in hyp
    hyp = {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0} | {k: v for k, v in hyp.items() if k != "rect"}
    dataset = fy.build_dataset(
        data_yaml, task=task, numerics="exact", hyp=hyp, rect=rect, batch=N, seed=3, imgsz=SIZE, verbose=False
    )
    stock = stock_dataset(dataset, dataset.names, str(data_yaml.parent / "images" / "train"))
    plan = dataset.planner().plan(dataset.order(1), 1, 0, min(N, len(dataset)))
    context = dataset.context()
    renderer, memory = Renderer(context), BatchMemory(False, 0)
    job = BatchJob(plan, context, memory, None)
    for row in range(len(plan)):
        job.run(row, renderer)
    batch = job.finish()
    for row in range(len(plan)):
        mine = batch["batch_idx"].numpy() == row
        ours = {k: batch[k].numpy()[mine] for k in ("cls", "bboxes", "keypoints") if k in batch}
        ours["img"] = batch["img"][row].numpy()
        if task == "segment":
            overlap = dataset.hyp.overlap_mask
            ours["masks"] = batch["masks"].numpy()[[row] if overlap else mine]
            ours["sem_masks"] = batch["sem_masks"][row].numpy()
        want = stock_sample(stock, plan, row)
        yield plan, row, ours, {k: v.numpy() if hasattr(v, "numpy") else v for k, v in want.items()}


def assert_boxes(ours, want, hw, tolerance=1e-3):
    assert ours["cls"].tolist() == want["cls"].reshape(-1, 1).tolist()
    assert ours["bboxes"].shape == want["bboxes"].shape
    h, w = hw
    assert (np.abs(ours["bboxes"] - want["bboxes"]) * (w, h, w, h)).max(initial=0) <= tolerance


def assert_masks(ours, want):
    """Equal; a vertex that float32 and float64 see on two sides of a whole pixel may cost a border pixel or two."""
    assert ours["masks"].shape == want["masks"].shape
    assert (ours["masks"] != want["masks"]).sum() <= 2
    assert (ours["sem_masks"] != want["sem_masks"]).sum() <= 2


@pytest.mark.parametrize("data_yaml", ["polygons", "coco_ccby_seg"], indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_segment(data_yaml, hyp):
    seen = 0
    for plan, _, ours, want in samples(data_yaml, "segment", HYPS[hyp]):
        np.testing.assert_array_equal(ours["img"], want["img"])
        assert_boxes(ours, want, plan.out_hw)
        assert_masks(ours, want)
        seen += int(ours["masks"].max(initial=0) > 0)
    assert seen > 5


@pytest.mark.parametrize("data_yaml", ["polygons"], indirect=True)
@pytest.mark.parametrize("masks", MASKS, ids=str)
def test_mask_forms(data_yaml, masks):
    for plan, _, ours, want in samples(data_yaml, "segment", {"degrees": 10.0, "mixup": 0.5, "flipud": 0.5, **masks}):
        assert_boxes(ours, want, plan.out_hw)
        assert_masks(ours, want)


@pytest.mark.parametrize("data_yaml", ["pose", "coco_ccby_pose", "mouse_pose"], indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_pose(data_yaml, hyp):
    seen = 0
    for plan, _, ours, want in samples(data_yaml, "pose", HYPS[hyp]):
        assert_boxes(ours, want, plan.out_hw)
        assert ours["keypoints"].shape == want["keypoints"].shape
        h, w = plan.out_hw
        assert np.abs((ours["keypoints"] - want["keypoints"])[..., :2] * (w, h)).max(initial=0) <= 1e-3
        np.testing.assert_array_equal(ours["keypoints"][..., 2], want["keypoints"][..., 2])
        seen += len(ours["cls"])
    assert seen > 5


def turned_difference(ours, want, hw):
    """Distances in pixels between the corners of the same oriented boxes, the largest of each box."""
    h, w = hw

    def corners(boxes):
        x, y, width, height, angle = (boxes * (w, h, w, h, 1)).T
        c, s = np.cos(angle), np.sin(angle)
        along, across = np.stack((c, s), 1) * width[:, None] / 2, np.stack((-s, c), 1) * height[:, None] / 2
        centre = np.stack((x, y), 1)
        return np.stack([centre + i * along + j * across for i in (-1, 1) for j in (-1, 1)], 1)

    a, b = corners(ours.astype(np.float64)), corners(want.astype(np.float64))
    # A square has two equal answers, whose corners are the same but for their order.
    return np.linalg.norm(a[:, :, None] - b[:, None], axis=-1).min(2).max(1)


@pytest.mark.parametrize("data_yaml", ["obb", "hit_uav_obb"], indirect=True)
@pytest.mark.parametrize("hyp", HYPS)
def test_obb(data_yaml, hyp):
    seen = ties = 0
    for plan, _, ours, want in samples(data_yaml, "obb", HYPS[hyp]):
        assert ours["cls"].tolist() == want["cls"].reshape(-1, 1).tolist()
        a, b = ours["bboxes"], want["bboxes"]
        assert a.shape == b.shape
        far = turned_difference(a, b, plan.out_hw) > 1e-2
        # Perspective makes opposite sides not quite parallel: rectangles along either can have the same area.
        np.testing.assert_allclose(a[far, 2] * a[far, 3], b[far, 2] * b[far, 3], rtol=1e-5)
        ties += int(far.sum())
        turn = np.abs(a - b)[~far & (np.abs(b[:, 2] - b[:, 3]) * SIZE > 0.1), 4]
        assert np.minimum(turn, np.abs(turn - np.pi)).max(initial=0) <= 1e-2
        seen += len(a)
    assert seen > 5
    assert ties <= (0.1 * seen if hyp == "perspective" else 0)


SETS = {"segment": ["polygons", "coco_ccby_seg"], "pose": ["pose", "mouse_pose"], "obb": ["obb", "hit_uav_obb"]}


@pytest.mark.parametrize("rect", [False, True])
@pytest.mark.parametrize(
    ("task", "data_yaml"), [(t, s) for t, sets in SETS.items() for s in sets], indirect=["data_yaml"]
)
@pytest.mark.parametrize("masks", [{}, {"overlap_mask": False, "mask_ratio": 2}], ids=str)
def test_validation_equals_stock(task, data_yaml, rect, masks):
    if masks and task != "segment":
        pytest.skip("mask options matter for masks only")
    loader = fy.build_loader(
        data_yaml, split="val", task=task, rect=rect, batch=5, workers=2, verbose=False, imgsz=SIZE, hyp=masks
    )
    dataset = loader.dataset
    stock = stock_dataset(dataset, dataset.names, str(data_yaml.parent / "images" / "val"))
    reference = [stock_letterbox(stock, i) for i in range(len(stock))]
    seen = 0
    with loader:
        for batch in loader:
            want = stock.collate_fn(reference[seen : seen + len(batch["im_file"])])
            seen += len(batch["im_file"])
            assert list(batch) == list(want)
            for key, value in batch.items():
                if hasattr(value, "numpy"):
                    assert value.shape == want[key].shape, key
                    assert value.dtype == want[key].dtype, key
                    if key in ("img", "masks", "sem_masks"):
                        np.testing.assert_array_equal(value.numpy(), want[key].numpy(), err_msg=key)
                    else:
                        np.testing.assert_allclose(value.numpy(), want[key].numpy(), atol=1e-6, err_msg=key)
    assert seen == len(dataset)
    sample, want = dataset[1], reference[1]
    for key in ("cls", "bboxes", "masks", "sem_masks", "keypoints"):  # collate_fn has changed batch_idx in place
        if key in want:
            assert sample[key].shape == want[key].shape, key
            np.testing.assert_allclose(sample[key].numpy(), want[key].numpy(), atol=1e-6, err_msg=key)
