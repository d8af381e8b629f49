"""Planners for tests: n images of mixed sizes."""

from __future__ import annotations

import numpy as np

from fastyolo_data.hyp import Hyp, get_dialect
from fastyolo_data.plan import AugmentPlan, SamplePlanner, plan_order, tile_shape


def make_planner(n: int = 60, imgsz: int = 320, dialect: str = "ultralytics", hyp=None, **kw) -> SamplePlanner:
    """A planner with augmentation; keywords replace its fields."""
    d = get_dialect(dialect)
    hw = np.random.default_rng(n).integers(50, 900, (n, 2))
    fields = dict(seed=5, augment=True, mosaic=True, recent=0, shapes=None)
    return SamplePlanner(
        tile_hw=tile_shape(hw, imgsz, d), imgsz=imgsz, hyp=Hyp(**(hyp or {})), dialect=d, **{**fields, **kw}
    )


def make_plan(planner: SamplePlanner, n: int, *, epoch: int = 0, shuffle: bool = True, images: int | None = None, **kw):
    """Plan a whole epoch of n positions at once."""
    order = plan_order(images or len(planner.tile_hw), seed=planner.seed, epoch=epoch, shuffle=shuffle, batch=16, **kw)
    return order, planner.plan(order, epoch, 0, n)


def many(planner: SamplePlanner, epochs: int, **kw) -> list[AugmentPlan]:
    """One plan per epoch."""
    return [make_plan(planner, len(planner.tile_hw), epoch=e, **kw)[1] for e in range(epochs)]


def arrays(plan) -> dict[str, np.ndarray]:
    """Every array of a plan, by name."""
    return {k: np.asarray(v) for k, v in vars(plan).items() if k not in ("box", "out_hw")}
