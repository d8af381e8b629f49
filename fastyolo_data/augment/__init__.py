"""Augmentation: carries out plans on tiles and labels; draws nothing."""

from fastyolo_data.augment.instances import InstanceRules
from fastyolo_data.augment.labels import make_labels
from fastyolo_data.augment.pool import TilePool
from fastyolo_data.augment.sample import Renderer, SampleContext
from fastyolo_data.augment.targets import Targets, collect_targets, instance_rules, usable_hyp

__all__ = [
    "InstanceRules",
    "Renderer",
    "SampleContext",
    "Targets",
    "TilePool",
    "collect_targets",
    "instance_rules",
    "make_labels",
    "usable_hyp",
]
