"""Planning: epoch order, rect shapes and every random draw, as pure functions of (seed, epoch, index)."""

from fastyolo_data.plan.draws import SOURCES, paste_order
from fastyolo_data.plan.geometry import tile_shape
from fastyolo_data.plan.order import EpochOrder, batch_shapes, plan_order, rect_order, share_size
from fastyolo_data.plan.quad import plan_quads
from fastyolo_data.plan.sample import AugmentPlan, LetterboxPlan, SamplePlanner

__all__ = [
    "SOURCES",
    "AugmentPlan",
    "EpochOrder",
    "LetterboxPlan",
    "SamplePlanner",
    "batch_shapes",
    "paste_order",
    "plan_order",
    "plan_quads",
    "rect_order",
    "share_size",
    "tile_shape",
]
