"""`fastyolo preview`: a grid of the samples that training would get, with their labels drawn."""

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
import numpy.typing as npt

from fastyolo_data.cli.drawing import Sample, draw_grid, draw_sample
from fastyolo_data.datatypes import U8Image
from fastyolo_data.errors import ConfigError, FastYoloError
from fastyolo_data.hyp import DIALECTS, Hyp
from fastyolo_data.labels import resolve_data
from fastyolo_data.loader import build_loader

__all__ = ["add_arguments", "parse_hyp", "run", "samples_of", "write_picture"]

DESCRIPTION = """Draw samples as the loader hands them to training, with boxes and class names, into one picture.
--task adds masks, keypoints (dots; hidden ones are circles), or draws oriented boxes.

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
    add("--task", default="detect", help="detect, segment, pose or obb (default: detect)")
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
        value = _value(pair, text, values[key])
        try:
            Hyp.parse({key: value})
        except ConfigError as e:
            raise ConfigError(f"'{pair}': {e}") from e
        values[key] = value
    return Hyp.parse(values)


def _value(pair: str, text: str, now: Any) -> Any:
    """The text of a pair as a value of the kind that the hyper-parameter has now."""
    if isinstance(now, str):
        return text
    if isinstance(now, (bool, np.bool_)):
        flags = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in flags:
            raise ConfigError(f"'{pair}': expected true or false, found {text!r}")
        return flags[text.lower()]
    try:
        numbers = [float(t) for t in text.strip("()[]").split(",")]
    except ValueError as e:
        raise ConfigError(f"'{pair}': {text!r} is not a number") from e
    if len(numbers) > 1:
        return numbers
    return int(numbers[0]) if numbers[0].is_integer() else numbers[0]  # mask_ratio takes whole numbers only


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
        task=args.task,
        dialect=args.dialect,
        numerics=args.numerics,
        workers=args.workers,
    )
    with loader:
        loader.set_epoch(args.epoch)
        samples: list[Sample] = []
        for batch in loader:
            samples += samples_of(batch, overlap=bool(hyp.overlap_mask))
            if len(samples) >= args.n:
                break
        if not samples:
            raise FastYoloError(f"{args.data}, split {args.split!r}: the loader gave no samples")
        return samples[: args.n], loader.dataset.names, len(loader.dataset)


def samples_of(batch: Any, *, overlap: bool = True) -> Iterator[Sample]:
    """Take a batch apart, a dict (Ultralytics) or a tuple of four, with masks five (YOLOv5, YOLOv9).

    Args:
        batch: on the host.
        overlap: form of its masks, as the hyper-parameter overlap_mask.
    """
    if isinstance(batch, dict):
        images, paths, masks = batch["img"], batch["im_file"], batch.get("masks")
        idx, cls, boxes = batch["batch_idx"].numpy(), batch["cls"].numpy()[:, 0], batch["bboxes"].numpy()
        keypoints = batch["keypoints"].numpy() if "keypoints" in batch else None
    else:
        images, targets, paths, _, *rest = batch
        rows = targets.numpy()
        idx, cls, boxes = rows[:, 0], rows[:, 1], rows[:, 2:]
        masks, keypoints = rest[0] if rest else None, None
    h, w = images.shape[2:]
    corners = _corners(boxes, h, w) if boxes.shape[1] == 5 else None
    xyxy = _surrounding(boxes, h, w) if corners is None else np.concatenate((corners.min(1), corners.max(1)), 1)
    for i, path in enumerate(paths):
        im = np.ascontiguousarray(images[i].numpy()[::-1].transpose(1, 2, 0))
        mine = idx == i
        yield Sample(
            im,
            cls[mine].astype(np.int64),
            xyxy[mine],
            path,
            None if corners is None else corners[mine],
            None if keypoints is None else keypoints[mine].astype(np.float64) * (w, h, 1),
            None if masks is None else _objects(masks.numpy(), i, mine, overlap=overlap),
        )


def _surrounding(xywhn: npt.NDArray[np.float32], h: int, w: int) -> npt.NDArray[np.float64]:
    """(n, 4) first and last corner of upright boxes in pixels."""
    xywh = xywhn.astype(np.float64) * (w, h, w, h)
    return np.concatenate((xywh[:, :2] - xywh[:, 2:] / 2, xywh[:, :2] + xywh[:, 2:] / 2), 1)


def _corners(xywhrn: npt.NDArray[np.float32], h: int, w: int) -> npt.NDArray[np.float64]:
    """(n, 4, 2) corners of oriented boxes in pixels."""
    x, y, width, height, angle = (xywhrn.astype(np.float64) * (w, h, w, h, 1)).T
    along = np.stack((np.cos(angle), np.sin(angle)), 1) * width[:, None] / 2
    across = np.stack((-np.sin(angle), np.cos(angle)), 1) * height[:, None] / 2
    centre = np.stack((x, y), 1)
    return np.stack(
        (centre - along - across, centre + along - across, centre + along + across, centre - along + across), 1
    )


def _objects(masks: npt.NDArray[Any], i: int, mine: npt.NDArray[np.bool_], *, overlap: bool) -> npt.NDArray[np.int32]:
    """Masks of the i-th picture in the form of Sample; small objects are on top, as overlap_mask has them."""
    if overlap:
        return masks[i].astype(np.int32)
    top = np.zeros(masks.shape[1:], np.int32)
    own = masks[mine] > 0
    for k in np.argsort(-own.sum((1, 2)), kind="stable"):
        top[own[k]] = k + 1
    return top


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
