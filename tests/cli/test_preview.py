"""The `fastyolo preview` command: what is drawn where, and what happens with bad arguments."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data import build_loader
from fastyolo_data.cli import drawing, preview
from fastyolo_data.cli.main import main
from fastyolo_data.errors import ConfigError


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yaml of four black 96x96 pictures with one white square each, labelled with class 0 or 1."""
    root = tmp_path_factory.mktemp("squares")
    for split in ("train", "val"):
        (root / "images" / split).mkdir(parents=True)
        (root / "labels" / split).mkdir(parents=True)
        for i in range(4):
            im = np.zeros((96, 96, 3), np.uint8)
            x, y = 12 + 8 * i, 40 - 4 * i
            im[y : y + 32, x : x + 32] = 255
            cv2.imwrite(str(root / "images" / split / f"{i}.png"), im)
            label = f"{i % 2} {(x + 16) / 96} {(y + 16) / 96} {32 / 96} {32 / 96}\n"
            (root / "labels" / split / f"{i}.txt").write_text(label)
    (root / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [white, 方块]\n")
    return root / "data.yaml"


def test_grid_has_the_asked_size(squares: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "p.png"
    options = ["--imgsz", "96", "--n", "3", "--columns", "2", "--workers", "1"]
    assert main(["preview", str(squares), "-o", str(out), *options]) == 0
    assert "3 samples of 4 images (train)" in capsys.readouterr().out
    im = cv2.imread(str(out))
    strip = im.shape[0] // 2 - 96
    assert im.shape[1] == 2 * 96 + drawing.GAP
    assert 8 < strip < 24
    cell = im[96 + strip + drawing.GAP :, 96 + drawing.GAP :]
    assert (cell == drawing.GREY).all(), "the fourth cell should be empty"
    assert [p.name for p in out.parent.iterdir()] == ["p.png"], "a temporary file stayed"


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5"])
def test_boxes_lie_on_the_labels(squares: Path, tmp_path: Path, dialect: str) -> None:
    out = tmp_path / "p.png"
    options = ["--split", "val", "--imgsz", "96", "--columns", "4", "--dialect", dialect, "--workers", "0"]
    assert main(["preview", str(squares), "-o", str(out), *options]) == 0
    im = cv2.imread(str(out))
    for i in range(4):
        x, y = i * (96 + drawing.GAP) + 12 + 8 * i, 40 - 4 * i
        colour = drawing.class_colour(i % 2)
        assert (im[y + 32, x : x + 33] == colour).all(), "lower edge"
        assert (im[y + 4 : y + 33, x + 32] == colour).all(), "right edge"
        assert (im[y + 16 : y + 30, x + 2 : x + 30] == 255).all(), "inside of the square"
        assert (im[y + 35 : 96, x : x + 32] == 0).all(), "below the square"


@pytest.mark.parametrize(
    "pairs", [["degrees=30"], ["shear=15"], ["perspective=0.001"], ["flipud=1", "fliplr=1"], ["mosaic=0", "degrees=90"]]
)
def test_augmented_boxes_surround_their_objects(squares: Path, pairs: list[str]) -> None:
    hyp = preview.parse_hyp(None, [*pairs, "hsv_h=0", "hsv_s=0", "hsv_v=0"])
    checked = 0
    with build_loader(squares, imgsz=96, batch=4, hyp=hyp, workers=0, verbose=False) as loader:
        for sample in (s for _ in range(3) for batch in loader for s in preview.samples_of(batch)):
            white = (sample.im > 200).all(2)
            covered = np.zeros_like(white)
            for x1, y1, x2, y2 in sample.xyxy:
                inner = white[round(y1) : round(y2), round(x1) : round(x2)]
                whole = min(x1, y1) > 8 and max(x2, y2) < 88  # a turned square may show the edge only a corner
                assert inner.size == 0 or (inner.mean() > 0.4 if whole else inner.any()), "a box without its object"
                covered[max(round(y1) - 1, 0) : round(y2) + 1, max(round(x1) - 1, 0) : round(x2) + 1] = True
                checked += 1
            # What is left are squares of which a tenth or less is visible; the box filter drops those.
            _, _, parts, _ = cv2.connectedComponentsWithStats((white & ~covered).astype(np.uint8))
            assert parts[1:, cv2.CC_STAT_AREA].max(initial=0) < 0.11 * 48**2
    assert checked > 10


def test_samples_have_rgb_turned_to_bgr_and_their_own_boxes(tmp_path: Path) -> None:
    im = np.zeros((64, 64, 3), np.uint8)
    im[:] = (10, 60, 200)
    cv2.imwrite(str(tmp_path / "a.png"), im)
    with build_loader([tmp_path / "a.png"], split="val", imgsz=64, verbose=False, cache_dir=tmp_path / "c") as loader:
        (sample,) = (s for batch in loader for s in preview.samples_of(batch))
    assert (sample.im == (10, 60, 200)).all()
    assert sample.xyxy.shape == (0, 4)
    assert sample.im_file.endswith("a.png")


def test_same_arguments_give_the_same_file(squares: Path, tmp_path: Path) -> None:
    files = []
    for name, workers in (("a", "0"), ("b", "2")):
        out = tmp_path / f"{name}.png"
        arguments = ["--imgsz", "96", "--n", "4", "--seed", "3", "--epoch", "2", "--workers", workers, "degrees=10"]
        assert main(["preview", str(squares), "-o", str(out), *arguments]) == 0
        files.append(out.read_bytes())
    assert files[0] == files[1]
    assert main(["preview", str(squares), "-o", str(tmp_path / "c.png"), "--imgsz", "96", "--n", "4"]) == 0
    assert (tmp_path / "c.png").read_bytes() != files[0]


def test_pairs_override_the_hyp_file(tmp_path: Path) -> None:
    (tmp_path / "hyp.yaml").write_text("degrees: 5\nmixup: 0.5\nlr0: 0.01\n")
    pairs = ["mixup=1", "scale=0.5,1.5", "copy_paste_mode=mixup", "mask_ratio=2", "overlap_mask=False"]
    hyp = preview.parse_hyp(tmp_path / "hyp.yaml", pairs)
    assert hyp.copy_paste_mode == "mixup"
    assert (hyp.mask_ratio, hyp.overlap_mask) == (2, False)
    assert (hyp.degrees, hyp.mixup, hyp.scale) == (5, 1, (0.5, 1.5))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["degrees=abc"], ["degrees=abc", "not a number"]),
        (["degrees=200"], ["degrees=200", "from 0 to 180"]),
        (["degrees=nan"], ["degrees=nan"]),
        (["degres=3"], ["degres=3", "did you mean degrees?"]),
        (["lr0=0.1"], ["lr0=0.1", "mosaic"]),
        (["degrees"], ["'degrees'", "KEY=VALUE"]),
        (["overlap_mask=2"], ["overlap_mask=2", "true or false"]),
        (["mask_ratio=1.5"], ["mask_ratio=1.5", "whole number"]),
        (["--task", "classify"], ["classify", "segment"]),
        (["--task", "pose", "--dialect", "yolov5"], ["task='pose'", "yolov5"]),
        (["--n", "0"], ["--n", "1 or more"]),
        (["--columns", "0"], ["--columns"]),
        (["--epoch", "-1"], ["--epoch"]),
        (["--imgsz", "100"], ["imgsz=100", "96 or 128"]),
        (["--workers", "-1"], ["workers"]),
        (["--split", "moon"], ["moon"]),
        (["--dialect", "darknet"], ["darknet", "yolov5"]),
        (["--numerics", "slow"], ["slow", "exact"]),
        (["--hyp", "no.yaml"], ["no.yaml"]),
        (["-o", "picture.bmp"], ["picture.bmp", ".png"]),
        (["--n", "many"], ["--n"]),
    ],
)
def test_bad_arguments_end_with_2(
    squares: Path, tmp_path: Path, arguments: list[str], words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    output = [] if "-o" in arguments else ["-o", str(tmp_path / "p.png")]
    assert main(["preview", str(squares), *output, *arguments]) == 2
    error = capfd.readouterr().err
    for word in words:
        assert word in error
    assert not list(tmp_path.iterdir())


def test_output_that_is_a_folder_or_cannot_be_written(squares: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    assert main(["preview", str(squares), "-o", str(tmp_path / "folder.png")]) == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        preview.write_picture(tmp_path / "file" / "p.png", np.zeros((8, 8, 3), np.uint8))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.png"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ConfigError, match="No space left"):
        preview.write_picture(path, np.zeros((8, 8, 3), np.uint8))
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["p.png"]


@pytest.mark.parametrize("folder", ["images", "images/train", "labels/val"])
def test_default_output_is_never_inside_the_data_set(
    squares: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(squares.parent, tmp_path / "set")
    before = sorted(p for p in (root / "images").rglob("*"))
    monkeypatch.chdir(root / folder)
    assert main(["preview", str(root / "data.yaml"), "--imgsz", "96"]) == 2
    assert "inside the data set" in capfd.readouterr().err
    assert sorted(p for p in (root / "images").rglob("*")) == before


def test_default_output_is_in_the_working_directory(
    squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["preview", str(squares), "--imgsz", "96", "--split", "val", "--rect", "--no-augment"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["preview.png"]
