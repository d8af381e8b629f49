"""What this process may use of the machine: cgroup limits and CPU affinity count, not the machine's totals."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["cpu_count"]


def cpu_count() -> int:
    """CPUs that this process may use, at least 1."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cpus()
    return max(1, min(cpus, math.ceil(quota))) if quota else cpus


def _cgroup_cpus() -> float | None:
    """CPU quota of the container, or None without one."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        base = Path("/sys/fs/cgroup/cpu")
        quota_us = int((base / "cpu.cfs_quota_us").read_text())
        return quota_us / int((base / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None
    except (OSError, ValueError):
        return None
