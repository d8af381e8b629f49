"""Runs one of our plans through the transforms of the installed Ultralytics."""

from __future__ import annotations

import random
from copy import copy
from functools import partial
from unittest import mock

import numpy as np
from ultralytics.cfg import DEFAULT_CFG
from ultralytics.data.augment import (
    CopyPaste,
    CutMix,
    Format,
    LetterBox,
    MixUp,
    Mosaic,
    RandomFlip,
    RandomHSV,
    RandomPerspective,
)
from ultralytics.data.dataset import YOLODataset

from fastyolo_data import LoadImagesAndLabels
from fastyolo_data.plan import AugmentPlan


def stock_dataset(ours: LoadImagesAndLabels, names: tuple[str, ...], img_path: str, **kw) -> YOLODataset:
    """The stock data set over the same images, cache off; checks that both list them in the same order."""
    data = {"names": dict(enumerate(names)), "nc": len(names), "channels": 3}
    if len(ours.rules.flip_idx):
        data |= {"kpt_shape": [len(ours.rules.flip_idx), 3], "flip_idx": ours.rules.flip_idx.tolist()}
    hyp = copy(DEFAULT_CFG)
    hyp.mask_ratio, hyp.overlap_mask = ours.hyp.mask_ratio, ours.hyp.overlap_mask
    args = dict(
        img_path=img_path, imgsz=ours.imgsz, batch_size=ours.config.batch, augment=ours.augment, hyp=hyp,
        rect=ours.rect, cache=False, stride=ours.stride, pad=ours.config.pad, task=ours.config.task, data=data,
    )  # fmt: skip
    stock = YOLODataset(**{**args, **kw})
    assert [str(f) for f in stock.im_files] == ours.im_files
    return stock


def _layer(stock: YOLODataset, plan: AugmentPlan, row: int, k: int) -> dict:
    """Mosaic (or not) and warp of one layer, with the plan's draws."""
    s = stock.imgsz
    labels = stock.get_image_and_label(int(plan.tiles[row, k, 0]))
    if plan.counts[row, k] == 4:
        mosaic = Mosaic(stock, imgsz=s, p=1.0)
        mosaic.get_indexes = lambda: [int(i) for i in plan.tiles[row, k, 1:]]
        centre = plan.rects[row, k, 3, [1, 0]]  # the fourth tile begins at the centre: y, x
        draws = iter([0.0, float(centre[0]), float(centre[1])])
        with mock.patch.object(random, "uniform", lambda a, b: next(draws)):
            labels = mosaic(labels)
    if plan.copy_paste and plan.paste_mirrored:
        labels = _copy_paste(stock, plan, labels, None)
    h, w = plan.out_hw
    amount = 0.001 if plan.projective else 0.0
    perspective = RandomPerspective(perspective=amount, size=(w, h), preserve_obb=stock.use_obb)
    matrix = plan.matrix[row, k].astype(np.float32)
    perspective._compute_affine_matrix = lambda img, size: (matrix, float(plan.scale[row, k]))
    labels = perspective(labels)
    if k < 3 and plan.counts.shape[1] > 2 and plan.counts[row, k + 3]:
        labels = _copy_paste(stock, plan, labels, _layer(stock, plan, row, k + 3))
    return labels


def _copy_paste(stock: YOLODataset, plan: AugmentPlan, labels: dict, other: dict | None) -> dict:
    """Copy-paste of mirror images (other is None), or of objects of another sample."""
    paste = CopyPaste(stock, p=plan.copy_paste, mode="flip" if other is None else "mixup")
    paste.pre_transform = lambda labels: other
    # The stock code leaves open in which order objects come that cover equally little (ties of an unstable sort).
    stable = partial(np.argsort, kind="stable")
    with mock.patch.object(np, "argsort", stable), mock.patch.object(random, "uniform", lambda a, b: 0.0):
        return paste(labels)


def _cutmix(stock: YOLODataset, plan: AugmentPlan, row: int, labels: dict) -> dict:
    cutmix = CutMix(stock, p=1.0)
    other = _layer(stock, plan, row, 2)
    cutmix.pre_transform = lambda labels: other
    areas = iter(plan.areas[row])
    cutmix._rand_bbox = lambda w, h: next(areas)
    with mock.patch.object(np.random, "choice", lambda idx: idx[int(plan.area_pick[row] * len(idx))]):
        return cutmix(labels)


def stock_sample(stock: YOLODataset, plan: AugmentPlan, row: int) -> dict:
    """The finished stock sample of one row of a plan."""
    labels = _layer(stock, plan, row, 0)
    if plan.counts[row, 1]:
        mixup = MixUp(stock, p=1.0)
        other = _layer(stock, plan, row, 1)
        labels["mix_labels"] = [other]
        params = {"r": float(plan.ratio[row])}
        labels = mixup.apply_instances(mixup.apply_image(labels, params), params)
        labels.pop("mix_labels")
    if plan.counts.shape[1] > 2 and plan.counts[row, 2]:
        labels = _cutmix(stock, plan, row, labels)
    if plan.hsv_active:
        gains = plan.hsv[row]
        with mock.patch.object(np.random, "uniform", lambda a, b, n: gains.copy()):
            labels = RandomHSV(1.0, 1.0, 1.0).apply_image(labels)
    for direction, flag in (("vertical", plan.flipud[row]), ("horizontal", plan.fliplr[row])):
        labels = RandomFlip(1.0 if flag else 0.0, direction, stock.data.get("flip_idx"))(labels)
    with mock.patch.object(random, "uniform", lambda a, b: 0.0 if plan.bgr[row] else 1.0):
        return stock_format(stock, 0.5)(labels)


def stock_format(stock: YOLODataset, bgr: float = 0.0) -> Format:
    """The last transform, as the data set built it for its task."""
    form = copy(stock.transforms.transforms[-1])
    form.bgr = bgr
    return form


def stock_letterbox(stock: YOLODataset, index: int) -> dict:
    """The finished stock validation sample of one image."""
    box = LetterBox(new_shape=(stock.imgsz, stock.imgsz), scaleup=False)
    return stock_format(stock)(box(stock.get_image_and_label(index)))
