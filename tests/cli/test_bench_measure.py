"""Order of passes, statistics, memory sampling, the child process, and the comparison of batches."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from fastyolo_data.cli.bench import checks
from fastyolo_data.cli.bench.adapters import ADAPTERS, available
from fastyolo_data.cli.bench.client import BenchError, Client
from fastyolo_data.cli.bench.measure import Plan, Result, compare_results
from fastyolo_data.cli.bench.memory import METRIC, PeakSampler, TreeMemory, tree_memory
from fastyolo_data.cli.bench.stats import interleave, median_mad
from fastyolo_data.cli.bench.worker import Session, tree_cpu_seconds

MB = 1 << 20
HOLD = """
import sys
block = bytearray(b"x") * (int(sys.argv[1]) << 20)
print("ready", flush=True)
sys.stdin.read()
"""


def test_passes_alternate_in_abba_order() -> None:
    assert interleave("AB", 4) == list("ABBAABBA")
    assert interleave("ABC", 2) == list("ABCCBA")
    assert interleave("A", 3) == list("AAA")
    assert interleave("AB", 0) == []


def test_median_and_mad() -> None:
    assert median_mad([1, 2, 3, 4, 100]) == (3, 1)
    assert median_mad([1, 2, 3, 4]) == (2.5, 1)
    assert median_mad([7]) == (7, 0)
    assert all(map(math.isnan, median_mad([])))


def test_summary_takes_medians_of_the_passes() -> None:
    passes = [{"images": 100, "seconds": s, "cpu_seconds": 2.0, "other_cores": 0.0} for s in (1.0, 2.0, 4.0)]
    gpu = [{"rate": 400.0, "busy_seconds": b, "seconds": 1.0} for b in (0.2, 0.4)]
    result = Result("ours", "none", memory={"peak": 500, "baseline": 200}, passes=passes, gpu=gpu)
    summary = result.summary()
    assert summary["images_per_second"] == 50
    assert summary["images_per_second_mad"] == 25
    assert summary["cpu_seconds_per_1000"] == 20
    assert summary["gpu_busy_share"] == {"400": pytest.approx(0.3)}
    assert summary["memory_over_baseline_bytes"] == 300


def test_comparison_pairs_neighbouring_passes() -> None:
    def result(name: str, speeds: list[float]) -> Result:
        passes = [{"images": v, "seconds": 1.0, "cpu_seconds": 1.0, "other_cores": 0.0} for v in speeds]
        return Result(name, "none", passes=passes)

    found = compare_results(result("ours", [300, 150, 330]), result("stock", [100, 50, 110]))
    assert found["speed_ratio_pairs"] == [3, 3, 3]  # a machine that is slow for a while slows both
    assert found["speed_ratio"] == 3
    assert (found["a"], found["b"], found["cache"]) == ("ours", "stock", "none")


def test_estimate_grows_with_the_work() -> None:
    assert Plan().estimate(2) > Plan(gpu_rates=()).estimate(2) > Plan(gpu_rates=(), passes=1).estimate(1) > 0


@pytest.fixture
def holder() -> Any:
    """Start children that hold a block of memory; end them afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(megabytes: int) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(megabytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process.pid

    yield start
    for process in started:
        process.communicate(timeout=10)


@pytest.mark.parametrize("kind", ["pss", "footprint"])
def test_memory_of_a_child_is_seen(holder: Any, kind: str) -> None:
    small, large = (getattr(tree_memory(holder(n)), kind) for n in (1, 200))
    assert 190 * MB < large - small < 210 * MB
    own = getattr(tree_memory(os.getpid()), kind)  # this process and both children
    assert own > 200 * MB + small


def test_memory_of_no_process_is_zero() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    assert tree_memory(process.pid) == TreeMemory(0, 0)


@pytest.mark.skipif(METRIC != "pss", reason="only Linux tells the proportional set size")
def test_shared_pages_are_counted_once() -> None:
    block = bytearray(b"x") * (120 * MB)
    before = tree_memory(os.getpid())
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    try:
        time.sleep(0.2)
        after = tree_memory(os.getpid())
        assert after.pss - before.pss < 60 * MB
        assert after.footprint - before.footprint < 60 * MB
        assert len(block) == 120 * MB
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


MAP = """
import mmap, sys
with open(sys.argv[1], "rb") as f:
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(m[i] for i in range(0, len(m), 4096))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(METRIC != "pss", reason="only Linux tells the proportional set size")
def test_footprint_does_not_depend_on_strangers(tmp_path: Path) -> None:
    """A second process that maps the same file halves the PSS of the first one's pages, but not its footprint."""
    (tmp_path / "library").write_bytes(os.urandom(64 * MB))
    command = [sys.executable, "-c", MAP, str(tmp_path / "library")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        alone = tree_memory(first.pid)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "ready\n"
            shared = tree_memory(first.pid)
            second.communicate(timeout=10)
        first.communicate(timeout=10)
    assert alone.pss - shared.pss > 25 * MB
    assert abs(alone.footprint - shared.footprint) < 4 * MB
    assert alone.footprint > 64 * MB


def test_peak_sampler_keeps_the_highest(holder: Any) -> None:
    pid = holder(150)
    with PeakSampler(pid, interval=0.02) as sampler:
        time.sleep(0.2)
    assert sampler.samples > 2
    assert min(sampler.peak.pss, sampler.peak.footprint) >= 150 * MB


def test_cpu_seconds_include_children_that_ended() -> None:
    before = tree_cpu_seconds()
    code = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert tree_cpu_seconds() - before >= 0.45


class EndlessAdapter:
    """A loader whose batches take 5 ms each."""

    def prefetched(self) -> int:
        return 3

    def epoch_batches(self) -> int:
        return 10


def endless() -> Any:
    while True:
        time.sleep(0.005)
        yield {"img": [0] * 8}


def session() -> Session:
    s = Session("baseline", time.time())
    s.adapter = EndlessAdapter()  # type: ignore[assignment]
    s.stream = endless()
    return s


def test_a_pass_counts_whole_batches_for_the_time_asked() -> None:
    done = session().run(seconds=0.3, rate=None)
    assert done["images"] == 8 * done["batches"]
    assert 0.3 <= done["seconds"] < 0.6
    assert 8 / 0.03 < done["images"] / done["seconds"] <= 8 / 0.005
    assert done["busy_seconds"] == 0
    assert 0 <= done["other_cores"] <= (os.cpu_count() or 1) + 1


def test_a_simulated_gpu_is_busy_for_its_share() -> None:
    done = session().run(seconds=0.5, rate=400)  # 20 ms busy, then about 5 ms of waiting
    assert done["busy_seconds"] == pytest.approx(done["images"] / 400)
    assert 0.5 < done["busy_seconds"] / done["seconds"] < 0.82


def test_warm_up_is_one_epoch_or_the_time_limit() -> None:
    assert session().warm(max_seconds=10)["batches"] == 10
    assert session().warm(max_seconds=0.01)["batches"] < 10


@pytest.mark.parametrize("adapter", [name for name in ADAPTERS if available(name)])
def test_a_child_imports_nothing_heavy_before_it_is_told(adapter: str, tmp_path: Path) -> None:
    """What `import fastyolo_data` pulls in must not be charged to a competitor, nor escape our own import time."""
    with Client(adapter, tmp_path) as client:
        loaded = client.ask("load")
    assert loaded["already_imported"] == []
    assert loaded["import_seconds"] > 0.2


def test_a_client_reports_failure_and_leaves_no_process(tmp_path: Path) -> None:
    with Client("baseline", tmp_path) as client:
        assert set(client.ask("load")["versions"]) == {"torch", "cv2", "numba"}
        with pytest.raises(BenchError, match="baseline: 'first' failed: StopIteration"):
            client.ask("first")
        assert client.settle(limit=5) < 5
        pid = client.process.pid
    assert not psutil.pid_exists(pid)


def test_a_client_notices_a_dead_process(tmp_path: Path) -> None:
    with Client("baseline", tmp_path) as client:
        client.process.kill()
        with pytest.raises(BenchError, match="ended with code"):
            client.ask("load")


def test_a_client_does_not_wait_for_ever(tmp_path: Path) -> None:
    with Client("baseline", tmp_path) as client, pytest.raises(BenchError, match="no answer to 'load' within 0 s"):
        client.ask("load", timeout=0.01)


GOOD = {
    "layout": {
        "img": ["Tensor", "torch.uint8", [3, 64, 64]],
        "bboxes": ["Tensor", "torch.float32", [4]],
        "im_file": ["tuple", "", []],
    },
    "numbers": {
        "images": 4.0,
        "pixel_mean": 110.0,
        "pixel_std": 50.0,
        "boxes_per_image": 6.0,
        "box_area": 0.1,
        "box_min": 0.0,
        "box_max": 1.0,
        "batch_idx_max": 3.0,
    },
}


def changed(path: tuple[str, str], value: object) -> dict[str, Any]:
    found = copy.deepcopy(GOOD)
    found[path[0]][path[1]] = value  # type: ignore[index]
    return found


def test_equal_batches_pass() -> None:
    assert checks.implausible("a", GOOD, 4, 64) == []
    assert checks.compare("a", GOOD, "b", GOOD) == []
    assert checks.compare("a", changed(("layout", "im_file"), ["list", "", []]), "b", GOOD) == []


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("layout", "img"), ["Tensor", "torch.float32", [3, 64, 64]], "img"),
        (("layout", "img"), ["Tensor", "torch.uint8", [64, 64, 3]], "img"),
        (("numbers", "images"), 5.0, "asked for 4"),
        (("numbers", "pixel_mean"), 0.0, "pixels"),
        (("numbers", "boxes_per_image"), 0.0, "no boxes"),
        (("numbers", "box_max"), 64.0, "boxes reach"),
        (("numbers", "batch_idx_max"), 4.0, "batch_idx"),
    ],
)
def test_implausible_batches_are_found(path: tuple[str, str], value: object, word: str) -> None:
    (problem,) = checks.implausible("a", changed(path, value), 4, 64)
    assert word in problem


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("layout", "bboxes"), ["Tensor", "torch.float64", [4]], "bboxes"),
        (("layout", "extra"), ["list", "", []], "has a key 'extra' that b hasn't"),
        (("numbers", "pixel_mean"), 170.0, "mean pixel"),
        (("numbers", "boxes_per_image"), 2.0, "boxes an image"),
    ],
)
def test_different_batches_are_found(path: tuple[str, str], value: object, word: str) -> None:
    (problem,) = checks.compare("a", changed(path, value), "b", GOOD)
    assert word in problem


def test_a_missing_key_is_found() -> None:
    found = copy.deepcopy(GOOD)
    del found["layout"]["im_file"]
    assert checks.compare("a", found, "b", GOOD) == ["a has no key 'im_file' that b has"]
