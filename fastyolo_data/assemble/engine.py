"""Worker threads that make batches ahead of the consumer, in order.

Workers share every batch sample by sample, so a batch is finished as early as possible and any number of workers helps
with batch 1. All state is guarded by one condition; nothing slow happens while it is held. No wait is unbounded: the
consumer notices within a second when a worker thread has died.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from fastyolo_data.errors import FastYoloError

__all__ = ["Engine", "Job", "Stats"]

POLL = 1.0  # seconds between looks at whether the other side is still alive


class Job(Protocol):
    """One batch in the making."""

    rows: int

    def run(self, row: int, renderer: Any) -> None:
        """Make one sample; called once per row, from any thread."""
        ...

    def finish(self) -> Any:
        """Return the batch; called once, after all rows."""
        ...


_LIVE: weakref.WeakSet[Engine] = weakref.WeakSet()


def _close_at_exit(engine: Engine) -> None:
    """Have an engine's threads ended before the interpreter goes: they may be inside native code."""
    if not _LIVE:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _LIVE.add(engine)


def _close_all() -> None:
    for engine in list(_LIVE):
        engine.close()


class Stats:
    """Seconds and counts since the engine started; read by loader.stats()."""

    def __init__(self) -> None:
        self.batches = 0
        self.samples = 0
        self.wait = 0.0  # consumer waiting for a batch
        self.plan = 0.0  # worker seconds
        self.render = 0.0
        self.finish = 0.0


class _Batch:
    __slots__ = ("done", "error", "job", "next_row", "ready", "result")

    def __init__(self, job: Job | None) -> None:
        self.job = job
        self.next_row = 0
        self.done = 0
        self.ready = False
        self.result: Any = None
        self.error: BaseException | None = None


class Engine:
    """Makes the batches of a stream.

    Args:
        new_renderer: makes one worker's renderer; called in the worker's thread.
        workers: threads; 0: everything happens inside `get`.
        prefetch: batches made ahead of the one the consumer holds.
    """

    def __init__(self, new_renderer: Callable[[], Any], workers: int, prefetch: int) -> None:
        self._new_renderer = new_renderer
        self._ahead = max(prefetch, 1)
        self._workers = workers
        self._pid = os.getpid()
        # Over an RLock: close() may run in a finalizer, inside any block that holds it.
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._own_renderer: Any = None
        self._generation = 0
        self.stats = Stats()
        self._reset(None)

    def _reset(self, plan: Callable[[int], Job | None] | None) -> None:
        self._plan = plan
        self._generation += 1
        self._batches: dict[int, _Batch] = {}
        self._planned = 0  # next sequence number to plan
        self._wanted = 0  # next sequence number to deliver
        self._end: int | None = None  # number of batches in the stream, once known
        self._planning = False

    def start(self, plan: Callable[[int], Job | None]) -> None:
        """Begin a new stream; what is left of the old one is thrown away.

        Args:
            plan: sequence number -> job, or None past the end; called by one thread at a time, in order.
        """
        with self._changed:
            if self._stopped:
                raise FastYoloError("this loader is closed; build a new one")
            self._reset(plan)
            self._changed.notify_all()
        if not self._threads and self._workers:
            self._threads = [
                threading.Thread(target=self._work, name=f"fastyolo-{k}", daemon=True) for k in range(self._workers)
            ]
            _close_at_exit(self)
            for thread in self._threads:
                thread.start()

    @property
    def forked(self) -> bool:
        """Whether this object was copied into a child process, where its threads do not exist."""
        return os.getpid() != self._pid

    def get(self) -> Any:
        """Return the next batch of the stream, or None at its end.

        Raises:
            Exception: what went wrong in a worker while making this batch.
            FastYoloError: the worker threads are gone.
        """
        began = time.perf_counter()
        batch = self._next_inline() if not self._workers else self._next_ready()
        self.stats.wait += time.perf_counter() - began
        if batch is None:
            return None
        self.stats.batches += 1
        if batch.error is not None:
            raise batch.error
        return batch.result

    def _next_ready(self) -> _Batch | None:
        with self._changed:
            sequence = self._wanted
            while True:
                if self._stopped:
                    raise FastYoloError("the loader was closed while a batch was waited for")
                if self._end is not None and sequence >= self._end:
                    return None
                batch = self._batches.get(sequence)
                if batch is not None and batch.ready:
                    del self._batches[sequence]
                    self._wanted += 1
                    self._changed.notify_all()
                    return batch
                if not self._changed.wait(POLL) and not any(t.is_alive() for t in self._threads):
                    raise FastYoloError("all loader threads have died; build the loader again")

    def _next_inline(self) -> _Batch | None:
        if self._stopped:
            raise FastYoloError("this loader is closed; build a new one")
        if self._own_renderer is None:
            self._own_renderer = self._new_renderer()
        job = self._plan(self._wanted) if self._plan is not None else None
        if job is None:
            return None
        self._wanted += 1
        batch = _Batch(job)
        try:
            for row in range(job.rows):
                job.run(row, self._own_renderer)
                self.stats.samples += 1
            batch.result = job.finish()
        except Exception as error:
            batch.error = error
        return batch

    def close(self, wait: float = 10.0) -> None:
        """Stop the workers and drop all batches. May be called twice and from any thread.

        Args:
            wait: seconds to wait for the threads to end. A finalizer passes 0: it can run in a worker thread, or in a
                thread that holds a lock which a worker needs to end.
        """
        if self.forked:
            return
        with self._changed:
            self._stopped = True
            self._reset(None)
            self._changed.notify_all()
        deadline = time.monotonic() + wait
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._own_renderer = None

    # ---- worker side -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        renderer = None
        while True:
            with self._changed:
                task = self._take()
                while task is None:
                    if self._stopped:
                        return
                    self._changed.wait(POLL)
                    task = self._take()
            generation, batch, row = task
            try:
                if batch is None:
                    self._plan_one(generation)
                    continue
                if renderer is None:
                    renderer = self._new_renderer()
                began = time.perf_counter()
                batch.job.run(row, renderer)
                self.stats.render += time.perf_counter() - began
                self._row_done(generation, batch, None)
            except BaseException as error:  # travels to the consumer
                self._row_done(generation, batch, error)
            batch = task = None  # an idle worker must not keep the memory of a batch

    def _take(self) -> tuple[int, _Batch | None, int] | None:
        """Choose the next piece of work: a row of the earliest open batch, or planning (batch None)."""
        if self._plan is None or self._stopped:
            return None
        rows_left = 0
        found: tuple[int, _Batch | None, int] | None = None
        for batch in self._batches.values():
            if batch.ready or batch.job is None or batch.next_row >= batch.job.rows:
                continue
            if found is None:
                found = (self._generation, batch, batch.next_row)
            rows_left += batch.job.rows - batch.next_row
        may_plan = not self._planning and self._end is None and self._planned - self._wanted < self._ahead
        # Plan before rows run out, so that nobody waits for a plan.
        if may_plan and rows_left <= self._workers:
            self._planning = True
            return self._generation, None, 0
        if found is not None and found[1] is not None:
            found[1].next_row += 1
        return found

    def _plan_one(self, generation: int) -> None:
        with self._changed:
            plan, sequence = self._plan, self._planned
        if plan is None:
            return
        began = time.perf_counter()
        job, error = None, None
        try:
            job = plan(sequence)
        except BaseException as e:
            error = e
        with self._changed:
            self.stats.plan += time.perf_counter() - began
            if generation != self._generation:
                return
            self._planning = False
            if error is not None:
                failed = self._batches[sequence] = _Batch(None)
                failed.error, failed.ready = error, True
                self._end = sequence + 1
            elif job is None:
                self._end = sequence
            else:
                self._batches[sequence] = _Batch(job)
            self._planned += 1
            self._changed.notify_all()

    def _row_done(self, generation: int, batch: _Batch | None, error: BaseException | None) -> None:
        if batch is None:
            return
        with self._changed:
            if generation != self._generation:
                return
            batch.done += 1
            self.stats.samples += 1
            if error is not None and batch.error is None:
                batch.error = error
                batch.done += batch.job.rows - batch.next_row  # rows not begun are not needed any more
                batch.next_row = batch.job.rows
            last = batch.done >= batch.job.rows
        if not last:
            return
        began = time.perf_counter()
        if batch.error is None:
            try:
                batch.result = batch.job.finish()
            except BaseException as e:
                batch.error = e
        with self._changed:
            self.stats.finish += time.perf_counter() - began
            batch.job = None
            batch.ready = True
            self._changed.notify_all()
