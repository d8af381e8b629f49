"""Several trainings with two loaders and several seeds, one after the other, and what their metrics say."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CONTENDERS", "absolute_data", "compare"]

CONTENDERS = ("stock", "fastyolo")


def absolute_data(data: str | Path, copy: Path) -> Path:
    """Write a data.yaml whose path is absolute: training code looks for `path: .` in folders of its own."""
    content = yaml.safe_load(Path(data).read_text(encoding="utf-8"))
    content["path"] = str(Path(data).resolve().parent / content.get("path", "."))
    copy.write_text(yaml.safe_dump(content), encoding="utf-8")
    return copy


def compare(
    run: Callable[[str, int], dict[str, Any]], seeds: int, settings: dict[str, Any], output: Path | None
) -> None:
    """Run every seed with both loaders, print each result and the means, and write a result file.

    Args:
        run: (contender, seed) -> result with at least mAP50 and `ours`: whether our loader made the batches.
        seeds: number of seeds.
        settings: for the result file.
        output: that file.
    """
    runs = []
    for seed in range(seeds):
        for contender in CONTENDERS:
            runs.append({"contender": contender, "seed": seed, **run(contender, seed)})
            if runs[-1]["ours"] != (contender == "fastyolo"):
                sys.exit(f"{contender}: the other loader made the batches; nothing to compare")
            print(runs[-1], flush=True)
    summary = {}
    for contender in CONTENDERS:
        values = [r["mAP50"] for r in runs if r["contender"] == contender]
        mean = round(statistics.mean(values), 4)
        summary[contender] = {"mAP50": values, "mean": mean, "least": min(values), "most": max(values)}
    print(json.dumps(summary, indent=2))
    if output:
        output.write_text(json.dumps({"settings": settings, "runs": runs, "summary": summary}, indent=1) + "\n")
