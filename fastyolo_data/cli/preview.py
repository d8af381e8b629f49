"""`fastyolo preview`: a grid of the samples that training would get, with their boxes and class names drawn."""

from __future__ import annotations

import argparse
import colorsys
import contextlib
import difflib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ConfigError, FastYoloError
from fastyolo_data.hyp import DIALECTS, Hyp
from fastyolo_data.labels import resolve_data
from fastyolo_data.loader import build_loader

__all__ = ["Sample", "add_arguments", "class_colour", "draw_grid", "draw_sample", "run", "samples_of"]

DESCRIPTION = """Draw samples as the loader hands them to training, with boxes and class names, into one picture.

KEY=VALUE sets hyper-parameters of the augmentation, for example: degrees=30 mixup=1 perspective=0.001 scale=0.5,1.5"""
BATCH = 16  # as build_loader's default: it decides which images mosaic partners come from
GAP = 4  # pixels between pictures
GREY, INK = (40, 40, 40), (235, 235, 235)
FONT = cv2.FONT_HERSHEY_SIMPLEX
SUFFIXES = (".png", ".jpg", ".jpeg")
JPEG_QUALITY = 90
CROWD = 60  # with more boxes: thin lines, and names that would cover the same name are left out
MAX_SIDE = 65_500  # what JPEG can hold; a PNG this large would not be looked at either


@dataclass(frozen=True)
class Sample:
    """One picture of a batch with its labels.

    Attributes:
        im: (h, w, 3) uint8 BGR, own memory.
        cls: (n,) class numbers.
        xyxy: (n, 4) boxes in pixels of `im`.
        im_file: path of the sample's own image (a mosaic shows three others as well).
    """

    im: U8Image
    cls: npt.NDArray[np.int64]
    xyxy: npt.NDArray[np.float64]
    im_file: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the sub-command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("data", metavar="DATA", help="data.yaml, image folder or .txt list")
    add("pairs", nargs="*", metavar="KEY=VALUE", help="hyper-parameters; they override those of --hyp")
    add("-o", "--output", type=Path, metavar="FILE", help=".png or .jpg (default: preview.png)")
    add("--hyp", type=Path, metavar="FILE", help="hyp yaml")
    add("--split", default="train", help="split of the yaml (default: train)")
    add("--augment", action=argparse.BooleanOptionalAction, help="augment (default: for train only)")
    add("--rect", action="store_true", help="batches of similar aspect ratio, no mosaic")
    add("--imgsz", type=int, default=640, help="side of the pictures in pixels (default: 640)")
    add("--n", type=int, default=16, help="number of samples (default: 16)")
    add("--columns", type=int, help="pictures in a row (default: about as many as rows)")
    add("--seed", type=int, default=0, help="as in build_loader (default: 0)")
    add("--epoch", type=int, default=0, help="epoch whose first samples are drawn (default: 0)")
    add("--numerics", default="fast", help="fast or exact (default: fast)")
    add("--dialect", default="ultralytics", help=f"{', '.join(DIALECTS)} (default: ultralytics)")
    add("--workers", type=int, help="threads (default: as build_loader)")
    _allow_pairs_anywhere(parser)


def _allow_pairs_anywhere(parser: argparse.ArgumentParser) -> None:
    """Let KEY=VALUE stand behind options too; argparse alone wants all positionals in one run (before Python 3.13)."""
    strict = parser.parse_known_args

    def parse(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, unknown = strict(args, namespace)
        late = [a for a in unknown if not a.startswith("-")]
        parsed.pairs = [*parsed.pairs, *late]
        return parsed, [a for a in unknown if a not in late]

    parser.parse_known_args = parse  # type: ignore[method-assign, assignment]


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command; return the exit code.

    Raises:
        ConfigError: an argument or the data set is unusable.
        ImageDecodeError: an image is broken.
    """
    for name, low in {"n": 1, "columns": 1, "epoch": 0}.items():
        value = getattr(args, name)
        if value is not None and value < low:
            raise ConfigError(f"--{name}: expected {low} or more, found {value}")
    hyp = parse_hyp(args.hyp, args.pairs)
    output = _output(args)
    samples, names, images = _load(args, hyp)
    columns = min(args.columns or math.ceil(math.sqrt(len(samples))), len(samples))
    grid = draw_grid([draw_sample(s, names) for s in samples], columns)
    write_picture(output, grid)
    boxes = sum(len(s.cls) for s in samples)
    print(f"{len(samples)} samples of {images} images ({args.split}), {boxes} boxes: {output}")
    return 0


def parse_hyp(file: Path | None, pairs: Sequence[str]) -> Hyp:
    """Hyper-parameters of a file (or the defaults), overridden by KEY=VALUE pairs.

    Raises:
        ConfigError: naming the pair that cannot be used.
    """
    values = asdict(Hyp.parse(file))
    known = [f.name for f in fields(Hyp)]
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"'{pair}': expected KEY=VALUE, such as degrees=30")
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
            raise ConfigError(f"'{pair}': there is no augmentation {key!r}; {hint}")
        if isinstance(values[key], str):
            values[key] = text
            continue
        try:
            numbers = [float(t) for t in text.strip("()[]").split(",")]
        except ValueError as e:
            raise ConfigError(f"'{pair}': {text!r} is not a number") from e
        value: float | list[float] = numbers if len(numbers) > 1 else numbers[0]
        try:
            Hyp.parse({key: value})
        except ConfigError as e:
            raise ConfigError(f"'{pair}': {e}") from e
        values[key] = value
    return Hyp.parse(values)


def _output(args: argparse.Namespace) -> Path:
    """Where the picture goes; checked before anything is loaded."""
    output = args.output or Path("preview.png")
    if output.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"-o {output}: expected a name that ends in {', '.join(SUFFIXES)}")
    if output.is_dir():
        raise ConfigError(f"-o {output}: this is a folder; expected a file name")
    if args.output is None:
        spec = resolve_data(args.data, args.split)
        here, root = Path.cwd().resolve(), spec.root.resolve()
        if root in here.parents or here in [s.resolve() for s in spec.sources]:
            raise ConfigError(f"the working directory lies inside the data set ({root}); say with -o where to write")
    return output


def _load(args: argparse.Namespace, hyp: Hyp) -> tuple[list[Sample], Sequence[str], int]:
    """Return the samples, the class names and the number of images."""
    loader = build_loader(
        args.data,
        split=args.split,
        imgsz=args.imgsz,
        batch=BATCH,
        augment=args.augment,
        hyp=hyp,
        cache="none",
        rect=args.rect,
        seed=args.seed,
        dialect=args.dialect,
        numerics=args.numerics,
        workers=args.workers,
    )
    with loader:
        loader.set_epoch(args.epoch)
        samples: list[Sample] = []
        for batch in loader:
            samples += samples_of(batch)
            if len(samples) >= args.n:
                break
        if not samples:
            raise FastYoloError(f"{args.data}, split {args.split!r}: the loader gave no samples")
        return samples[: args.n], loader.dataset.names, len(loader.dataset)


def samples_of(batch: Any) -> Iterator[Sample]:
    """Take a batch apart, a dict (Ultralytics) or a tuple of four (YOLOv5, YOLOv9)."""
    if isinstance(batch, dict):
        images, paths = batch["img"], batch["im_file"]
        idx, cls, xywhn = batch["batch_idx"].numpy(), batch["cls"].numpy()[:, 0], batch["bboxes"].numpy()
    else:
        images, targets, paths, _ = batch
        rows = targets.numpy()
        idx, cls, xywhn = rows[:, 0], rows[:, 1], rows[:, 2:]
    h, w = images.shape[2:]
    xywh = xywhn.astype(np.float64) * (w, h, w, h)
    xyxy = np.concatenate((xywh[:, :2] - xywh[:, 2:] / 2, xywh[:, :2] + xywh[:, 2:] / 2), 1)
    for i, path in enumerate(paths):
        im = np.ascontiguousarray(images[i].numpy()[::-1].transpose(1, 2, 0))
        mine = idx == i
        yield Sample(im, cls[mine].astype(np.int64), xyxy[mine], path)


def class_colour(cls: int) -> tuple[int, int, int]:
    """Bright BGR colour of a class: hues a golden section apart, so that neighbouring numbers differ most."""
    r, g, b = colorsys.hsv_to_rgb((0.33 + cls * 0.61803398875) % 1.0, 0.9 if cls % 2 else 1.0, 1.0)
    return int(b * 255), int(g * 255), int(r * 255)


def draw_sample(sample: Sample, names: Sequence[str]) -> U8Image:
    """Return a copy of the picture with its boxes, and a strip below it with the file name.

    Args:
        sample: picture and labels.
        names: class names; numbers are drawn for missing ones, and for those that OpenCV's font lacks (not ASCII).
    """
    im = sample.im.copy()
    h, w = im.shape[:2]
    scale = min(max(max(h, w) / 1280, 0.36), 0.6)
    line = 2 if max(h, w) >= 320 and len(sample.cls) <= CROWD else 1
    size = sample.xyxy[:, 2:] - sample.xyxy[:, :2]
    order = np.argsort(-size.prod(1), kind="stable")  # small boxes are not covered by large ones
    corners = np.clip(np.rint(sample.xyxy), 0, (w - 1, h - 1, w - 1, h - 1)).astype(int)
    for i in order:
        x1, y1, x2, y2 = corners[i].tolist()
        cv2.rectangle(im, (x1, y1), (x2, y2), class_colour(int(sample.cls[i])), line)
    plates: list[tuple[int, int, int, int, int]] = []
    for i in order:
        cls = int(sample.cls[i])
        name = _name(cls, names)
        plate = (cls, *_plate(im, name, int(corners[i, 0]), int(corners[i, 1]), scale))
        if len(order) <= CROWD or not any(_covers(plate, other) for other in plates):
            plates.append(plate)
            _draw_name(im, name, plate, scale)
    strip = np.full((_text_size("Xg", scale)[1] + 6, w, 3), GREY, np.uint8)
    caption = f"{Path(sample.im_file).name}  {len(order)} box{'' if len(order) == 1 else 'es'}"
    cv2.putText(strip, _ascii(caption), (4, len(strip) - 7), FONT, scale, INK, 1, cv2.LINE_AA)
    return np.concatenate((im, strip))


def _name(cls: int, names: Sequence[str]) -> str:
    name = str(names[cls]) if cls < len(names) else ""
    return name if name and name.isascii() else str(cls)


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _text_size(text: str, scale: float) -> tuple[int, int]:
    """Width and height of a text, the part below the line included."""
    (w, h), below = cv2.getTextSize(text, FONT, scale, 1)
    return w, h + below


def _plate(im: U8Image, text: str, x: int, y: int, scale: float) -> tuple[int, int, int, int]:
    """Corners of a name's plate: above the corner (x, y) of its box, or inside the box at the picture's edge."""
    w, h = _text_size(text, scale)
    left = max(0, min(x, im.shape[1] - w - 4))
    top = y - h - 1 if y > h else y
    return left, top, left + w + 3, top + h


def _covers(a: tuple[int, int, int, int, int], b: tuple[int, int, int, int, int]) -> bool:
    """Whether the plates (class, x1, y1, x2, y2) overlap and say the same."""
    return a[0] == b[0] and a[1] <= b[3] and b[1] <= a[3] and a[2] <= b[4] and b[2] <= a[4]


def _draw_name(im: U8Image, text: str, plate: tuple[int, int, int, int, int], scale: float) -> None:
    """Write a name on its plate (class, x1, y1, x2, y2), in black or white, whatever is easier to read."""
    cls, x1, y1, x2, y2 = plate
    blue, green, red = class_colour(cls)
    cv2.rectangle(im, (x1, y1), (x2, y2), (blue, green, red), -1)
    ink = (0, 0, 0) if 0.114 * blue + 0.587 * green + 0.299 * red > 110 else (255, 255, 255)
    (_, above), _ = cv2.getTextSize(text, FONT, scale, 1)
    cv2.putText(im, text, (x1 + 2, y1 + above + 1), FONT, scale, ink, 1, cv2.LINE_AA)


def draw_grid(pictures: Sequence[U8Image], columns: int) -> U8Image:
    """Lay pictures out in rows; every cell has the size of the largest picture, gaps of GAP pixels between cells."""
    rows = -(-len(pictures) // columns)
    h, w = max(p.shape[0] for p in pictures), max(p.shape[1] for p in pictures)
    height, width = rows * (h + GAP) - GAP, columns * (w + GAP) - GAP
    if max(height, width) > MAX_SIDE:
        raise ConfigError(f"the picture would have {width}x{height} pixels; use a smaller --n or --imgsz")
    grid = np.full((height, width, 3), GREY, np.uint8)
    for i, picture in enumerate(pictures):
        y, x = i // columns * (h + GAP), i % columns * (w + GAP)
        grid[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    return grid


def write_picture(path: Path, im: U8Image) -> None:
    """Write a PNG or JPEG in one step, so that nobody sees half of it.

    Raises:
        ConfigError: the file cannot be written there.
    """
    png = path.suffix.lower() == ".png"
    ok, data = cv2.imencode(path.suffix.lower(), im, [] if png else [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not ok:
        raise FastYoloError(f"OpenCV could not encode a picture of {im.shape[1]}x{im.shape[0]} as {path.suffix}")
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temp.write_bytes(data.tobytes())
        os.replace(temp, path)
    except OSError as e:
        raise ConfigError(f"-o {path}: cannot be written: {e.strerror or e}") from e
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()
