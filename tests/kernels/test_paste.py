"""Kernels of pasting against plain loops."""

from __future__ import annotations

import math

import numpy as np

from fastyolo_data.kernels.paste import covered_share, crop_oriented, grow_selection


def _ioa(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(w, 0) * max(h, 0) / ((b[2] - b[0]) * (b[3] - b[1]) + 1e-7)


def test_covered_share_and_selection_against_plain_loops():
    rng, rejected = np.random.default_rng(0), 0
    for n in (1, 3, 12, 25):
        low = rng.uniform(0, 90, (n, 2))
        boxes = np.concatenate((low, low + rng.uniform(1, 40, (n, 2))), 1)
        out = np.empty(n)
        covered_share(boxes, boxes[::-1].copy(), out)
        np.testing.assert_allclose(out, [max(_ioa(a, b) for b in boxes) for a in boxes])
        tries, labels, want = rng.permutation(n), list(boxes), []
        for j in tries:
            x0, y0, x1, y1 = boxes[j]
            mirror = (130 - x1, y0, 130 - x0, y1)
            if all(_ioa(mirror, other) < 0.3 for other in labels):
                labels.append(mirror)
                want.append(j)
        chosen = np.empty(n, np.int64)
        assert chosen[: grow_selection(boxes, tries, 130.0, chosen)].tolist() == want
        rejected += n - len(want)
    assert rejected > 0
    out = np.empty(2)
    covered_share(boxes[:2], np.zeros((0, 4)), out)
    assert out.tolist() == [0, 0]


def test_oriented_boxes_keep_their_direction_when_they_are_cropped():
    angle = 0.4
    c, s = math.cos(angle), math.sin(angle)
    corners = np.array([[-30, -10], [30, -10], [30, 10], [-30, 10]]) @ np.array([[c, s], [-s, c]]) + (50, 50)
    far = corners + np.array([500, 0])
    offsets, points = np.array([0, 4, 8, 12]), np.concatenate((corners, far, corners))
    xyxy = np.concatenate((corners.min(0), corners.max(0)))[None].repeat(3, 0)
    for area, lengths in (((40, 30, 200, 90), (4, 0, 4)), ((0, 0, 99, 99), (4, 0, 4)), ((0, 0, 9, 9), (0, 0, 0))):
        boxes, out, got = xyxy.copy(), np.empty((3, 4, 2)), np.empty(3, np.int64)
        crop_oriented(offsets, points, np.array(area, float), np.empty((3, 16, 2)), boxes, out, got)
        assert got.tolist() == list(lengths)
        if not got[0]:
            continue
        sides = np.diff(np.concatenate((out[0], out[0, :1])), axis=0)
        turn = np.degrees(np.arctan2(sides[:, 1], sides[:, 0]) - angle) / 90
        np.testing.assert_allclose(turn, turn.round(), atol=1e-6)
        visible = np.clip(corners, area[:2], area[2:])
        if area[0] == 0:
            np.testing.assert_allclose(out[0], corners)
            np.testing.assert_allclose(boxes[0], xyxy[0])
        else:
            assert boxes[0, 0] == 40
            np.testing.assert_allclose(boxes[0, 2:], visible.max(0), atol=1e-6)
        np.testing.assert_array_equal(out[0], out[2])
