"""What is drawn on a picture, and whether masks, keypoints and oriented boxes lie on the objects they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from fastyolo_data import build_loader
from fastyolo_data.cli import drawing, preview
from fastyolo_data.cli.main import main

SIDE = 192
LARGE = np.array([[60, 30], [160, 70], [130, 145], [30, 105]])  # a turned rectangle, 108 x 81 pixels
SMALL = np.array([[90, 75], [120, 75], [120, 105], [90, 105]])  # inside of LARGE
POINTS = ((50, 60, 2), (110, 60, 1), (60, 120, 0), (120, 130, 2))
TONES = (250, 190, 130, 70)  # grey of the disc around each point
STILL = ["hsv_h=0", "hsv_s=0", "hsv_v=0"]


def write_set(root: Path, im: np.ndarray, rows: list[tuple[float, ...]], more: str = "") -> Path:
    """Yaml of a set that has the same picture three times in each split."""
    label = "\n".join(" ".join(f"{v:.7f}" if j else str(v) for j, v in enumerate(row)) for row in rows)
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for i in range(3):
            cv2.imwrite(str(root / "images" / split / f"{i}.png"), im)
            (root / "labels" / split / f"{i}.txt").write_text(label + "\n")
    (root / "data.yaml").write_text(f"path: .\ntrain: images/train\nval: images/val\nnames: [a, b]\n{more}")
    return root / "data.yaml"


@pytest.fixture(scope="module")
def quads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """White LARGE of class 0 with SMALL of class 1 in it, on black; labels of segment and of obb look the same."""
    im = np.zeros((SIDE, SIDE, 3), np.uint8)
    cv2.fillPoly(im, [LARGE.astype(np.int32)], (255, 255, 255))
    rows = [(cls, *(quad / SIDE).ravel()) for cls, quad in enumerate((LARGE, SMALL))]
    return write_set(tmp_path_factory.mktemp("quads"), im, rows)


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disc of its own grey around each of POINTS, on black."""
    im = np.zeros((SIDE, SIDE, 3), np.uint8)
    for (x, y, _), tone in zip(POINTS, TONES, strict=True):
        cv2.circle(im, (x, y), 12, (tone, tone, tone), -1)
    points = [v for x, y, seen in POINTS for v in (x / SIDE, y / SIDE, seen)]
    row = (0, 0.5, 0.5, 0.8, 0.8, *points)
    return write_set(tmp_path_factory.mktemp("discs"), im, [row], "kpt_shape: [4, 3]\nflip_idx: [0, 1, 2, 3]\n")


def filled(quad: np.ndarray, margin: int = 0) -> np.ndarray:
    """Pixels of a quadrangle, `margin` more on each side (or fewer)."""
    mask = np.zeros((SIDE, SIDE), np.uint8)
    cv2.fillPoly(mask, [np.rint(quad).astype(np.int32)], 1)
    change = cv2.dilate if margin > 0 else cv2.erode
    return change(mask, np.ones((2 * abs(margin) + 1,) * 2, np.uint8)) > 0


def agree(a: np.ndarray, b: np.ndarray, margin: int) -> bool:
    """Whether the edges of two areas are nowhere further than `margin` pixels apart."""
    kernel = np.ones((2 * margin + 1,) * 2, np.uint8)
    border = {"borderType": cv2.BORDER_CONSTANT, "borderValue": 0}
    cores = [cv2.erode(area.astype(np.uint8), kernel, **border) > 0 for area in (a, b)]
    assert all(core.sum() > 500 for core in cores), "nothing to compare"
    return not (cores[0] & ~b).any() and not (cores[1] & ~a).any()


def first_picture(data: Path, out: Path, *options: str) -> np.ndarray:
    arguments = ["--split", "val", "--imgsz", str(SIDE), "--n", "1", "--workers", "0", "-o", str(out), *options]
    assert main(["preview", str(data), *arguments]) == 0
    return cv2.imread(str(out))[:SIDE]


def augmented(data: Path, task: str, *pairs: str, dialect: str = "ultralytics") -> Iterator[drawing.Sample]:
    hyp = preview.parse_hyp(None, ["mosaic=0", *STILL, *pairs])
    options = {"task": task, "dialect": dialect, "imgsz": SIDE, "batch": 3, "workers": 0, "verbose": False}
    with build_loader(data, hyp=hyp, **options) as loader:
        for _ in range(3):
            for batch in loader:
                yield from preview.samples_of(batch, overlap=hyp.overlap_mask)


def test_drawing_leaves_the_sample_alone_and_survives_odd_boxes() -> None:
    im = np.full((64, 64, 3), 90, np.uint8)
    xyxy = np.array([[-20.0, -5, 200, 90], [10, 10, 10, 10], [63, 63, 64, 64], [0, 0, 64, 64]])
    sample = drawing.Sample(im, np.array([0, 1, 7, 1]), xyxy, "a/ü.jpg")
    drawn = drawing.draw_sample(sample, ["x" * 40, "方块"])
    assert (im == 90).all()
    assert drawn.shape[1] == 64
    assert drawn.shape[0] > 64


def test_crowded_pictures_get_thin_lines() -> None:
    im = np.zeros((320, 320, 3), np.uint8)
    xyxy = np.array([[5.0 * k, 100, 5 * k + 4, 104] for k in range(61)])
    few = drawing.draw_sample(
        drawing.Sample(im, np.zeros(5, np.int64), xyxy[:5] + np.array([0, 0, 90, 90]), "a"), ["c"]
    )
    many = drawing.draw_sample(drawing.Sample(im, np.zeros(61, np.int64), xyxy, "a"), ["c"])
    assert few[:320].any(2).sum() > 0
    assert not many[106:320].any(), "a line of one pixel ends at the box"


def test_class_colours_differ() -> None:
    colours = {drawing.class_colour(c) for c in range(80)}
    assert len(colours) == 80


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5", "yolov9"])
@pytest.mark.parametrize("pairs", [[], ["overlap_mask=false"], ["mask_ratio=1"], ["overlap_mask=0", "mask_ratio=5"]])
def test_masks_lie_on_their_polygons(quads: Path, tmp_path: Path, dialect: str, pairs: list[str]) -> None:
    im = first_picture(quads, tmp_path / "p.png", "--task", "segment", "--dialect", dialect, *pairs)
    large, small = ((255 + np.array(drawing.class_colour(c))) // 2 for c in (0, 1))
    ratio = next((int(p[-1]) for p in pairs if p.startswith("mask_ratio")), 4)
    assert (im[filled(SMALL, -ratio - 1)] == small).all(), "the small object is on top"
    around = filled(LARGE, -ratio) & ~filled(SMALL, ratio + 2)
    around[55:75, 85:110] = False  # the small one's name
    assert (im[around] == large).mean() > 0.97, "the rest is LARGE, but for the lines of the boxes"
    outside = ~filled(LARGE, ratio)
    outside[:34] = outside[:, :34] = outside[:, 156:] = outside[142:] = (
        False  # outside the large one's box, or its name
    )
    assert outside.sum() > 2000
    assert not im[outside].any()


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5"])
@pytest.mark.parametrize("pairs", [[], ["overlap_mask=false"]])
def test_augmented_masks_follow_their_objects(quads: Path, dialect: str, pairs: list[str]) -> None:
    turned = ["degrees=30", "flipud=0.5", "shear=5", *pairs]
    for sample in augmented(quads, "segment", *turned, dialect=dialect):
        assert sample.objects is not None
        assert set(np.unique(sample.objects)) == {0, 1, 2}
        mask = cv2.resize((sample.objects > 0).astype(np.uint8), (SIDE, SIDE), interpolation=cv2.INTER_NEAREST) > 0
        assert agree(mask, sample.im[:, :, 0] > 128, 3)


def test_the_same_masks_with_and_without_overlap(quads: Path) -> None:
    pictures = [
        [drawing.draw_sample(s, ["a", "b"]) for s in augmented(quads, "segment", "degrees=20", pair)]
        for pair in ("overlap_mask=true", "overlap_mask=false")
    ]
    for one, other in zip(*pictures, strict=True):
        # At the edge of the small one, sums of overlapping masks and masks of their own differ by a cell.
        assert (one != other).any(2).mean() < 0.01


def test_keypoints_are_dots_circles_or_nothing(discs: Path, tmp_path: Path) -> None:
    im = first_picture(discs, tmp_path / "p.png", "--task", "pose").astype(int)
    for k, ((x, y, seen), tone) in enumerate(zip(POINTS, TONES, strict=True)):
        area = im[y - 7 : y + 8, x - 7 : x + 8]
        coloured = (area == drawing.class_colour(k)).all(2)
        if seen == 2:
            assert coloured[6:9, 6:9].all(), "a full dot"
        else:
            assert (area[7, 7] == tone).all(), "nothing in the middle"
            assert coloured.any() == (seen == 1), "a circle where the point is hidden"


def test_augmented_keypoints_stay_on_their_discs(discs: Path) -> None:
    checked = 0
    for sample in augmented(discs, "pose", "degrees=40", "flipud=0.5"):
        assert sample.keypoints is not None
        for (x, y, seen), (_, _, before), tone in zip(sample.keypoints[0], POINTS, TONES, strict=True):
            inside = 0 <= x < SIDE - 1 and 0 <= y < SIDE - 1
            assert seen == (before if inside else 0)
            if inside:
                assert (abs(sample.im[round(y), round(x)].astype(int) - tone) < 4).all()
                checked += 1
    assert checked > 20


def test_oriented_boxes_lie_on_their_edges(quads: Path, tmp_path: Path) -> None:
    im = first_picture(quads, tmp_path / "p.png", "--task", "obb")
    drawn = (im == drawing.class_colour(0)).all(2)
    edge = np.zeros((SIDE, SIDE), np.uint8)
    cv2.polylines(edge, [LARGE.astype(np.int32)], True, 1, 1)
    near = cv2.dilate(drawn.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    assert near[edge > 0].mean() > 0.97
    far = ~(cv2.dilate(edge, np.ones((7, 7), np.uint8)) > 0)
    far[:35, 50:90] = False  # its name
    assert not drawn[far].any(), "an upright box would leave the edges"


def test_augmented_oriented_boxes_turn_with_their_objects(quads: Path) -> None:
    checked = 0
    for sample in augmented(quads, "obb", "degrees=30", "flipud=0.5"):
        assert sample.corners is not None
        white = sample.im[:, :, 0] > 128
        quad = sample.corners[np.flatnonzero(sample.cls == 0)[0]]
        if quad.min() > 2 and quad.max() < SIDE - 3:
            assert agree(filled(quad), white, 2)
            checked += 1
    assert checked > 3


@pytest.mark.parametrize("task", ["segment", "pose", "obb"])
def test_pictures_without_objects(tmp_path: Path, task: str) -> None:
    more = "kpt_shape: [4, 3]\nflip_idx: [0, 1, 2, 3]\n" if task == "pose" else ""
    data = write_set(tmp_path / "empty", np.full((SIDE, SIDE, 3), 90, np.uint8), [], more)
    for pair in ("overlap_mask=1", "overlap_mask=0"):
        assert (first_picture(data, tmp_path / "p.png", "--task", task, pair) == 90).all()
