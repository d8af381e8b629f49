"""Every label, image, path, yaml and stale-cache case of ../shared/cases/make_cases.py, through load_labels.

Each case without steps is built twice: the second result comes from the label cache and has to be the same.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fastyolo_data.datatypes import LabelTable
from fastyolo_data.errors import FastYoloError
from fastyolo_data.labels import load_labels, resolve_data

decode = pytest.importorskip("fastyolo_data.decode", reason="the decode room is not there")
SCRIPT = Path(__file__).resolve().parents[2].parent / "shared/cases/make_cases.py"
CATEGORIES = ("disk-cache", "store", "ram-cache")  # these belong to the stores
WRITES = ("write_text", "write_text_keep_mtime", "copy", "rename", "delete")


def _load_script() -> ModuleType | None:
    if not SCRIPT.is_file():
        return None
    spec = importlib.util.spec_from_file_location("make_cases", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULE = _load_script()
NAMES = [c[0] for c in MODULE.CASES if c[3] not in CATEGORIES] if MODULE else []
pytestmark = pytest.mark.skipif(not NAMES, reason=f"{SCRIPT} is not there")


@dataclass
class Built:
    """What one build gave: a table or an error, and every message."""

    root: Path
    table: LabelTable | None
    text: str

    def rel(self, path: str) -> str:
        return os.path.relpath(path, self.root).replace(os.sep, "/")

    def rows(self) -> dict[str, np.ndarray]:
        assert self.table is not None, f"did not load: {self.text}"
        return {self.rel(p): self.table.boxes_of(i) for i, p in enumerate(self.table.im_files)}


def _same_rows(got: np.ndarray, want: list[list[float]], atol: float) -> bool:
    left = [np.asarray(w, float) for w in want]
    for row in got:
        match = next((k for k, w in enumerate(left) if np.abs(row - w).max() <= atol), None)
        if match is None:
            return False
        left.pop(match)
    return not left


def _check_pixels(built: Built, pixels: dict[str, list[dict[str, Any]]]) -> None:
    for rel, probes in pixels.items():
        im = decode.read_image(str(built.root / rel))
        assert im.dtype == np.uint8
        assert im.ndim == 3
        assert im.shape[2] == 3
        for p in probes:
            off = np.abs(im[p["y"], p["x"]].astype(int) - p["bgr"]).max()
            assert off <= p["tol"], f"{rel} at {p}: {im[p['y'], p['x']]}"


def _check(built: Built, e: dict[str, Any], atol: float) -> None:
    """Assert everything that an expectation says."""
    for word in e.get("message_contains", []):
        assert word.lower() in built.text.lower(), f"{word!r} is not in: {built.text}"
    if not e.get("loads", True):
        assert built.table is None
        for rel in e.get("skipped", []):
            assert os.path.basename(rel) in built.text
        return
    rows = built.rows()
    table = built.table
    assert table is not None
    if "n_images" in e:
        assert len(table) == e["n_images"]
    if "skipped" in e:
        assert {built.rel(p) for p in table.skipped} == set(e["skipped"])
        assert all(table.skipped.values())
    for rel, want in e.get("boxes", {}).items():
        if rel in e.get("skipped", []):
            continue
        assert rel in rows, f"{rel} is not among {list(rows)}"
        assert _same_rows(rows[rel], want, atol), f"{rel}: {rows[rel]}, expected {want}"
    for rel in e.get("backgrounds", []):
        assert rows[rel].shape == (0, 5)
    everything = np.concatenate(list(rows.values()))
    for bad in e.get("forbidden_boxes", []):
        assert not (np.abs(everything - bad).max(1) <= atol).any(), f"forbidden box {bad}"
    hw = {built.rel(p): table.hw[i].tolist() for i, p in enumerate(table.im_files)}
    for rel, shape in e.get("shapes", {}).items():
        assert hw[rel] == shape
    for rel in hw:
        assert list(decode.read_image(str(built.root / rel)).shape[:2]) == hw[rel]
    _check_pixels(built, e.get("pixels", {}))


def _check_alternatives(built: Built, e: dict[str, Any], atol: float) -> None:
    """Assert an expectation; where it lists alternatives, one of them has to hold."""
    options = e.get("accept_any") or [{}]
    failures = []
    for option in options:
        try:
            _check(built, {**e, **option}, atol)
            return
        except AssertionError as error:
            failures.append(str(error))
    pytest.fail("no accepted outcome: " + " | ".join(failures))


def _files(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in root.rglob("*")
        if p.is_file() and ".fastyolo" not in p.parts
    }


def _do(step: dict[str, Any], root: Path) -> None:
    """Carry out one step that changes files."""
    kind = step["do"]
    if kind in ("write_text", "write_text_keep_mtime"):
        path = root / step["path"]
        before = path.stat() if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step["text"])
        if kind == "write_text_keep_mtime" and before:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif kind == "copy":
        shutil.copy(root / step["src"], root / step["dst"])
    elif kind == "rename":
        (root / step["src"]).rename(root / step["dst"])
    elif kind == "delete":
        (root / step["path"]).unlink()
    elif kind == "make_readonly":
        for p in [root, *root.rglob("*")]:
            p.chmod(p.stat().st_mode & ~0o222)
    else:
        pytest.fail(f"unknown step {kind}")


@pytest.fixture
def case_root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    assert MODULE is not None
    MODULE.generate(tmp_path / "cases", request.param)
    return tmp_path / "cases" / request.param


@pytest.mark.parametrize("case_root", NAMES, indirect=True)
def test_case(case_root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    e = json.loads((case_root / "expected.json").read_text(encoding="utf-8"))
    entry, atol = e["entry"], e["atol"]
    monkeypatch.chdir(e.get("options", {}).get("cwd", case_root.parent))
    caplog.set_level("INFO", "fastyolo_data")

    def build(step: dict[str, Any]) -> Built:
        caplog.clear()
        data = case_root / step.get("yaml", entry.get("yaml") or entry.get("img_path"))
        try:
            spec = resolve_data(data, step.get("split", entry.get("split", "train")))
            table = load_labels(spec, probe=decode.probe_with_remark, verbose=False)
        except FastYoloError as error:
            return Built(case_root, None, caplog.text + str(error))
        return Built(case_root, table, caplog.text)

    before = _files(case_root)
    steps = e.get("steps") or [{"do": "build"}, {"do": "build"}]
    built: Built | None = None
    for step in steps:
        if step.get("do") == "build":
            first = built is None
            built = build(step)
            if first or "steps" not in e:
                _check_alternatives(built, e, atol)
        elif "expect" in step:
            assert built is not None
            _check(built, step["expect"], atol)
        else:
            _do(step, case_root)
    if not any(s.get("do") in WRITES for s in steps):
        assert _files(case_root) == before
