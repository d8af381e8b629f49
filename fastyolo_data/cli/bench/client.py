"""The parent's end of one contender's process."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from fastyolo_data.cli.bench.adapters import child_environment
from fastyolo_data.errors import FastYoloError

__all__ = ["BenchError", "Client"]


class BenchError(FastYoloError):
    """A contender failed, died, or gave no answer in time."""


class Client:
    """Starts `worker.py` for one adapter and talks to it; a context manager that leaves no process behind.

    Args:
        adapter: a key of ADAPTERS.
        folder: temporary folder for the process's log and for the settings of the package under test.
    """

    def __init__(self, adapter: str, folder: Path) -> None:
        self.adapter = adapter
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{adapter}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fastyolo_data.cli.bench.worker", adapter, repr(time.time())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(str(folder)),
                text=True,
                encoding="utf-8",
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, name=f"fastyolo-bench-{adapter}", daemon=True).start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def ask(self, do: str, timeout: float = 900.0, **arguments: Any) -> dict[str, Any]:
        """Send one request and return the answer.

        Raises:
            BenchError: the contender raised, ended, or took longer than `timeout` seconds.
        """
        pipe = self.process.stdin
        if pipe is None:
            raise BenchError(f"{self.adapter}: its stdin is closed")
        try:
            pipe.write(json.dumps({"do": do, **arguments}) + "\n")
            pipe.flush()
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise BenchError(f"{self.adapter}: no answer to '{do}' within {timeout:.0f} s\n{self._tail()}") from None
        except OSError:  # the pipe broke: the process is gone
            line = None
        if line is None:
            code = self.process.wait(timeout=10)
            raise BenchError(f"{self.adapter}: its process ended with code {code} during '{do}'\n{self._tail()}")
        answer = json.loads(line)
        if not answer.pop("ok"):
            raise BenchError(f"{self.adapter}: '{do}' failed: {answer['error']}\n{answer['traceback']}")
        return answer

    def settle(self, limit: float = 10.0, quiet: float = 0.05) -> float:
        """Wait until the process tree has filled its queues and uses hardly any CPU; return the seconds waited.

        Args:
            limit: give up after this many seconds.
            quiet: CPU seconds per second that count as idle.
        """
        begin = time.monotonic()
        last, calm = tree_cpu(self.process.pid), 0
        while calm < 2 and time.monotonic() - begin < limit:
            time.sleep(0.15)
            now = tree_cpu(self.process.pid)
            calm = calm + 1 if now - last <= quiet * 0.15 + 1e-9 else 0
            last = now
        return time.monotonic() - begin

    def close(self) -> None:
        """End the process and its children; kill what doesn't go within five seconds."""
        tree = _tree(self.process.pid)
        with contextlib.suppress(OSError, ValueError):
            if self.process.stdin is not None:
                self.process.stdin.write('{"do": "quit"}\n')
                self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        _, alive = psutil.wait_procs(tree, timeout=1)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(timeout=10)

    def _read(self) -> None:
        stdout = self.process.stdout
        if stdout is not None:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _tail(self, lines: int = 15) -> str:
        """Return the end of the process's log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def tree_cpu(pid: int) -> float:
    """Return the user and system seconds used so far by process `pid` and its living descendants."""
    total = 0.0
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _tree(pid: int) -> list[psutil.Process]:
    """Return process `pid` and its descendants; empty when it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
