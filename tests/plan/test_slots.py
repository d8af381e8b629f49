"""The slots of a sample's stream: each decides one thing, and none is read twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fastyolo_data.plan import SamplePlanner, draws, plan_order, sample
from fastyolo_data.plan.streams import SAMPLE, Streams
from tests.plan.planners import make_plan, make_planner

HYP = {
    "degrees": 20.0, "translate": 0.2, "scale": 0.4, "shear": 8.0, "perspective": 0.0008, "mosaic": 0.7, "mixup": 0.7,
    "flipud": 0.7, "fliplr": 0.7, "bgr": 0.7, "hsv_h": 0.02, "hsv_s": 0.6, "hsv_v": 0.3,
}  # fmt: skip
WARP = ("perspective", "angle", "scale", "shear", "translate")


def results(monkeypatch, planner: SamplePlanner, u: np.ndarray) -> dict[str, np.ndarray]:
    """What one sample's numbers lead to; the warp as it is before it becomes a matrix."""
    seen = {}
    compose = sample.warp_matrix

    def spy(canvas, out_hw, perspective, angle, scale, shear, translate, dialect):
        seen.update(zip(WARP, (perspective, angle, scale, shear, translate), strict=True))
        return compose(canvas, out_hw, perspective, angle, scale, shear, translate, dialect)

    with monkeypatch.context() as patch:
        patch.setattr(sample, "warp_matrix", spy)
        patch.setattr(SamplePlanner, "_draw", lambda *_: (u[None], np.array([0.4])))
        plan = make_plan(planner, 1, shuffle=False)[1]
    names = ("counts", "tiles", "rects", "hsv", "flipud", "fliplr", "bgr", "ratio")
    names += ("paste_key", "areas", "area_pick", "spots", "spot_pick")
    return {**{k: np.array(getattr(plan, k)) for k in names}, **{k: np.array(v) for k, v in seen.items()}}


CASES = {
    "ultralytics": {},
    "ultralytics_all": {"cutmix": 0.7, "copy_paste": 0.7, "copy_paste_mode": "mixup"},
    "yolov5": {},
    "yolov7": {},
    "yolov7_all": {"paste_in": 0.7},
}
# Layers; gates (mosaic, one for both layers but in ultralytics; mixup; which kind of mosaic; cutmix; copies; paste_in);
# partners (three or eight per layer, the first tile of each other layer) with the places in which they are put.
EXPECTED = {
    "ultralytics": (2, 2 + 1, 6 + 1),
    "ultralytics_all": (6, 6 + 1 + 1 + 3, 18 + 5),
    "yolov5": (2, 1 + 1, 6 + 1 + 8),
    "yolov7": (2, 1 + 1 + 2, 16 + 1),
    "yolov7_all": (14, 1 + 1 + 2 + 1, 14 * 8 + 13),
}


@pytest.mark.parametrize("case", CASES)
def test_each_slot_decides_one_thing(case, monkeypatch):
    roles, gates, tiles = EXPECTED[case]
    planner = make_planner(600, dialect=case.split("_")[0], hyp=HYP | CASES[case])
    planner = replace(planner, tile_hw=np.full((600, 2), 320))  # so that other partners leave the layout alone
    base = 0.5 + np.arange(draws.SLOTS) / 4000
    plain = results(monkeypatch, planner, base)
    decides: Counter[str] = Counter()
    for slot in range(draws.SLOTS):
        changed = set()
        for value in (0.05, 0.95):
            u = base.copy()
            u[slot] = value
            other = results(monkeypatch, planner, u)
            changed |= {k for k, v in other.items() if not np.array_equal(v, plain[k])}
        if "counts" in changed:  # a gate; layouts follow it
            assert changed <= {"counts", "rects", "ratio", "tiles"}
            changed = {"counts"}
        assert len(changed) <= 1, f"slot {slot} decides {sorted(changed)}"
        decides.update(changed)
    warped = 6 if case == "ultralytics_all" else 2
    assert decides == {
        "counts": gates, "tiles": tiles, "rects": 2 * roles, "perspective": 2 * warped, "angle": warped,
        "scale": warped, "shear": 2 * warped, "translate": 2 * warped, "hsv": 3, "flipud": 1, "fliplr": 1, "bgr": 1,
        "paste_key": roles, "area_pick": 1,
        **({"areas": 9} if case == "ultralytics_all" else {}),
        **({"spots": 100, "spot_pick": 20} if case == "yolov7_all" else {}),
    }  # fmt: skip


def test_number_of_slots():
    assert (draws.BASE, draws.SLOTS) == (44, 505)  # a new draw is appended: moving slots changes every seeded run


def test_later_slots_leave_the_first_ones_alone():
    """The numbers of the first version, whatever else is drawn."""
    for dialect in ("yolov5", "yolov7"):
        planner = make_planner(4, dialect=dialect, hyp={"mixup": 0.5})
        u, _ = planner._draw(plan_order(4, seed=5, epoch=2, shuffle=False, batch=4), 2, 0, 4)
        for i in range(4):
            np.testing.assert_array_equal(u[i, : draws.BASE], Streams(5, 2).at(SAMPLE, i).random(draws.BASE))
        assert u[:, draws.BASE :].any() == (dialect == "yolov7")
