"""`fastyolo cache`: what it prints, what it leaves, and its exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastyolo_data import build_loader
from fastyolo_data.cli.main import main
from fastyolo_data.lock import BuildLock
from tests.store.support import write_pictures


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Yaml of a small set."""
    monkeypatch.setenv("FASTYOLO_LMDB_PAYLOAD", "tiles")
    monkeypatch.setenv("FASTYOLO_CACHE_DIR", str(tmp_path / "user"))
    return write_pictures(tmp_path / "set", 6)


def files(data: Path) -> list[str]:
    """Names of the cache files beside the set, without the label caches."""
    return sorted(p.name for p in (data.parent / ".fastyolo").iterdir() if not p.name.startswith("labels-"))


def test_dry_run_forecasts_and_writes_nothing(data: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["cache", "build", str(data), "--imgsz", "96", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "train: 6 of 6 images to write" in out
    assert "val: 6 of 6" in out
    assert files(data) == []


@pytest.mark.parametrize("kind", ["memmap", "lmdb", "lmdb-jpeg"])
def test_build_is_found_by_the_loader(data: Path, kind: str, capsys, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fastyolo_data")
    assert main(["cache", "build", str(data), "--imgsz", "96", "--cache", kind, "--workers", "2"]) == 0
    assert capsys.readouterr().out.count("ready") == 2
    caplog.clear()
    build_loader(data, imgsz=96, cache=kind.split("-")[0], verbose=False).close()
    assert ", unchanged" in caplog.text


def test_info_verify_clean(data: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["cache", "build", str(data), "--imgsz", "96", "--split", "train"]) == 0
    assert main(["cache", "verify", str(data)]) == 0
    os.utime(next((data.parent / "images" / "train").iterdir()), ns=(1, 1))
    assert main(["cache", "info", str(data)]) == 0
    assert "memmap, tiles of 96 px (ceil_cap); 6 images, 0 broken, 1 changed or gone" in capsys.readouterr().out
    tiles = next((data.parent / ".fastyolo").glob("*.tiles"))
    content = bytearray(tiles.read_bytes())
    content[5000] ^= 1
    tiles.write_bytes(content)
    assert main(["cache", "verify", str(data)]) == 1
    assert "1 of 6 records are damaged" in capsys.readouterr().out
    assert main(["cache", "build", str(data), "--imgsz", "96", "--split", "train"]) == 0
    assert main(["cache", "verify", str(data)]) == 0
    os.truncate(tiles, 1000)
    assert main(["cache", "info", str(data)]) == 1
    assert main(["cache", "verify", str(data)]) == 1
    assert "it has 1000 bytes, expected" in capsys.readouterr().out
    assert main(["cache", "clean", str(data)]) == 0
    assert files(data) == []
    assert main(["cache", "clean", str(data)]) == 0
    assert "no cache" in capsys.readouterr().out


def test_clean_spares_other_sets_and_running_builds(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = write_pictures(tmp_path / "other", 4)
    shared = str(tmp_path / "shared")
    for each in (data, other):
        assert main(["cache", "build", str(each), "--imgsz", "96", "--split", "train", "--cache-dir", shared]) == 0
    assert main(["cache", "clean", str(data), "--cache-dir", shared]) == 0
    assert len(list(Path(shared).glob("*.index"))) == 1
    lock = BuildLock(next(Path(shared).glob("*.lock")))
    assert lock.acquire()
    assert main(["cache", "clean", str(other), "--cache-dir", shared]) == 1
    assert "being built just now" in capsys.readouterr().err
    lock.release()


def test_a_cache_that_cannot_be_built(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    arguments = ["cache", "build", str(data), "--imgsz", "96", "--split", "val", "--cache-dir", str(blocked)]
    assert main(arguments) == 1
    assert "val: not built" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["build"], [], ["build", "nowhere.yaml"], ["build", "DATA", "--imgsz", "97"], ["info", "DATA", "--split", ","]],
)
def test_bad_arguments(data: Path, arguments: list[str]) -> None:
    assert main(["cache", *(str(data) if a == "DATA" else a for a in arguments)]) == 2
