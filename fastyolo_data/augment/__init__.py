"""Augmentation: carries out plans on tiles and labels; draws nothing."""

from fastyolo_data.augment.pool import TilePool
from fastyolo_data.augment.sample import LabelRows, Renderer, SampleContext

__all__ = ["LabelRows", "Renderer", "SampleContext", "TilePool"]
