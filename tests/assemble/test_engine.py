"""The worker threads on their own, with jobs made up for the test."""

from __future__ import annotations

import threading
import time

import pytest

from fastyolo_data.assemble.engine import Engine
from fastyolo_data.errors import FastYoloError


class Job:
    """A batch of numbers; `slow` and `broken` choose rows."""

    def __init__(self, sequence: int, rows: int = 4, slow: float = 0.0, broken: int | None = None) -> None:
        self.rows = rows
        self.made: list[int] = []
        self.sequence, self.slow, self.broken = sequence, slow, broken
        self.threads: set[str] = set()

    def run(self, row: int, renderer: object) -> None:
        time.sleep(self.slow)
        if row == self.broken:
            raise ValueError(f"row {row} of batch {self.sequence}")
        self.threads.add(threading.current_thread().name)
        self.made.append(row)

    def finish(self) -> tuple[int, list[int]]:
        return self.sequence, sorted(self.made)


def _stream(n: int, log: list[int] | None = None, **kw):
    def plan(sequence: int) -> Job | None:
        if log is not None:
            log.append(sequence)
        return Job(sequence, **kw) if sequence < n else None

    return plan


@pytest.fixture(params=[0, 1, 3])
def engine(request):
    made = Engine(object, request.param, 3)
    yield made
    made.close()
    assert not any(t.is_alive() for t in made._threads)


def test_order_and_end(engine):
    engine.start(_stream(7))
    assert [engine.get() for _ in range(7)] == [(k, [0, 1, 2, 3]) for k in range(7)]
    assert engine.get() is None
    assert engine.get() is None


def test_prefetch_is_bounded():
    engine, log = Engine(object, 2, 3), []
    engine.start(_stream(50, log))
    time.sleep(0.3)
    assert max(log) == 2, "three batches ahead of the consumer, who has asked for none"
    for k in range(4):
        assert engine.get()[0] == k
    time.sleep(0.3)
    assert max(log) == 6
    engine.close()


def test_rows_of_one_batch_are_shared():
    engine = Engine(object, 3, 1)
    jobs = [Job(0, rows=30, slow=0.005)]
    engine.start(lambda k: jobs[k] if k < 1 else None)
    began = time.monotonic()
    assert engine.get() == (0, list(range(30)))
    assert time.monotonic() - began < 30 * 0.005 * 0.9
    assert len(jobs[0].threads) == 3
    engine.close()


def test_an_error_arrives_in_its_place_and_later_batches_still_come(engine):
    engine.start(lambda k: Job(k, broken=2 if k == 1 else None) if k < 3 else None)
    assert engine.get()[0] == 0
    with pytest.raises(ValueError, match="row 2 of batch 1"):
        engine.get()
    assert engine.get() == (2, [0, 1, 2, 3])
    assert engine.get() is None


def test_an_error_while_planning_arrives():
    for workers in (0, 2):
        engine = Engine(object, workers, 2)

        def plan(k: int) -> Job:
            if k == 1:
                raise RuntimeError("no plan for 1")
            return Job(k)

        engine.start(plan)
        assert engine.get()[0] == 0
        with pytest.raises(RuntimeError, match="no plan for 1"):
            engine.get()
        engine.close()


def test_an_error_while_making_the_renderer_arrives():
    def broken() -> object:
        raise OSError("no memory for scratch")

    engine = Engine(broken, 2, 2)
    engine.start(_stream(3))
    with pytest.raises(OSError, match="no memory"):
        engine.get()
    engine.close()


def test_an_error_while_finishing_arrives(engine):
    class Bad(Job):
        def finish(self):
            raise KeyError("finish")

    engine.start(lambda k: Bad(k) if k < 1 else None)
    with pytest.raises(KeyError):
        engine.get()


def test_a_new_stream_replaces_the_old_one(engine):
    engine.start(_stream(100, slow=0.002))
    assert engine.get()[0] == 0
    engine.start(lambda k: Job(k + 1000) if k < 2 else None)
    assert [engine.get()[0] for _ in range(2)] == [1000, 1001]
    assert engine.get() is None


def test_closing_while_the_consumer_waits_ends_the_wait():
    engine = Engine(object, 1, 1)
    engine.start(_stream(1, slow=1.0))
    threading.Timer(0.2, engine.close).start()
    began = time.monotonic()
    with pytest.raises(FastYoloError, match="closed"):
        engine.get()
    assert time.monotonic() - began < 5


def test_dead_workers_are_noticed():
    class Mortal(Engine):
        def _work(self) -> None:
            """A thread that ends at once, as after a fault in native code that killed it."""

    engine = Mortal(object, 2, 1)
    engine.start(_stream(5))
    began = time.monotonic()
    with pytest.raises(FastYoloError, match="died"):
        engine.get()
    assert time.monotonic() - began < 5
    engine.close()


def test_even_system_exit_travels_to_the_consumer():
    engine = Engine(object, 1, 1)

    def leave(k: int) -> Job:
        raise SystemExit

    engine.start(leave)
    with pytest.raises(SystemExit):
        engine.get()
    engine.close()
    with pytest.raises(FastYoloError, match="closed"):
        engine.get()


def test_stress_many_streams():
    engine = Engine(object, 4, 5)
    for round_ in range(200):
        n = round_ % 7
        engine.start(_stream(n, rows=1 + round_ % 3))
        for k in range(n if round_ % 2 else n // 2):
            assert engine.get()[0] == k
    engine.close()
