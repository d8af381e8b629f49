"""The text table and the JSON file of a bench run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastyolo_data.cli.bench.measure import Result, compare_results

__all__ = ["SCHEMA", "document", "table", "write_json"]

SCHEMA = 1
_NOISY = 0.15  # cores used by others from which the report warns


def document(
    results: Sequence[Result],
    *,
    command: str,
    commit: str | None,
    started: str,
    machine: dict[str, Any],
    settings: dict[str, Any],
    dataset: dict[str, Any],
) -> dict[str, Any]:
    """Return everything about a run as plain JSON types.

    Args:
        results: of all rounds.
        command, commit, started: how, from which source, and when the run was made.
        machine: from `describe_machine`.
        settings: sizes, passes, workers.
        dataset: what was loaded.
    """
    if settings.get("together"):
        mine = [r for r in results if r.adapter == results[0].adapter]
        pairs = [(a, b) for a in mine for b in results if b.adapter != a.adapter]
    else:
        rounds = [[r for r in results if r.cache == cache] for cache in dict.fromkeys(r.cache for r in results)]
        pairs = [(group[0], other) for group in rounds for other in group[1:]]
    return {
        "schema": SCHEMA,
        "tool": "fastyolo bench",
        "started": started,
        "command": command,
        "commit": commit,
        "machine": machine,
        "settings": settings,
        "dataset": dataset,
        "results": [r.to_json() for r in results],
        "comparisons": [compare_results(a, b) for a, b in pairs],
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write the file in one step, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
        os.chmod(name, 0o644)  # mkstemp gives 0600
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def table(content: dict[str, Any]) -> str:
    """Return the results of a `document` as text: one line for each contender, then the GPU simulation."""
    lines = []
    if content["settings"].get("together"):
        lines = [*_cache_table(content["results"]), *_cross_ratios(content), ""]
    for cache in () if lines else dict.fromkeys(r["cache"] for r in content["results"]):
        group = [r for r in content["results"] if r["cache"] == cache]
        lines += [f"cache: {cache}", *_speed_table(group), *_ratios(content, cache), *_gpu_table(group), ""]
    others = max(r["summary"]["other_cores"] for r in content["results"])
    if others > _NOISY:
        lines.append(f"Beware: other programs used {others:.1f} cores during the passes; the numbers are not reliable.")
    return "\n".join(lines).rstrip()


def _speed_table(group: Sequence[dict[str, Any]]) -> list[str]:
    """Return the main table of one round."""
    metric = group[0]["memory"]["metric"]
    head = ("loader", "img/s", "± MAD", "CPU s/1000", "first batch", "no label cache", "memory MB")
    rows = []
    for r in group:
        s = r["summary"]
        rows.append(
            (
                r["adapter"],
                f"{s['images_per_second']:.1f}",
                f"{s['images_per_second_mad']:.1f}",
                f"{s['cpu_seconds_per_1000']:.2f}",
                f"{s['first_batch_warm_seconds']:.2f} s",
                f"{s['first_batch_cold_seconds']:.2f} s",
                f"{s['memory_over_baseline_bytes'] / 1e6:.0f}",
            )
        )
    notes = ["  CPU: whole process tree. First batch: after the imports. "]
    notes[0] += "Memory: peak of the process tree above a process that only imports torch, cv2 and numba."
    if metric != "pss":
        notes.append("  Memory is the resident set size here, which counts shared pages once for each process.")
    return [*_align([head, *rows]), *notes]


def _cache_table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line for each loader and cache mode of a round that has them all."""
    head = ("loader", "cache", "build", "disk MB", "memory MB", "first batch", "cold img/s", "warm img/s", "± MAD")
    rows = []
    for r in results:
        s, cold = r["summary"], r["summary"]["uncached_images_per_second"]
        rows.append(
            (
                r["adapter"],
                r["cache"],
                f"{s['build_cold_seconds']:.2f} s",
                f"{r['disk_bytes'] / 1e6:.1f}",
                f"{s['memory_over_baseline_bytes'] / 1e6:.0f}",
                f"{s['first_batch_warm_seconds']:.2f} s",
                "-" if cold is None else f"{cold:.0f}",
                f"{s['images_per_second']:.1f}",
                f"{s['images_per_second_mad']:.1f}",
            )
        )
    notes = [
        "  Build: label scan and filling of the cache, nothing cached before. Disk: all that the loader left there.",
        "  First batch: of a later start. Cold: first epoch of a later start, its files not in the page cache.",
        "  Memory: peak of the process tree above a process that only imports torch, cv2 and numba.",
    ]
    return [*_align([head, *rows]), *notes]


def _cross_ratios(content: dict[str, Any]) -> list[str]:
    """Return how the first loader compares with the others, each in every cache mode."""
    return [
        f"  {c['a']} {c['cache']} / {c['b']} {c['b_cache']}: {c['speed_ratio']:.2f}x images per second "
        f"({min(c['speed_ratio_pairs']):.2f} to {max(c['speed_ratio_pairs']):.2f})"
        for c in content["comparisons"]
    ]


def _ratios(content: dict[str, Any], cache: str) -> list[str]:
    """Return how the first contender of a round compares with each other one."""
    lines = []
    for c in content["comparisons"]:
        if c["cache"] == cache:
            low, high = min(c["speed_ratio_pairs"]), max(c["speed_ratio_pairs"])
            lines.append(
                f"  {c['a']} / {c['b']}: {c['speed_ratio']:.2f}x images per second ({low:.2f} to {high:.2f} over the "
                f"pairs of passes), {c['cpu_ratio']:.2f}x CPU seconds"
            )
    return lines


def _gpu_table(group: Sequence[dict[str, Any]]) -> list[str]:
    """Return the busy share of a simulated GPU at each rate; nothing when it wasn't simulated."""
    rates = list(group[0]["summary"]["gpu_busy_share"])
    if not rates:
        return []
    head = ("GPU busy at", *(f"{rate} img/s" for rate in rates))
    rows = [(r["adapter"], *(f"{r['summary']['gpu_busy_share'][rate]:.0%}" for rate in rates)) for r in group]
    return ["", *_align([head, *rows])]


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(_cell(row, i, widths[i]) for i in range(len(row))) for row in rows]


def _cell(row: Sequence[str], i: int, width: int) -> str:
    return row[i].ljust(width) if i == 0 else row[i].rjust(width)
