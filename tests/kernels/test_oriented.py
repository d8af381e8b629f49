"""Oriented boxes against OpenCV's hull, intersection and smallest rectangle."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from fastyolo_data.kernels.instances import fit_oriented
from fastyolo_data.kernels.oriented import clip_oriented, convex_hull

H, W = 100.0, 130.0


def scratch(n):
    return np.full((3, 2 * n + 8, 2), np.nan)


def shapes(kind, rng):
    """(n, 2) polygons."""
    centre, size = rng.uniform(-20, 150, 2), rng.uniform(1, 90, 2)
    angle = rng.uniform(0, np.pi)
    if kind == "axis":
        angle = 0.0
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * size / 2
    if kind == "many":
        corners = rng.normal(0, 1, (12, 2)) * size / 3
    if kind == "quad":
        corners = corners + rng.uniform(-0.2, 0.2, (4, 2)) * size
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return centre + corners @ turn.T


KINDS = ["turned", "axis", "quad", "many"]


@pytest.mark.parametrize("kind", KINDS)
def test_hull(kind):
    rng = np.random.default_rng(0)
    for _ in range(100):
        points = shapes(kind, rng)
        work = scratch(len(points))
        n = convex_hull(points, len(points), work[0], work[1])
        want = cv2.convexHull(points.astype(np.float32)).reshape(-1, 2)
        assert n == len(want)
        order = np.lexsort(work[1, :n].T), np.lexsort(want.T)
        np.testing.assert_allclose(work[1, :n][order[0]], want[order[1]], atol=1e-4)


@pytest.mark.parametrize("points", [[(3, 4)], [(3, 4), (3, 4)], [(0, 0), (5, 5)], [(0, 0), (5, 5), (2, 2)]])
def test_shapes_without_area(points):
    points = np.array(points, float)
    out = np.empty((1, 5))
    fit_oriented(np.array([0, len(points)]), points, scratch(len(points)), out)
    assert out[0, 3] == pytest.approx(0, abs=1e-12)
    assert out[0, 2] == pytest.approx(np.hypot(*np.ptp(points, 0)))


@pytest.mark.parametrize("kind", KINDS)
def test_smallest_rectangle(kind):
    rng = np.random.default_rng(1)
    for _ in range(200):
        points = shapes(kind, rng)
        out = np.empty((1, 5))
        fit_oriented(np.array([0, len(points)]), points, scratch(len(points)), out)
        (cx, cy), (w, h), angle = cv2.minAreaRect(points.astype(np.float32))
        assert out[0, 2] * out[0, 3] == pytest.approx(w * h, rel=1e-3, abs=1e-2)
        assert -np.pi / 4 <= out[0, 4] < 3 * np.pi / 4
        assert out[0, 2] >= out[0, 3]
        if kind in ("turned", "axis"):  # of other shapes, two edges can give nearly the same area
            np.testing.assert_allclose(out[0, :2], (cx, cy), atol=1e-2)
            np.testing.assert_allclose(sorted(out[0, 2:4]), sorted((w, h)), atol=1e-2)
            turn = (out[0, 4] - np.deg2rad(angle)) % (np.pi / 2)
            assert min(turn, np.pi / 2 - turn) * w <= 2e-2


def clipped_by_opencv(points):
    """Visible bounds and the rectangle around the visible part in the polygon's own direction; None if invisible."""
    canvas = np.array(((0, 0), (W, 0), (W, H), (0, H)), np.float32)
    area, visible = cv2.intersectConvexConvex(cv2.convexHull(points.astype(np.float32)), canvas)
    if visible is None or area <= 0:
        return None
    visible = visible.reshape(-1, 2)
    angle = np.deg2rad(cv2.minAreaRect(points.astype(np.float32))[2])
    basis = np.array(((np.cos(angle), -np.sin(angle)), (np.sin(angle), np.cos(angle))))
    (u0, v0), (u1, v1) = (visible @ basis).min(0), (visible @ basis).max(0)
    return np.r_[visible.min(0), visible.max(0)], np.array(((u0, v0), (u1, v0), (u1, v1), (u0, v1))) @ basis.T


@pytest.mark.parametrize("kind", ["turned", "axis"])
def test_clip(kind):
    rng = np.random.default_rng(2)
    seen = {"inside": 0, "cut": 0, "gone": 0}
    for _ in range(300):
        points, box = shapes(kind, rng), np.full(4, -1.0)
        before = points.copy()
        n = clip_oriented(points, 4, W, H, scratch(4), box)
        if (before >= 0).all() and (before <= (W, H)).all():
            seen["inside"] += 1
            assert n == 4
            assert (box == -1).all()
            np.testing.assert_array_equal(points, before)
            continue
        want = clipped_by_opencv(before)
        if want is None:
            seen["gone"] += 1
            assert n == 0
            continue
        seen["cut"] += 1
        assert n == 4
        np.testing.assert_allclose(box, want[0], atol=1e-2)
        gap = np.abs(points[:, None] - want[1][None]).max(-1).min(1)  # the corners may begin elsewhere
        assert gap.max() <= 2e-2
    assert min(seen.values()) > 5
