"""One round: every contender with the same settings, started, checked, timed in interleaved passes, and ended.

A contender's process stays alive between its passes but is idle while another is timed: `Client.settle` waits until its
queues are full and its workers sleep. What fills the queues meanwhile is skipped, untimed, by the next pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastyolo_data.cli.bench.adapters import Settings
from fastyolo_data.cli.bench.checks import compare, implausible
from fastyolo_data.cli.bench.client import BenchError, Client
from fastyolo_data.cli.bench.files import disk_usage, drop_page_cache
from fastyolo_data.cli.bench.memory import METRIC, PeakSampler, TreeMemory
from fastyolo_data.cli.bench.stats import interleave, median_mad

__all__ = ["Contender", "Plan", "Result", "compare_results", "run_round"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        passes: throughput passes of each contender.
        seconds: length of a pass.
        gpu_rates: images per second of the simulated GPUs; empty for none.
        gpu_passes: passes of each contender at each rate.
        warm_seconds: upper bound of the warm-up epoch.
        check_batches: batches that the sanity check averages over.
        cold: also time a start and an epoch for which nothing is in the page cache.
    """

    passes: int = 5
    seconds: float = 4.0
    gpu_rates: tuple[float, ...] = (100, 200, 400, 800, 1600)
    gpu_passes: int = 2
    warm_seconds: float = 20.0
    check_batches: int = 6
    cold: bool = False

    def estimate(self, contenders: int) -> float:
        """Return roughly how many seconds a round takes: starts and warm-up, then passes with their skipped batches."""
        timed = self.passes + len(self.gpu_rates) * self.gpu_passes
        return contenders * (12 + self.warm_seconds / 2 + 2 * self.seconds + timed * (self.seconds + 2.5)) + 8


@dataclass(frozen=True)
class Contender:
    """One loader with its own copy of the data.

    Attributes:
        adapter: key of ADAPTERS.
        settings: what it is asked for.
    """

    adapter: str
    settings: Settings

    @property
    def label(self) -> str:
        """Name for progress lines."""
        return self.adapter if self.settings.cache == "none" else f"{self.adapter} ({self.settings.cache})"


@dataclass
class Result:
    """What was measured of one contender; plain lists and dicts, ready for JSON.

    Attributes:
        adapter, cache: who, in which cache mode.
        versions: of the packages in its process.
        cold, warm: answers to a start with no cache at all and to one with everything cached.
        check: description of its batches.
        memory: peak and baseline in bytes (see memory.py), and which metric they are.
        passes: one dict for each throughput pass.
        gpu: one dict for each pass against a simulated GPU, with its `rate`.
        disk_bytes: what the first start left on the disk: label cache, decoded images.
        uncached_epoch: batches and seconds of an epoch whose files were not in the page cache; empty: not measured.
    """

    adapter: str
    cache: str
    versions: dict[str, str] = field(default_factory=dict)
    cold: dict[str, float] = field(default_factory=dict)
    warm: dict[str, float] = field(default_factory=dict)
    check: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    passes: list[dict[str, float]] = field(default_factory=list)
    gpu: list[dict[str, float]] = field(default_factory=list)
    disk_bytes: int = 0
    uncached_epoch: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything, with the medians that the report shows."""
        return {**asdict(self), "summary": self.summary()}

    def summary(self) -> dict[str, Any]:
        """Return the medians and MADs of the passes, and the busy share at each rate."""
        speed, speed_mad = median_mad([p["images"] / p["seconds"] for p in self.passes])
        cpu, cpu_mad = median_mad([1000 * p["cpu_seconds"] / p["images"] for p in self.passes])
        busy: dict[str, float] = {}
        for rate in dict.fromkeys(p["rate"] for p in self.gpu):
            busy[f"{rate:g}"] = median_mad([p["busy_seconds"] / p["seconds"] for p in self.gpu if p["rate"] == rate])[0]
        return {
            "images_per_second": speed,
            "images_per_second_mad": speed_mad,
            "cpu_seconds_per_1000": cpu,
            "cpu_seconds_per_1000_mad": cpu_mad,
            "build_cold_seconds": self.cold.get("build_seconds"),
            "uncached_images_per_second": self.uncached_epoch.get("images_per_second"),
            "first_batch_cold_seconds": self.cold.get("first_batch_seconds"),
            "first_batch_warm_seconds": self.warm.get("first_batch_seconds"),
            "first_batch_warm_since_start_seconds": self.warm.get("since_start"),
            "memory_over_baseline_bytes": self.memory["peak"] - self.memory["baseline"] if self.memory else None,
            "gpu_busy_share": busy,
            "other_cores": median_mad([p["other_cores"] for p in self.passes])[0],
        }


def compare_results(a: Result, b: Result) -> dict[str, Any]:
    """Return how many times as fast a is as b: the median over the pairs of neighbouring passes, and every pair."""
    pairs = [
        (p["images"] / p["seconds"]) / (q["images"] / q["seconds"]) for p, q in zip(a.passes, b.passes, strict=True)
    ]
    cpu = a.summary()["cpu_seconds_per_1000"] / b.summary()["cpu_seconds_per_1000"]
    return {
        "cache": a.cache,
        "b_cache": b.cache,
        "a": a.adapter,
        "b": b.adapter,
        "speed_ratio": median_mad(pairs)[0],
        "speed_ratio_pairs": pairs,
        "cpu_ratio": cpu,
    }


def run_round(contenders: Sequence[Contender], plan: Plan, folder: Path, say: Say) -> list[Result]:
    """Measure the contenders against each other.

    Args:
        contenders: each with its own copy of the same data.
        plan: how much to measure.
        folder: temporary folder for logs and settings.
        say: called with one line of progress at a time.

    Raises:
        BenchError: a contender failed, or its batches are not comparable with the first one's.
    """
    results = [Result(c.adapter, c.settings.cache) for c in contenders]
    for contender, result in zip(contenders, results, strict=True):
        say(f"  {contender.label}: first start (nothing cached yet), looking at its batches")
        _cold_start(contender, result, plan, folder)
    _check(contenders, results)
    say("  memory: a process that only imports torch, cv2 and numba, then each loader alone")
    baseline = _baseline(folder)
    for contender, result in zip(contenders, results, strict=True):
        _memory(contender, result, plan, folder, baseline)
        if plan.cold:
            _uncached_epoch(contender, result, plan, folder)
            say(f"  {contender.label}: {result.uncached_epoch['images_per_second']:.0f} img/s with an empty page cache")
    with contextlib.ExitStack() as stack:
        clients = []
        for contender, result in zip(contenders, results, strict=True):
            say(f"  {contender.label}: warm start, one epoch to warm up")
            clients.append(stack.enter_context(Client(contender.adapter, folder)))
            result.warm, _ = _start(clients[-1], contender)
            clients[-1].ask("warm", max_seconds=plan.warm_seconds)
            clients[-1].settle()
        _throughput(clients, results, plan, say)
        _gpu_simulation(clients, results, plan, say)
    return results


def _start(client: Client, contender: Contender) -> tuple[dict[str, float], dict[str, str]]:
    """Bring a process to its first batch; return the times and the versions of its packages."""
    loaded = client.ask("load")
    built = client.ask("build", settings=asdict(contender.settings))
    first = client.ask("first")
    times = {
        "import_seconds": loaded["import_seconds"],
        "build_seconds": built["build_seconds"],
        "first_batch_seconds": first["first_batch_seconds"],
        "since_start": first["since_start"],
    }
    return times, loaded["versions"]


def _cold_start(contender: Contender, result: Result, plan: Plan, folder: Path) -> None:
    """Start once without any cache on disk: fills the label cache and the JIT cache, and shows the batches."""
    data = Path(contender.settings.data).parent
    before = disk_usage(data)
    with Client(contender.adapter, folder) as client:
        result.cold, result.versions = _start(client, contender)
        result.check = client.ask("describe", batches=plan.check_batches)
    result.disk_bytes = disk_usage(data) - before


def _check(contenders: Sequence[Contender], results: Sequence[Result]) -> None:
    """Raise BenchError unless all batches are plausible and like the first contender's."""
    problems = []
    for contender, result in zip(contenders, results, strict=True):
        problems += implausible(contender.adapter, result.check, contender.settings.batch, contender.settings.imgsz)
    for result in results[1:]:
        problems += compare(results[0].adapter, results[0].check, result.adapter, result.check)
    if problems:
        raise BenchError("nothing was timed, because the batches are not comparable:\n  " + "\n  ".join(problems))


def _baseline(folder: Path) -> TreeMemory:
    """Return the peak memory of a process that imports torch, cv2 and numba and nothing else."""
    with Client("baseline", folder) as client, PeakSampler(client.process.pid) as sampler:
        client.ask("load")
    return sampler.peak


def _memory(contender: Contender, result: Result, plan: Plan, folder: Path, baseline: TreeMemory) -> None:
    """Sample the memory of one contender alone, from its start through two passes' worth of loading."""
    with Client(contender.adapter, folder) as client, PeakSampler(client.process.pid) as sampler:
        _start(client, contender)
        client.ask("run", seconds=2 * plan.seconds, rate=None)
    result.memory = {
        "metric": METRIC,
        "peak": sampler.peak.footprint,
        "baseline": baseline.footprint,
        "peak_pss": sampler.peak.pss,
        "baseline_pss": baseline.pss,
        "samples": sampler.samples,
    }


def _uncached_epoch(contender: Contender, result: Result, plan: Plan, folder: Path) -> None:
    """Start with nothing of the data in the page cache, and time (the head of) an epoch."""
    drop_page_cache(Path(contender.settings.data).parent)
    with Client(contender.adapter, folder) as client:
        start, _ = _start(client, contender)
        done = client.ask("warm", max_seconds=plan.warm_seconds)
    speed = done["batches"] * contender.settings.batch / done["seconds"]
    result.uncached_epoch = {**start, **done, "images_per_second": speed}


def _throughput(clients: Sequence[Client], results: Sequence[Result], plan: Plan, say: Say) -> None:
    """Time the passes as fast as batches come."""
    say(f"  {plan.passes} passes of {plan.seconds:g} s each, interleaved")
    for i in interleave(range(len(clients)), plan.passes):
        done = clients[i].ask("run", seconds=plan.seconds, rate=None)
        clients[i].settle()
        results[i].passes.append(done)
        say(f"    {results[i].adapter:<12} {results[i].cache:<10} {done['images'] / done['seconds']:8.1f} img/s")


def _gpu_simulation(clients: Sequence[Client], results: Sequence[Result], plan: Plan, say: Say) -> None:
    """Time the passes with a consumer that is busy 1/rate seconds for each image."""
    for rate in plan.gpu_rates:
        shares: dict[str, list[float]] = {r.adapter: [] for r in results}
        for i in interleave(range(len(clients)), plan.gpu_passes):
            done = clients[i].ask("run", seconds=plan.seconds, rate=rate)
            clients[i].settle()
            results[i].gpu.append({"rate": rate, **done})
            shares[results[i].adapter].append(done["busy_seconds"] / done["seconds"])
        line = " · ".join(f"{name} {median_mad(values)[0]:.0%}" for name, values in shares.items())
        say(f"  simulated GPU of {rate:g} img/s busy: {line}")
