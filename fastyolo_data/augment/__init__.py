"""Augmentation: carries out plans on tiles and labels; draws nothing."""

from fastyolo_data.augment.labels import join_labels, make_labels
from fastyolo_data.augment.pool import TilePool
from fastyolo_data.augment.sample import Renderer, SampleContext

__all__ = ["Renderer", "SampleContext", "TilePool", "join_labels", "make_labels"]
