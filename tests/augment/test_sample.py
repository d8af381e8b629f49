"""Whole samples from plans: the fused kernel and the OpenCV sequence, through the same plan and the same labels."""

from __future__ import annotations

import numpy as np
import pytest

from fastyolo_data.augment import InstanceRules, Renderer, SampleContext, TilePool, make_labels
from fastyolo_data.datatypes import LabelTable, PackedStrings
from fastyolo_data.errors import ImageDecodeError
from fastyolo_data.hyp import get_dialect
from tests.conftest import paint
from tests.plan.planners import make_plan, make_planner
from tests.reference.warp import canvas_positions

N = 12


class Tiles:
    """A store of generated tiles; `broken` ones cannot be read."""

    name = "fake"

    def __init__(self, tile_hw: np.ndarray, broken: tuple[int, ...] = ()) -> None:
        self.tiles = [paint(np.random.default_rng(i), int(h), int(w)) for i, (h, w) in enumerate(tile_hw)]
        self.broken = broken

    def reader(self):
        return self

    def tile(self, index: int) -> np.ndarray:
        if index in self.broken:
            raise ImageDecodeError(f"image {index} is broken")
        return self.tiles[index]

    def close(self) -> None:
        """Nothing to free."""


def make_table() -> LabelTable:
    """Two boxes per image, the first as wide as a third of it."""
    rng = np.random.default_rng(0)
    xywhn = np.concatenate((rng.uniform(0.3, 0.7, (2 * N, 2)), rng.uniform(0.1, 0.5, (2 * N, 2))), 1)
    return LabelTable(
        PackedStrings.pack(f"{i}.jpg" for i in range(N)), np.full((N, 2), 99, np.int32), np.zeros(N, np.int64),
        np.zeros(N, np.int64), np.arange(0, 2 * N + 1, 2), np.arange(2 * N).astype(np.float32),
        xywhn.astype(np.float32), np.zeros(0, np.int64), np.zeros((0, 2), np.float32), np.zeros((0, 0, 3), np.float32),
    )  # fmt: skip


def samples(planner, plan, exact: bool, store=None):
    """(B, 3, H, W) pictures and label rows of a plan."""
    side = int(max(planner.tile_hw.max(), plan.canvas.max(), max(plan.out_hw)))
    pool = TilePool(4, int(planner.tile_hw.prod(1).max()))
    store = store or Tiles(planner.tile_hw)
    table = make_table()
    renderer = Renderer(SampleContext(table, store, pool, InstanceRules(planner.dialect), exact, side))
    labels = make_labels(plan, table, planner.dialect)
    out = np.random.default_rng(1).integers(0, 256, (len(plan), 3, *plan.out_hw), dtype=np.uint8)
    for row in range(len(plan)):
        renderer.run(plan, row, out[row])
    return out, labels, pool, renderer


HYPS = {
    "default": {},
    "tilted": {"degrees": 30.0, "shear": 8.0, "mixup": 0.5, "bgr": 0.5, "flipud": 0.5},
    "lone": {"mosaic": 0.0, "degrees": 10.0},
    "horizon": {"perspective": 0.01, "degrees": 40.0, "scale": 0.9, "translate": 0.5},
}


@pytest.mark.parametrize("hyp", HYPS)
@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5", "yolov7", "yolov9"])
def test_fast_and_exact_agree(dialect, hyp):
    planner = make_planner(N, imgsz=192, dialect=dialect, hyp=HYPS[hyp])
    _, plan = make_plan(planner, N)
    fast, *_ = samples(planner, plan, False)
    exact, *_ = samples(planner, plan, True)
    difference = np.abs(fast.astype(int) - exact)
    # Seams and borders count here: one pixel wide, which at this size is a few hundredths of a picture.
    assert difference.mean((1, 2, 3)).max() < 2.5
    assert (difference > 8).mean((1, 2, 3)).max() < 0.03


def test_the_horizon_case_is_one():
    """Some pictures show parts of the canvas from behind the viewer, some begin there."""
    planner = make_planner(N, imgsz=192, hyp=HYPS["horizon"])
    _, plan = make_plan(planner, N)
    behind = corner = 0
    for row in range(N):
        inverse = plan.inverse[row, 0]
        x, y = canvas_positions(inverse, 192, 192)
        d = inverse[2, 0] * np.arange(192) + inverse[2, 1] * np.arange(192)[:, None] + inverse[2, 2]
        behind += ((d < 0) & (x > 0) & (y > 0) & (x < 384) & (y < 384)).any()
        corner += inverse[2, 2] < 0
    assert behind > 0
    assert corner > 0


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5"])
def test_boxes_lie_on_what_they_name(dialect):
    """Tiles black but for one white box, which is the label: the picture's bright pixels are where the boxes are."""
    hyp = {"degrees": 15.0, "flipud": 0.5, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}
    planner = make_planner(N, imgsz=192, dialect=dialect, hyp=hyp)
    _, plan = make_plan(planner, N)
    store, table = Tiles(planner.tile_hw), make_table()
    for i, (h, w) in enumerate(planner.tile_hw):
        store.tiles[i][:] = 0
        for x, y, bw, bh in table.xywhn[2 * i : 2 * i + 2]:
            y0, y1, x0, x1 = (y - bh / 2) * h, (y + bh / 2) * h, (x - bw / 2) * w, (x + bw / 2) * w
            store.tiles[i][round(y0) : round(y1), round(x0) : round(x1)] = 255
    pictures, (idx, _, xywhn), *_ = samples(planner, plan, False, store)
    checked = 0
    for row in range(N):
        bright = pictures[row].min(0) > 200
        covered = np.zeros_like(bright)
        for x, y, w, h in xywhn[idx == row].astype(float) * 192:
            covered[
                max(int(y - h / 2) - 2, 0) : int(y + h / 2) + 3, max(int(x - w / 2) - 2, 0) : int(x + w / 2) + 3
            ] = True
            inner = bright[int(y - h / 4) : int(y + h / 4) + 1, int(x - w / 4) : int(x + w / 4) + 1]
            checked += bool(inner.mean() > 0.6)
        # Boxes of less than 2 pixels or a tenth of their area are dropped, so a little white may lie outside.
        assert (bright & ~covered).sum() <= 0.02 * bright.sum() + 40
    assert checked >= 0.8 * len(idx)


def test_a_broken_tile_is_raised_and_leaves_nothing_pinned():
    planner = make_planner(N, imgsz=64, hyp={"mixup": 1.0})
    _, plan = make_plan(planner, N)
    store = Tiles(planner.tile_hw, broken=(int(plan.tiles[0, 0, 2]),))
    with pytest.raises(ImageDecodeError, match="is broken"):
        samples(planner, plan, False, store)
    pool, table = TilePool(4, 64 * 64), make_table()
    renderer = Renderer(SampleContext(table, store, pool, InstanceRules(get_dialect("ultralytics")), False, 64))
    dst = np.empty((3, 64, 64), np.uint8)
    failed = 0
    for row in range(N):
        try:
            renderer.run(plan, row, dst)
        except ImageDecodeError:
            failed += 1
    assert failed > 0
    assert all(slot.pins == 0 for slot in pool._slots.values())
    assert len(pool._slots) <= 8  # pinned at once by one sample, not kept
