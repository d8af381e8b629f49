"""What a result file says about where and how it was made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from fastyolo_data.machine import cgroup_cpus

__all__ = ["cpu_limit", "describe_machine", "git_commit", "machine_cpu_seconds"]

_PACKAGES = ("fastyolo_data", "ultralytics", "torch", "numpy", "opencv-python", "numba", "turbojpeg", "psutil")


def cpu_limit() -> dict[str, Any]:
    """Return the processor counts that matter: in the machine, in the affinity mask, and allowed by the cgroup."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {"logical": os.cpu_count(), "affinity": affinity, "cgroup": cgroup_cpus()}


def describe_machine() -> dict[str, Any]:
    """Return system, processor, memory, Python and package versions, thread settings and load."""
    threads = {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS")}
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "system": platform.platform(),
        "processor": _processor_name(),
        "cpus": cpu_limit(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": list(psutil.getloadavg()),
        "python": sys.version.split()[0],
        "versions": versions,
        "thread_environment": threads,
    }


def git_commit(folder: Path) -> str | None:
    """Return the commit of the checkout that holds this package, with "-dirty" when it has changes; None outside one.

    Args:
        folder: a folder inside the package.
    """
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 10}
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        run = subprocess.run(describe, check=True, **options)
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", "errors.py"], check=False, **options)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip() if tracked.returncode == 0 else None


def machine_cpu_seconds() -> float:
    """Return the seconds in which the machine's processors were not idle, whoever used them."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal", "interrupt", "dpc")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _processor_name() -> str:
    """Return the processor's model name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
