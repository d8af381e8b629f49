"""Helpers for loader tests."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import torch

QUICK: dict[str, Any] = {"imgsz": 96, "batch": 8, "workers": 2, "prefetch": 3, "cache": "none", "verbose": False}


def fingerprint(batch: Any) -> str:
    """Digest of everything in a batch, dict or tuple."""
    digest = hashlib.blake2b(digest_size=12)
    for value in batch.values() if isinstance(batch, dict) else batch:
        if isinstance(value, torch.Tensor):
            digest.update(str((value.dtype, tuple(value.shape))).encode() + value.contiguous().numpy().tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def loader_threads() -> list[threading.Thread]:
    """Worker threads that are alive in this process."""
    return [t for t in threading.enumerate() if t.name.startswith("fastyolo-")]
