"""Train a small detector on real photos with this loader, and see whether it learns.

The data are the 205 training and 87 validation pictures of blood cells (BCCD) in ../shared/data/bccd, or another
data.yaml (--data). Without them a set of painted shapes is generated (--no-demo: skip instead).

The network is a plain CNN with one output cell per 8x8 pixels that predicts, as FCOS does, whether an object is there,
its class, and the distances to the four sides of its box. Printed are the loss every --log-every steps, how long the
training thread waited for batches, and on the validation pictures, before and after training, the recall at IoU 0.5 of
the best N predictions of each picture, N being the number of objects in it; the class must be right as well. The same
predictions compared with the labels of another picture show what guessing gets.

    python benchmarks/training/bccd_detector.py

Exit code 1 when the loss falls by less than --min-drop (a fraction).
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastyolo_data import FastLoader, build_loader
from fastyolo_data.cli.bench.demo import DemoSpec, make_demo

BCCD = Path(__file__).resolve().parents[3] / "shared" / "data" / "bccd" / "bccd.yaml"
STRIDE = 8  # pixels per output cell
SPAN = 20  # steps averaged at both ends of the run
HYP = {"flipud": 0.5}  # cells look alike upside down


def conv(c1: int, c2: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """3x3 convolution, batch norm, SiLU."""
    layer = nn.Conv2d(c1, c2, 3, stride, dilation, dilation, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c2), nn.SiLU(inplace=True))


class Detector(nn.Module):
    """Tiny anchor-free detector.

    Args:
        nc: number of classes.
    """

    def __init__(self, nc: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 48, 2))
        self.body = nn.ModuleList([conv(48, 48, 1, d) for d in (1, 2, 4, 1)])
        self.head = nn.Conv2d(48, 5 + nc, 1)
        nn.init.constant_(self.head.bias, 0.0)
        nn.init.constant_(self.head.bias[:1], -3.0)  # objects are rare
        nn.init.constant_(self.head.bias[1:5], 1.0)

    def forward(self, img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict.

        Args:
            img: (B, 3, H, W) uint8.

        Returns:
            (B, N) objectness logits, (B, N, nc) class logits, (B, N, 4) xyxy in pixels; N = H * W / 64 cells.
        """
        x = self.stem(img.float() / 255)
        for layer in self.body:
            x = x + layer(x)
        out = self.head(x).flatten(2).transpose(1, 2)
        centres = cell_centres(img.shape[2] // STRIDE, img.shape[3] // STRIDE, img.device)
        sides = F.softplus(out[..., 1:5]) * STRIDE
        return out[..., 0], out[..., 5:], torch.cat((centres - sides[..., :2], centres + sides[..., 2:]), -1)


def cell_centres(rows: int, columns: int, device: torch.device) -> Tensor:
    """(rows * columns, 2) x, y of the cells' centres in pixels."""
    y, x = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
    return (torch.stack((x, y), -1).reshape(-1, 2) + 0.5) * STRIDE


def truth_of(batch: dict[str, Any], i: int) -> tuple[Tensor, Tensor]:
    """Classes (n,) and xyxy boxes (n, 4) in pixels of picture i of a batch."""
    mine = batch["batch_idx"] == i
    h, w = batch["img"].shape[2:]
    xy, wh = (batch["bboxes"][mine] * batch["bboxes"].new_tensor([w, h, w, h])).split(2, 1)
    return batch["cls"][mine, 0].long(), torch.cat((xy - wh / 2, xy + wh / 2), 1)


def assign(boxes: Tensor, centres: Tensor) -> Tensor:
    """Which object each cell is responsible for.

    A cell belongs to an object when it lies in its box and within 1.5 cells of its centre; to the smallest of several.

    Args:
        boxes: (n, 4) xyxy; centres: (N, 2).

    Returns:
        (N,) number of the object, -1 for background.
    """
    if not len(boxes):
        return torch.full((len(centres),), -1, device=centres.device)
    middle, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    away = (centres[:, None] - middle).abs()
    reach = half.clamp(min=STRIDE / 2, max=1.5 * STRIDE)  # even the smallest object gets a cell
    near = (away <= reach).all(-1)
    area = half.prod(1).expand(len(centres), -1).masked_fill(~near, math.inf)
    smallest, number = area.min(1)
    return torch.where(smallest.isfinite(), number, -1)


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised IoU of boxes a and b, both (n, 4) xyxy."""
    inter = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inter
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    return inter / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


def loss_of(model: Detector, batch: dict[str, Any]) -> Tensor:
    """Objectness BCE + class cross-entropy + (1 - GIoU), each per responsible cell."""
    obj, cls, xyxy = model(batch["img"])
    centres = cell_centres(batch["img"].shape[2] // STRIDE, batch["img"].shape[3] // STRIDE, obj.device)
    is_object = torch.zeros_like(obj)
    found_cls, found_box, true_cls, true_box = [], [], [], []
    for i in range(len(obj)):
        classes, boxes = truth_of(batch, i)
        owner = assign(boxes, centres)
        cells = owner >= 0
        is_object[i, cells] = 1.0
        found_cls.append(cls[i, cells])
        found_box.append(xyxy[i, cells])
        true_cls.append(classes[owner[cells]])
        true_box.append(boxes[owner[cells]])
    n = is_object.sum().clamp(min=1)
    loss = F.binary_cross_entropy_with_logits(obj, is_object, reduction="sum")
    loss = loss + F.cross_entropy(torch.cat(found_cls), torch.cat(true_cls), reduction="sum")
    return (loss + (1 - giou(torch.cat(found_box), torch.cat(true_box))).sum()) / n


def iou_matrix(a: Tensor, b: Tensor) -> Tensor:
    """IoU of every box of a (n, 4) with every box of b (m, 4)."""
    corner = torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2])
    inter = corner.clamp(min=0).prod(-1)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(1), (b[:, 2:] - b[:, :2]).prod(1)
    return inter / (area_a[:, None] + area_b - inter).clamp(min=1e-6)


def best_boxes(score: Tensor, cls: Tensor, xyxy: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Classes and boxes of the `limit` best predictions, best first, without near-duplicates (IoU > 0.5) of a class."""
    order = score.argsort(descending=True)[:300]
    overlap = iou_matrix(xyxy[order], xyxy[order]) > 0.5
    overlap &= cls[order][:, None] == cls[order]
    kept: list[int] = []
    for i in range(len(order)):
        if len(kept) < limit and not overlap[i, kept].any():
            kept.append(i)
    return cls[order[kept]], xyxy[order[kept]]


def matched(predicted: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor]) -> int:
    """Objects found: predictions, best first, each take the free object of their class that they overlap most."""
    overlap = iou_matrix(predicted[1], truth[1])
    overlap[predicted[0][:, None] != truth[0]] = 0
    found = 0
    for row in range(len(overlap)):
        value, column = overlap[row].max(0) if overlap.shape[1] else (torch.zeros(()), torch.zeros(()))
        if value >= 0.5:
            overlap[:, int(column)] = 0
            found += 1
    return found


@torch.no_grad()
def recall(model: Detector, loader: FastLoader) -> tuple[float, float]:
    """Recall on every picture's own labels, and on those of the picture before it."""
    model.eval()
    own = other = total = 0
    before: tuple[Tensor, Tensor] | None = None
    for batch in loader:
        obj, cls, xyxy = model(batch["img"])
        chance, number = cls.softmax(-1).max(-1)
        score = obj.sigmoid() * chance
        for i in range(len(obj)):
            truth = truth_of(batch, i)
            predicted = best_boxes(score[i], number[i], xyxy[i], len(truth[0]))
            own += matched(predicted, truth)
            other += matched(predicted, before) if before is not None else 0
            total += len(truth[0])
            before = truth
    model.train()
    return own / max(total, 1), other / max(total, 1)


@dataclass(frozen=True)
class Run:
    """What training did.

    Attributes:
        losses: of every step.
        seconds: from the second batch on.
        waited: seconds of these in which the training thread waited for a batch.
        first_batch: seconds until the first batch (includes compiling kernels that are not cached yet).
    """

    losses: list[float]
    seconds: float
    waited: float
    first_batch: float


def forever(loader: FastLoader) -> Iterator[dict[str, Any]]:
    """Batches, epoch after epoch."""
    while True:
        yield from loader


def train(model: Detector, loader: FastLoader, args: argparse.Namespace) -> Run:
    """Train for args.steps steps and print the loss now and then."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps + 1, pct_start=0.1)
    losses: list[float] = []
    start = time.perf_counter()
    first_batch = waited_before = 0.0
    for step, batch in enumerate(forever(loader), 1):
        if step == 1:
            first_batch, waited_before = time.perf_counter() - start, loader.stats()["wait"]
            start = time.perf_counter()
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step % args.log_every == 0 or step == args.steps:
            recent = losses[-args.log_every :]
            print(f"step {step:4d}  loss {sum(recent) / len(recent):.3f}", flush=True)
        if step == args.steps:
            break
    return Run(losses, time.perf_counter() - start, loader.stats()["wait"] - waited_before, first_batch)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help=f"data.yaml with train and val (default: {BCCD})")
    parser.add_argument("--no-demo", action="store_true", help="skip when the data are absent")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--imgsz", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", default="none", help="as in build_loader; changes the speed only")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's threads; equal numbers give equal losses")
    parser.add_argument("--log-every", type=int, default=20, metavar="N")
    parser.add_argument("--min-drop", type=float, default=0.3, help="least fall of the loss, as a fraction")
    args = parser.parse_args(argv)
    if min(args.steps, args.batch, args.threads, args.log_every) < 1:
        parser.error("--steps, --batch, --threads and --log-every must be 1 or more")
    return args


def find_data(args: argparse.Namespace, temp: Path) -> Path | None:
    """The data.yaml to use; None to skip."""
    path = args.data or BCCD
    if path.exists():
        print(f"data: {path}")
        return path
    if args.no_demo:
        print(f"skipped: {path} is not there; pass --data, or leave --no-demo out to train on painted shapes")
        return None
    print(f"data: {path} is not there, painting a demo set instead")
    return make_demo(temp, DemoSpec(train=128, val=32, width=320, height=240))


def main(argv: Sequence[str] | None = None) -> int:
    """Train, evaluate, report; 1 when the loss did not fall enough."""
    args = parse(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory(prefix="fastyolo-training-") as temp:
        data = find_data(args, Path(temp))
        if data is None:
            return 0
        common = {"imgsz": args.imgsz, "batch": args.batch, "workers": args.workers, "cache_dir": temp}
        common |= {"cache": args.cache, "seed": args.seed, "device": args.device, "verbose": False}
        with (
            build_loader(data, hyp=HYP, drop_last=True, **common) as loader,
            build_loader(data, split="val", **common) as val,
        ):
            model = Detector(max(len(loader.dataset.names), 1)).to(args.device)
            before = recall(model, val)
            run = train(model, loader, args)
            after = recall(model, val)
    print(f"first batch after {run.first_batch:.1f} s")
    share = run.waited / run.seconds
    rate = (args.steps - 1) * args.batch / run.seconds
    print(f"training {run.seconds:.1f} s, {rate:.0f} images/s; waited for data {share:.1%} of it")
    for name, (own, other) in (("before", before), ("after", after)):
        print(f"val recall@IoU0.5 {name} training: {own:.3f} (labels of another picture: {other:.3f})")
    first, last = (sum(part) / len(part) for part in (run.losses[:SPAN], run.losses[-SPAN:]))
    drop = 1 - last / first
    print(f"loss first {SPAN} steps {first:.3f} -> last {SPAN} steps {last:.3f}")
    if not drop >= args.min_drop:
        print(f"the loss fell by {drop:.1%}, expected {args.min_drop:.1%} or more", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
