"""What happens around the loader: exit, Ctrl-C, fork, garbage, exceptions; each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
START = """
    import fastyolo_data as fy
    loader = fy.build_loader({data!r}, imgsz=96, batch=4, workers=3, verbose=False)
"""


def _run(code: str, data: Path, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(START).format(data=str(data)) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.parametrize(
    "code",
    {
        "in_the_middle": "it = iter(loader); next(it); print('end')",
        "never_started": "print('end')",
        "closed": "next(iter(loader)); loader.close(); print('end')",
        "whole_epoch_then_prefetching": "n = sum(1 for _ in loader); print('end')",
        "batch_outlives_loader": "b = next(iter(loader)); del loader; print('end')",
        "cycle": "loader.me = loader; next(iter(loader)); del loader; print('end')",
        "in_a_thread": (
            "import threading\nt = threading.Thread(target=lambda: list(loader)); t.start(); t.join(); print('end')"
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_the_interpreter_exits_by_itself(generated_boxes, code):
    done = _run(code[1], generated_boxes)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "end", "")


def test_messages_reach_the_terminal_unless_unwanted(generated_boxes):
    code = "import fastyolo_data as fy; fy.build_loader({!r}, imgsz=96, cache='auto', {}).close()"
    shown = {}
    for name, options, before in (
        ("default", "workers=1", ""),
        ("quiet", "verbose=False", ""),
        ("own", "workers=1", "import logging; logging.basicConfig(format='mine: %(message)s', level='INFO'); "),
    ):
        line = before + code.format(str(generated_boxes), options)
        done = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == ""
        shown[name] = done.stderr
    assert "24 images" in shown["default"]
    assert "cache" in shown["default"]
    assert shown["quiet"] == ""
    assert "mine: " in shown["own"]
    assert shown["own"].count("boxes (") == 1, "each message once"


def test_an_exception_in_the_training_loop_ends_the_process(generated_boxes):
    done = _run("for batch in loader:\n    raise RuntimeError('from the training loop')", generated_boxes)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("RuntimeError: from the training loop")


def test_ctrl_c_while_waiting_for_a_batch(generated_boxes):
    code = """
    import time, fastyolo_data.augment.sample as s
    run = s.Renderer.run
    s.Renderer.run = lambda self, plan, row, dst: (time.sleep(0.3), run(self, plan, row, dst))[1]
    print("ready", flush=True)
    try:
        for _ in range(1000):
            for batch in loader:
                pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        s.Renderer.run = run
        print(len(list(loader)) == len(loader))
    """
    text = textwrap.dedent(START).format(data=str(generated_boxes)) + textwrap.dedent(code)
    child = subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == "ready"
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out.split() == ["interrupted", "True"]
    assert child.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_use_or_ignore_the_loader(generated_boxes):
    code = """
    import os, sys, hashlib
    digest = lambda b: hashlib.md5(b["img"].numpy().tobytes()).hexdigest()
    whole = [digest(b) for b in loader]
    for how in ("use", "ignore", "close"):
        it = iter(loader)
        next(it)  # threads are at work during the fork
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if how == "use":
                    loader.set_epoch(0)
                    code = 0 if [digest(b) for b in loader] == whole else 2
                elif how == "close":
                    loader.close()
                    code = 0
                else:
                    del it, loader
                    import gc; gc.collect()
                    code = 0
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        print(how, os.waitstatus_to_exitcode(status))
        loader.set_epoch(0)
        assert [digest(b) for b in loader] == whole
    """
    done = _run(code, generated_boxes)
    assert done.stdout.split() == ["use", "0", "ignore", "0", "close", "0"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_dataset_works_under_a_stock_dataloader_with_forked_workers(generated_boxes):
    code = """
    import torch
    from torch.utils.data import DataLoader
    next(iter(loader))
    dl = DataLoader(loader.dataset, batch_size=4, num_workers=2, collate_fn=lambda x: x, multiprocessing_context="fork")
    n = sum(len(b) for b in dl)
    print(n == len(loader.dataset))
    """
    done = _run(code, generated_boxes)
    assert done.stdout.strip() == "True", done.stderr


def test_the_dataset_works_under_a_stock_dataloader_with_spawned_workers(generated_boxes, tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import fastyolo_data as fy
            from torch.utils.data import DataLoader

            if __name__ == "__main__":
                data = fy.build_dataset({str(generated_boxes)!r}, imgsz=96, cache="ram", verbose=False)
                first = data[0]
                loader = DataLoader(data, 4, num_workers=2, collate_fn=list, multiprocessing_context="spawn")
                print(sum(len(b) for b in loader) == len(data))
            """
        )
    )
    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_the_loader_works_before_and_after_spawned_workers(generated_boxes, tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing as mp
            import fastyolo_data as fy

            def count(_):
                with fy.build_loader({str(generated_boxes)!r}, imgsz=96, batch=4, workers=2, verbose=False) as loader:
                    return sum(len(b["im_file"]) for b in loader)

            if __name__ == "__main__":
                here = count(0)
                with mp.get_context("spawn").Pool(2) as pool:
                    print(pool.map(count, range(2)) == [here, here])
            """
        )
    )
    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True", done.stderr
