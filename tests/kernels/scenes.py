"""Inputs of the warp kernel: tiles, where they lie, and the matrices that look at them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import config

from fastyolo_data.kernels.warp import HUE_OFF, make_scratch, render_sample
from tests.conftest import paint
from tests.reference import geometry, warp

# Pure Python and bounds checks run the kernels far slower: small pictures there.
SIDE = 20 if config.DISABLE_JIT else 40 if config.BOUNDSCHECK else 96


@dataclass
class Layer:
    """Tiles (h, w, 3) uint8 BGR on a canvas (height, width), and the matrix canvas -> output."""

    tiles: list[np.ndarray]
    rects: np.ndarray
    pads: np.ndarray
    canvas: tuple[int, int]
    inverse: np.ndarray

    def look(self, out_hw: tuple[int, int], **view) -> Layer:
        """The same layer seen through another matrix."""
        m = geometry.matrix(self.canvas, out_hw, **view)
        inverse = np.linalg.inv(m)
        if not any(view.get("perspective", (0, 0))):
            inverse[2] = 0, 0, 1
            if not view.get("angle") and not any(view.get("shear", (0, 0))):
                inverse[0, 1] = inverse[1, 0] = 0.0
        return Layer(self.tiles, self.rects, self.pads, self.canvas, inverse)


def noise(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """A picture of independent bytes: the largest contrast there can be between neighbours."""
    return rng.integers(0, 256, (h, w, 3), dtype=np.uint8)


def mosaic(sizes, s: int, centre: tuple[int, int], make=noise, seed: int = 0) -> Layer:
    """Four tiles around centre (y, x) on a canvas of 2s x 2s."""
    rng = np.random.default_rng(seed)
    rects, pads = warp.place_mosaic(sizes, *centre, s)
    return Layer([make(rng, h, w) for h, w in sizes], rects, pads, (2 * s, 2 * s), np.eye(3))


def lone(h: int, w: int, canvas=None, at=(0, 0), make=noise, seed: int = 0) -> Layer:
    """One tile at (x, y) on a canvas, its own size by default."""
    rects, pads = np.zeros((4, 4)), np.zeros((4, 2))
    rects[0], pads[0] = (at[0], at[1], at[0] + w, at[1] + h), at
    return Layer([make(np.random.default_rng(seed), h, w)], rects, pads, canvas or (h, w), np.eye(3))


def smooth(rng: np.random.Generator, h: int, w: int) -> np.ndarray:
    """A photo-like picture."""
    return paint(rng, h, w)


def render(first: Layer, second: Layer | None = None, out_hw=(SIDE, SIDE), **options) -> np.ndarray:
    """Run the kernel; (3, H, W) uint8. The output buffer holds rubbish before."""
    args = dict(ratio=1.0, hue=HUE_OFF, gains=(0.0, 0.0, 0.0), flipud=False, fliplr=False, bgr=True)
    args.update(options)
    layers = [first, second or first]
    blank = np.zeros((1, 1), np.uint32)
    packed = [(*map(warp.pack, x.tiles), *[blank] * (4 - len(x.tiles))) for x in layers]
    longest = max(max(t.shape[:2]) for x in layers for t in x.tiles)
    dst = np.random.default_rng(9).integers(0, 256, (3, *out_hw), dtype=np.uint8)
    scratch = make_scratch(out_hw[1], longest)
    scratch[:] = 0xDEADBEEF  # an index read before it was written goes far out of bounds
    render_sample(
        dst,
        *packed,
        np.stack([x.rects for x in layers]),
        np.stack([x.pads for x in layers]),
        np.array([len(first.tiles), len(second.tiles) if second else 0]),
        np.stack([x.inverse for x in layers]),
        float(args["ratio"]),
        args["hue"],
        np.array(args["gains"], np.float64),
        args["flipud"],
        args["fliplr"],
        args["bgr"],
        scratch,
    )
    return dst


def reference(layer: Layer, out_hw=(SIDE, SIDE)) -> np.ndarray:
    """(H, W, 3) float64 BGR by the twin."""
    return warp.layer(layer.tiles, layer.rects, layer.pads, layer.inverse, out_hw)
