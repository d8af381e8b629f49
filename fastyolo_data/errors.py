"""Every error this library raises on purpose.

FastYoloError
├── ConfigError       a bad argument, hyper-parameter or data.yaml (also a ValueError)
├── LabelError        a label file that cannot be used
├── ImageDecodeError  an image file that cannot be read or decoded
└── StoreError        a damaged or unusable image store

Messages say where, what was found, what was expected, and what to do.
"""

from __future__ import annotations

__all__ = ["ConfigError", "FastYoloError", "ImageDecodeError", "LabelError", "StoreError"]


class FastYoloError(Exception):
    """Base class of all errors of fastyolo_data."""


class ConfigError(FastYoloError, ValueError):
    """An argument, a hyper-parameter or a data.yaml is wrong."""


class LabelError(FastYoloError):
    """A label file cannot be parsed or breaks the rules of its task."""


class ImageDecodeError(FastYoloError):
    """An image file is missing, damaged, or in a format that cannot be decoded here."""


class StoreError(FastYoloError):
    """An image store is damaged, stale, or cannot be opened."""
