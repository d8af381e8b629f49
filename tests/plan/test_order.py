"""Epoch order: who gets which image, and the shapes of rect batches."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.errors import ConfigError
from fastyolo_data.plan import batch_shapes, plan_order, rect_order
from tests.reference.geometry import rect_shapes

SIZES = [(1, 1, 1), (7, 3, 2), (16, 4, 3), (17, 4, 4), (100, 16, 8), (5, 16, 3), (3, 1, 7)]


def order(n, **kw):
    args = {"seed": 0, "epoch": 0, "shuffle": True, "batch": 4, **kw}
    return plan_order(n, **args)


@pytest.mark.parametrize("n", [1, 2, 33, 500])
def test_shuffled_epoch_is_a_permutation_and_changes_with_seed_and_epoch(n):
    first = order(n)
    np.testing.assert_array_equal(np.sort(first.mine), np.arange(n))
    np.testing.assert_array_equal(first.every, first.mine)
    np.testing.assert_array_equal(order(n).mine, first.mine)
    assert not first.repeat.any()
    if n > 30:
        for other in (order(n, epoch=1), order(n, seed=1)):
            assert other.mine.tolist() != first.mine.tolist()
        np.testing.assert_array_equal(order(n, shuffle=False).mine, np.arange(n))


def test_every_position_is_equally_likely():
    """Chi-square over 3,000 epochs of 12 images: 121 degrees of freedom, standard deviation 15.6."""
    counts = np.zeros((12, 12))
    for epoch in range(3000):
        counts[np.arange(12), order(12, epoch=epoch).mine] += 1
    chi2 = ((counts - 250) ** 2 / 250).sum()
    assert 121 - 5 * 15.6 < chi2 < 121 + 5 * 15.6


@pytest.mark.parametrize(("n", "batch", "world"), SIZES)
def test_training_ranks(n, batch, world):
    shares = [order(n, batch=batch, rank=r, world_size=world, pad_ranks=True) for r in range(world)]
    assert len({len(s.mine) for s in shares}) == 1
    dealt = np.stack([s.mine for s in shares], 1).ravel()
    assert 0 <= len(dealt) - n < world
    np.testing.assert_array_equal(dealt[:n], shares[0].every)  # dealt out one by one, so no image is missing
    np.testing.assert_array_equal(dealt[n:], np.resize(shares[0].every, len(dealt))[n:])
    for s in shares:
        np.testing.assert_array_equal(s.every, shares[0].every)


@pytest.mark.parametrize(("n", "batch", "world"), SIZES)
def test_validation_ranks(n, batch, world):
    whole = order(n, batch=batch, shuffle=False)
    shares = [order(n, batch=batch, shuffle=False, rank=r, world_size=world) for r in range(world)]
    np.testing.assert_array_equal(np.concatenate([s.mine for s in shares]), np.arange(n))
    np.testing.assert_array_equal(np.concatenate([s.batch_id for s in shares]), whole.batch_id)
    for s in shares:  # whole batches only, unless one batch holds everything: no batch is split between two ranks
        assert len(s.mine) == 0 or batch >= n or s.mine[0] % batch == 0
    batches = [len(np.unique(s.mine if batch >= n else s.batch_id)) for s in shares]
    assert batches == sorted(batches, reverse=True)
    assert batches[0] - batches[-1] <= 1


def test_indices_replace_the_images():
    indices = np.array([5, 5, 2, 9, 5, 2])
    plain = order(10, indices=indices, shuffle=False)
    np.testing.assert_array_equal(plain.mine, indices)
    np.testing.assert_array_equal(plain.repeat, [0, 1, 0, 0, 2, 1])
    shuffled = order(10, indices=indices)
    np.testing.assert_array_equal(np.sort(shuffled.mine), np.sort(indices))
    assert {(i, r) for i, r in zip(shuffled.mine, shuffled.repeat, strict=True)} == {
        (5, 0), (5, 1), (5, 2), (2, 0), (2, 1), (9, 0)
    }  # fmt: skip


def test_no_two_samples_of_an_epoch_share_a_stream():
    """Also when images repeat, and over all ranks (padding apart)."""
    weights = np.array([1.0, 50.0, 3.0, 0.0, 8.0])
    for world in (1, 4):
        shares = [order(5, weights=weights, rank=r, world_size=world, pad_ranks=True) for r in range(world)]
        keys = np.concatenate([np.stack((s.mine, s.repeat), 1) for s in shares])[: 5 if world == 1 else 8]
        unique = np.unique(keys, axis=0)
        assert len(unique) == 5


def test_image_weights():
    weights = np.array([0.0, 1.0, 3.0, 6.0])
    mine = np.concatenate([order(4, weights=weights, epoch=e).mine for e in range(5000)])
    share = np.bincount(mine, minlength=4) / len(mine)
    assert share[0] == 0
    np.testing.assert_allclose(share, weights / 10, atol=0.012)  # standard deviation 0.0035
    assert order(4, weights=weights, shuffle=False).mine.tolist() == order(4, weights=weights).mine.tolist()


def test_image_weights_of_indices():
    """Weights belong to the entries of `indices`; the result are images, not places in the list."""
    indices, weights = np.array([90, 40, 70]), np.array([1.0, 0.0, 4.0])
    mine = np.concatenate([order(100, indices=indices, weights=weights, epoch=e).mine for e in range(2000)])
    assert set(mine.tolist()) == {90, 70}
    assert (mine == 70).mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [float("nan"), 1.0, 1.0]])
def test_image_weights_that_select_nothing(weights):
    with pytest.raises(ConfigError, match="3 images of the epoch sum to"):
        order(100, indices=np.array([90, 40, 70]), weights=np.array(weights))


@pytest.mark.parametrize("batch", [1, 3, 16])
@pytest.mark.parametrize(("imgsz", "stride", "pad"), [(640, 32, 0.5), (640, 32, 0.0), (320, 64, 0.5), (96, 1, 0.0)])
def test_rect_shapes(imgsz, stride, pad, batch):
    rng = np.random.default_rng(batch)
    for n in (1, 2, 31, 64):
        hw = rng.integers(20, 2000, (n, 2)).astype(np.int32)
        hw[rng.random(n) < 0.2] = (640, 640)
        by_aspect = rect_order(hw)
        aspects = hw[by_aspect, 0] / hw[by_aspect, 1]
        assert (np.diff(aspects) >= 0).all()
        np.testing.assert_array_equal(np.sort(by_aspect), np.arange(n))
        shapes = batch_shapes(hw[by_aspect], batch, imgsz, stride, pad)
        want = rect_shapes([float(a) for a in aspects], batch, imgsz, stride, pad)
        assert [tuple(s) for s in shapes.tolist()] == want


def test_rect_order_breaks_ties_as_the_stock_sort():
    hw = np.array([(480, 640), (640, 480), (240, 320), (500, 500)] * 40, np.int32)
    aspect = hw[:, 0] / hw[:, 1]
    np.testing.assert_array_equal(rect_order(hw), aspect.argsort())
