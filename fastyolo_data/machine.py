"""What this process may use of the machine: cgroup limits and CPU affinity count, not the machine's totals."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

__all__ = ["cgroup_cpus", "cpu_count", "memory_available"]


def cpu_count() -> int:
    """CPUs that this process may use, at least 1."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpus()
    return max(1, min(cpus, math.ceil(quota))) if quota else cpus


def cgroup_cpus() -> float | None:
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


def memory_available() -> tuple[int, str]:
    """Return the bytes that this process may still take, and which limit sets that number."""
    found = [
        (int(psutil.virtual_memory().available), "MemAvailable" if os.path.exists("/proc/meminfo") else "free memory")
    ]
    found += [(left, "cgroup limit") for left in _cgroup_memory_left()]
    left = _address_space_left()
    if left is not None:
        found.append((left, "ulimit -v"))
    return min(found)


def _cgroup_memory_left() -> list[int]:
    """What every limit from this process's control group upwards leaves; file caches count as free."""
    found = []
    for base, limit, usage, inactive in _cgroup_memory_folders():
        try:
            allowed = (base / limit).read_text().strip()
            if allowed == "max" or int(allowed) >= 1 << 60:
                continue
            used = int((base / usage).read_text())
            stat = dict(line.split() for line in (base / "memory.stat").read_text().splitlines())
            found.append(max(0, int(allowed) - used + int(stat.get(inactive, 0))))
        except (OSError, ValueError):
            continue
    return found


def _cgroup_memory_folders() -> Iterator[tuple[Path, str, str, str]]:
    """Folders of this process's memory control group and its ancestors, with their file names (version 2, then 1)."""
    v2 = ("memory.max", "memory.current", "inactive_file")
    v1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (Path("/sys/fs/cgroup/memory"), v1) if controllers else (Path("/sys/fs/cgroup"), v2)
        # Inside a container the path may be the host's, and only the root is visible.
        inner = root / path.lstrip("/")
        for folder in dict.fromkeys((inner, *inner.parents, root)):
            if folder == root or root in folder.parents:
                yield folder, *names


def _address_space_left() -> int | None:
    """Bytes of address space that `ulimit -v` leaves, or None without such a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else max(0, limit - int(psutil.Process().memory_info().vms))
