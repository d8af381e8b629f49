"""`fastyolo preview`: a grid of the samples that training would get, with their boxes and class names drawn."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from fastyolo_data.cli.drawing import Sample, draw_grid, draw_sample
from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ConfigError, FastYoloError
from fastyolo_data.hyp import DIALECTS, Hyp
from fastyolo_data.labels import resolve_data
from fastyolo_data.loader import build_loader

__all__ = ["add_arguments", "parse_hyp", "run", "samples_of", "write_picture"]

DESCRIPTION = """Draw samples as the loader hands them to training, with boxes and class names, into one picture.

KEY=VALUE sets hyper-parameters of the augmentation, for example: degrees=30 mixup=1 perspective=0.001 scale=0.5,1.5"""
BATCH = 16  # as build_loader's default: it decides which images mosaic partners come from
SUFFIXES = (".png", ".jpg", ".jpeg")
JPEG_QUALITY = 90


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
