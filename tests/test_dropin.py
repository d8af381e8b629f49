"""LoadImagesAndLabels under YOLOv5's constructor, and quad batches."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import fastyolo_data as fy
from fastyolo_data.assemble import join_quads
from fastyolo_data.dropin import StockArguments
from tests.loaders import QUICK, fingerprint


@pytest.fixture
def images(generated_boxes):
    return generated_boxes.parent / "images" / "train"


def test_yolov5_constructor_and_what_its_code_touches(images):
    ours = fy.LoadImagesAndLabels(str(images), 96, 8, augment=True, hyp={"mosaic": 1.0, "box": 0.05}, stride=32)
    n = len(ours)
    assert isinstance(fy.build_dataset(str(images), **{**QUICK, "batch": 4}), fy.LoadImagesAndLabels)
    assert ours.n == n == 24
    assert ours.path == str(images)
    assert ours.mosaic_border == [-48, -48]
    assert [lb.shape[1] for lb in ours.labels] == [5] * n
    assert ours.shapes.shape == (n, 2)
    assert list(ours.indices) == list(range(n))
    assert ours.batch.tolist() == [i // 8 for i in range(n)]
    assert len(ours.ims) == len(ours.npy_files) == len(ours.segments) == len(ours.label_files) == n
    assert (ours.mosaic, ours.rect, ours.img_size, ours.stride) == (True, False, 96, 32)
    ours.mosaic = False
    assert [s[3] for s in (ours[0], ours[1])] != [None, None]  # shapes: no mosaic any more
    with pytest.raises(IndexError):
        ours[n]


def test_rect_sorts_by_aspect_ratio_and_autoanchor_reads_it(images):
    ours = fy.LoadImagesAndLabels(str(images), augment=True, rect=True)  # as utils/autoanchor.py calls it
    ratio = ours.shapes[:, 1] / ours.shapes[:, 0]
    assert (np.diff(ratio) >= 0).all()
    assert len(ours.batch_shapes) == len(set(ours.batch.tolist()))


def test_pytorch_loader_with_our_data_set_and_collate(images):
    ours = fy.LoadImagesAndLabels(str(images), 96, 4)
    loader = DataLoader(ours, batch_size=4, collate_fn=fy.LoadImagesAndLabels.collate_fn)
    built = fy.build_loader(str(images), split="val", dialect="yolov5", **{**QUICK, "batch": 4, "workers": 0})
    for theirs, mine in zip(loader, built, strict=True):
        assert fingerprint(theirs) == fingerprint(mine)


def test_min_items_and_batch_larger_than_the_set(images):
    every = fy.LoadImagesAndLabels(str(images), 96, 4)
    some = fy.LoadImagesAndLabels(str(images), 96, 500, min_items=4)
    kept = [f for f, lb in zip(every.im_files, every.labels, strict=True) if len(lb) >= 4]
    assert 0 < len(kept) < 24
    assert some.im_files == kept
    assert some.config.batch == len(kept)
    with pytest.raises(fy.ConfigError, match="min_items=1000"):
        fy.LoadImagesAndLabels(str(images), 96, 4, min_items=1000)


def test_any_imgsz_is_taken_as_in_the_stock_code(images):
    assert fy.LoadImagesAndLabels(str(images), 100, 4)[0][0].shape == (3, 100, 100)


@pytest.mark.parametrize(
    ("given", "cache"),
    [(False, "none"), (None, "none"), ("ram", "ram"), ("disk", "memmap"), (True, "ram"), ("val", "ram")],
)
def test_cache_argument(given, cache):
    assert StockArguments("x", cache=given).config("yolov5").cache == cache
    assert StockArguments("x", cache=given).config("yolov5", cache="lmdb").cache == "lmdb"


@pytest.mark.parametrize("rect", [False, True])
def test_masks_are_checked_against_the_smallest_picture(rect):
    config = StockArguments("x", imgsz=100, rect=rect, mask_ratio=4, stride=32).config("yolov5")
    assert (config.imgsz, config.stride, config.hyp.mask_ratio, config.task) == (100, 32, 4, "segment")
    with pytest.raises(fy.ConfigError, match="would be empty"):
        StockArguments("x", imgsz=100, rect=rect, mask_ratio=200, stride=32).config("yolov5")


@pytest.mark.parametrize("wrong", [{"imgsz": 0}, {"stride": 0}])
def test_sizes_must_be_positive(wrong):
    with pytest.raises(fy.ConfigError, match=r"imgsz|stride"):
        StockArguments("x", **wrong).config("yolov5")


def test_quad_refuses_what_cannot_work():
    with pytest.raises(fy.ConfigError, match="at least 4"):
        StockArguments("x", quad=True, batch_size=2).config("yolov5")
    with pytest.raises(fy.ConfigError, match="masks"):
        StockArguments("x", quad=True, mask_ratio=4).config("yolov5")


def _stock_quads(im, label, enlarged):
    """What quad batches are, said with tensors of the single samples."""
    images, labels = [], []
    for q, whole in enumerate(enlarged):
        i = 4 * q
        if whole:
            big = torch.nn.functional.interpolate(im[i][None].float(), scale_factor=2.0, mode="bilinear")[0]
            images.append(big.type(im.dtype))
            parts = [label[i]]
        else:
            left, right = torch.cat((im[i], im[i + 1]), 1), torch.cat((im[i + 2], im[i + 3]), 1)
            images.append(torch.cat((left, right), 2))
            moves = [(0, 0), (0, 1), (1, 0), (1, 1)]
            parts = [
                torch.cat((lb[:, :2], (lb[:, 2:] + torch.tensor([*xy, 0, 0])) / 2), 1)
                for lb, xy in zip(label[i : i + 4], moves, strict=True)
            ]
        joined = torch.cat(parts)
        joined[:, 0] = q
        labels.append(joined)
    return torch.stack(images), torch.cat(labels)


def test_quads_equal_their_definition():
    g = torch.Generator().manual_seed(0)
    im = torch.randint(0, 256, (10, 3, 8, 6), dtype=torch.uint8, generator=g)
    label = [torch.rand((k % 4, 6), generator=g) for k in range(10)]
    for i, lb in enumerate(label):
        lb[:, 0] = i
    names = tuple("abcdefghij")
    got = join_quads((im, torch.cat(label), names, names), np.array([True, False]))
    images, targets = _stock_quads(im, label, [True, False])
    assert torch.equal(got[0], images)
    assert torch.allclose(got[1], targets)
    assert got[2:] == (("a", "b"), ("a", "b"))


def test_quad_loader_is_planned_and_joins_the_plain_batches(images):
    options = {"path": str(images), "imgsz": 96, "batch_size": 8, "augment": True, "shuffle": True, "workers": 2}

    def batches(quad, workers):
        arguments = StockArguments(**{**options, "quad": quad, "workers": workers})
        with fy.FastLoader(fy.LoadImagesAndLabels.from_stock(arguments)) as loader:
            return [list(loader) for _ in range(2)]

    quads, plain = batches(True, 2), batches(False, 2)
    assert [[fingerprint(b) for b in e] for e in quads] == [[fingerprint(b) for b in e] for e in batches(True, 0)]
    kinds = set()
    for with_quads, without in zip(chain(*quads), chain(*plain), strict=True):
        assert with_quads[0].shape == (2, 3, 192, 192)
        for q in range(2):
            tiled = torch.equal(with_quads[0][q, :, :96, :96], without[0][4 * q])
            kinds.add(tiled)
            if tiled:
                assert torch.equal(with_quads[0][q, :, 96:, :96], without[0][4 * q + 1])
                count = sum(int((without[1][:, 0] == 4 * q + k).sum()) for k in range(4))
                assert int((with_quads[1][:, 0] == q).sum()) == count
    assert kinds == {True, False}
