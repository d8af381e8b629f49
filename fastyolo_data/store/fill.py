"""Work spread over threads while the calling thread shows progress."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

__all__ = ["run_parallel"]

_TICK = 0.1  # seconds between looks at the progress


class _Crew:
    """What the threads of one call share."""

    def __init__(self, count: int, threads: int) -> None:
        self.count = count
        self.numbers = itertools.count()  # next() holds the GIL, so every number goes to one thread
        self.stop = threading.Event()
        self.idle = threading.Event()
        self.lock = threading.Lock()
        self.left = threads
        self.done = [0] * threads
        self.error: BaseException | None = None

    def work(self, number: int, new_work: Callable[[], Callable[[int], None]]) -> None:
        try:
            do = new_work()
            while not self.stop.is_set():
                k = next(self.numbers)
                if k >= self.count:
                    break
                do(k)
                self.done[number] += 1
        except BaseException as error:  # travels to the calling thread
            self.error = self.error or error
            self.stop.set()
        finally:
            with self.lock:
                self.left -= 1
                if not self.left:
                    self.idle.set()


def run_parallel(
    count: int,
    threads: int,
    new_work: Callable[[], Callable[[int], None]],
    tick: Callable[[int], bool],
) -> int:
    """Call work(k) for every k below count.

    Args:
        count: number of pieces.
        threads: at least 1.
        new_work: called once in each thread, returns its work function.
        tick: called in the calling thread, about ten times a second and at the end, with the number of pieces done;
            True ends the work early.

    Returns:
        Pieces done.

    Raises:
        Exception: the first that a thread raised; all threads have ended by then.
    """
    threads = max(1, min(threads, count))
    crew = _Crew(count, threads)
    workers = [
        threading.Thread(target=crew.work, args=(k, new_work), name=f"fastyolo-fill-{k}", daemon=True)
        for k in range(threads)
    ]
    try:
        for worker in workers:
            worker.start()
        while not crew.idle.wait(_TICK):
            if tick(sum(crew.done)):
                crew.stop.set()
    finally:
        crew.stop.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
    if crew.error is not None:
        raise crew.error
    tick(sum(crew.done))
    return sum(crew.done)
