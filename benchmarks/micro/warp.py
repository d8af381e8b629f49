"""One augmented 640 x 640 sample from four tiles: our fused kernel against the stock sequence of OpenCV calls.

    python benchmarks/micro/warp.py

Outputs are compared first. Both sides run on one thread (OpenCV's own threads are switched off for this process), in
alternation; median and median absolute deviation of the rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import cv2
import numpy as np

from fastyolo_data.augment.exact import finish_exact, mix_pictures, warp_exact
from fastyolo_data.cli.bench.demo import DemoSpec, paint_photo
from fastyolo_data.hyp import Hyp, get_dialect
from fastyolo_data.kernels.warp import HUE_ADDITIVE, make_scratch, render_sample
from fastyolo_data.plan import AugmentPlan, SamplePlanner, plan_order

CASES = {
    "default (axis-aligned)": Hyp(),
    "rotation 30": Hyp(degrees=30.0),
    "perspective 0.001": Hyp(perspective=0.001),
    "mixup": Hyp(mixup=1.0),
}


def make_plan(hyp: Hyp) -> AugmentPlan:
    """Plan four samples of four 480 x 640 images."""
    planner = SamplePlanner(np.tile([[480, 640]], (4, 1)), 640, hyp, get_dialect("ultralytics"), 0, True, True, 0, None)
    return planner.plan(plan_order(4, seed=0, epoch=0, shuffle=False, batch=4), 0, 0, 4)


def fused(plan: AugmentPlan, row: int, packed: list[np.ndarray], scratch: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Our kernel, called as the loader calls it."""
    layers = [tuple(packed[i] for i in plan.tiles[row, k]) for k in range(2)]
    render_sample(
        dst, *layers, plan.rects[row], plan.pads[row], plan.counts[row], plan.inverse[row], plan.ratio[row],
        HUE_ADDITIVE, plan.hsv[row], plan.flipud[row], plan.fliplr[row], plan.bgr[row], scratch,
    )  # fmt: skip
    return dst


def stock(plan: AugmentPlan, row: int, images: list[np.ndarray]) -> np.ndarray:
    """Canvas, paste, warp, mixup, colour, flip, transpose with OpenCV and NumPy."""
    layers = [[images[i] for i in plan.tiles[row, k, : plan.counts[row, k]]] for k in range(2) if plan.counts[row, k]]
    pictures = [warp_exact(plan, row, k, tiles) for k, tiles in enumerate(layers)]
    im = pictures[0] if len(pictures) == 1 else mix_pictures(*pictures, plan.ratio[row])
    return np.ascontiguousarray(finish_exact(im, plan, row, True))


def measure(functions: dict[str, Callable[[int], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Alternate between functions; median and MAD in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for k in range(rounds):
        for name in sorted(functions, reverse=bool(k % 2)):
            began = time.perf_counter()
            functions[name](k % 4)
            times[name].append((time.perf_counter() - began) * 1e3)
    return {n: (float(np.median(t)), float(np.median(np.abs(np.array(t) - np.median(t))))) for n, t in times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    cv2.setNumThreads(1)
    images = [paint_photo(DemoSpec(), i)[0] for i in range(4)]
    packed = [np.ascontiguousarray(cv2.cvtColor(im, cv2.COLOR_BGR2BGRA)).view(np.uint32)[..., 0] for im in images]
    scratch, dst = make_scratch(640, 640), np.empty((3, 640, 640), np.uint8)
    print(f"{'':24}{'fused ms':>16}{'OpenCV ms':>16}{'ratio':>8}{'mean |diff|':>13}")
    for name, hyp in CASES.items():
        plan = make_plan(hyp)
        difference = np.mean(
            [np.abs(fused(plan, r, packed, scratch, dst).astype(int) - stock(plan, r, images)).mean() for r in range(4)]
        )
        functions: dict[str, Callable[[int], object]] = {
            "fused": lambda row, plan=plan: fused(plan, row, packed, scratch, dst),
            "OpenCV": lambda row, plan=plan: stock(plan, row, images),
        }
        result = measure(functions, rounds)
        ours, theirs = result["fused"], result["OpenCV"]
        print(
            f"{name:24}{ours[0]:8.2f} ± {ours[1]:4.2f} {theirs[0]:8.2f} ± {theirs[1]:4.2f} "
            f"{theirs[0] / ours[0]:7.2f}{difference:13.2f}"
        )


if __name__ == "__main__":
    main()
