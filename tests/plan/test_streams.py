"""Streams: a sample's numbers depend on its identity and on nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastyolo_data.plan.streams import ORDER, SAMPLE, Streams

KEYS = list(itertools.product((SAMPLE, ORDER), (0, 1, 2, 117_266), (0, 1, 5)))


def test_numbers_do_not_depend_on_the_order_of_calls():
    forward = Streams(3, 7)
    first = {k: forward.at(*k).random(50) for k in KEYS}
    backward = Streams(3, 7)
    for n, k in enumerate(reversed(KEYS)):
        generator = backward.at(*k)
        np.testing.assert_array_equal(generator.random(50), first[k])
        generator.random(n)  # how much was drawn before must not matter
        generator.integers(0, 9, n, dtype=np.uint32)  # leaves half a word in the generator's buffer
        generator.normal(size=n)


def test_half_used_words_do_not_leak_into_the_next_stream():
    streams = Streams(0, 0)
    clean = Streams(0, 0).at(SAMPLE, 5).integers(0, 1 << 30, 7, dtype=np.uint32)
    streams.at(SAMPLE, 4).integers(0, 1 << 30, 1, dtype=np.uint32)
    np.testing.assert_array_equal(streams.at(SAMPLE, 5).integers(0, 1 << 30, 7, dtype=np.uint32), clean)


def test_no_two_streams_share_numbers():
    """Any overlap, also shifted: 64-bit words of all streams together are all different."""
    words = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (-1, 0), (2**70 + 5, 0), (5, 3)):
        streams = Streams(seed, epoch)
        words += [streams.at(*k).bit_generator.random_raw(64) for k in KEYS]
    words = np.concatenate(words)
    assert len(np.unique(words)) == len(words)


@pytest.mark.parametrize("change", [{"seed": 1}, {"epoch": 1}, {"key": 1}, {"repeat": 1}, {"purpose": ORDER}])
def test_every_part_of_the_identity_counts(change):
    base = dict(seed=0, epoch=0, purpose=SAMPLE, key=0, repeat=0)

    def numbers(seed, epoch, purpose, key, repeat):
        return Streams(seed, epoch).at(purpose, key, repeat).random(8)

    assert not np.isin(numbers(**base), numbers(**{**base, **change})).any()


def test_neighbouring_streams_are_not_correlated():
    streams = Streams(0, 0)
    u = np.stack([streams.at(SAMPLE, k).random(40) for k in range(4000)])
    # A correlation of 4,000 independent pairs has a standard deviation of 0.016.
    for lag in (1, 2, 16):
        r = [np.corrcoef(u[:-lag, s], u[lag:, s])[0, 1] for s in range(40)]
        assert np.abs(r).max() < 0.08
    slots = np.corrcoef(u.T) - np.eye(40)
    assert np.abs(slots).max() < 0.08


def test_permutation():
    for n in (1, 2, 17, 1000):
        np.testing.assert_array_equal(np.sort(Streams(1, 2).permutation(n)), np.arange(n))
    assert Streams(1, 2).permutation(1000).tolist() != Streams(1, 3).permutation(1000).tolist()


def test_choices_follow_the_weights_and_skip_zeros():
    weights = np.array([0.0, 1.0, 2.0, 0.0, 5.0, 0.0])
    picks = Streams(4, 0).choices(weights, 80_000)
    share = np.bincount(picks, minlength=6) / len(picks)
    assert share[weights == 0].sum() == 0
    np.testing.assert_allclose(share, weights / 8, atol=0.01)  # standard deviation below 0.0018
