"""YOLOv7's paste_in: objects cut out of other mosaics, resized and pasted on the finished picture.

Everything but the pixels follows from labels and plan, so only the pictures are decoded from which something is pasted.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.instances import InstanceRules, Instances, concat, place_layer
from fastyolo_data.augment.pool import PackedTile
from fastyolo_data.datatypes import LabelTable, U8Image
from fastyolo_data.kernels.paste import LIMIT, covered_share
from fastyolo_data.plan import SOURCES, AugmentPlan, paste_order

__all__ = ["Insert", "insert_objects", "paste_in"]

ENOUGH = 30  # objects; further mosaics are not looked at
SHARE = 0.5  # of a mosaic's objects that are cut out
LEAST_SPOT, LEAST_SIDE, LEAST_MASK = 20, 10, 20  # pixels that spot, pasted object and its mask have to exceed


@dataclass(frozen=True)
class Insert:
    """An object to paste.

    Attributes:
        layer, tile: where its pixels come from.
        box: x0 y0 x1 y1 on the canvas of the layer.
        outline: (h, w) uint8, 255 inside the object, h and w those of the box.
        x, y: place on the picture.
        mask: (h', w') bool pixels that are pasted.
    """

    layer: int
    tile: int
    box: tuple[int, int, int, int]
    outline: npt.NDArray[np.uint8]
    x: int
    y: int
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Object:
    layer: int
    cls: float
    box: tuple[int, int, int, int]
    polygon: npt.NDArray[np.int32]


def paste_in(
    labels: Instances, plan: AugmentPlan, row: int, table: LabelTable, rules: InstanceRules
) -> tuple[Instances, tuple[Insert, ...]]:
    """Choose objects and places; add their labels (boxes without polygons).

    Args:
        labels: of the sample, in pixels of the picture, before the flips.

    Source: pastein, load_samples and sample_segments of yolov7 (utils/datasets.py). There, mosaics are added until
    there are enough objects; here at most the planned ones.
    """
    objects = _collect(plan, row, table, rules)
    boxes = np.empty((len(labels) + plan.spots.shape[1], 4))
    boxes[: len(labels)] = labels.xyxy
    n, found, cls = len(labels), [], []
    share = np.empty(1)
    for spot, pick in zip(plan.spots[row], plan.spot_pick[row], strict=True):
        x0, y0, x1, y1 = spot.tolist()
        covered_share(spot[None].astype(np.float64), boxes[:n], share)
        if not objects or share[0] >= LIMIT or x1 <= x0 + LEAST_SPOT or y1 <= y0 + LEAST_SPOT:
            continue
        source = objects[int(pick * len(objects))]
        insert = _fit(source, plan, row, (x0, y0, x1, y1))
        if insert is not None:
            found.append(insert)
            cls.append(source.cls)
            boxes[n] = x0, y0, x0 + insert.mask.shape[1], y0 + insert.mask.shape[0]
            n += 1
    if not found:
        return labels, ()
    added = Instances.room(len(found), 0, 0)
    added.cls[:], added.xyxy[:], added.offsets[:] = cls, boxes[len(labels) : n], 0
    return concat([labels, added]), tuple(found)


def _collect(plan: AugmentPlan, row: int, table: LabelTable, rules: InstanceRules) -> list[_Object]:
    """Objects of the source mosaics, until there are enough; none at all when the first mosaic has none."""
    objects: list[_Object] = []
    for k in range(SOURCES, plan.counts.shape[1]):
        placed = place_layer(plan, row, k, table, rules)
        candidates = np.flatnonzero(np.diff(placed.offsets))
        order = paste_order(plan.paste_key[row, k], len(candidates))
        height, width = plan.canvas[row, k].astype(int)
        # Rounded to float32 as in the stock code, or an edge on a whole pixel could be cut off one pixel away.
        boxes = np.minimum(placed.xyxy.astype(np.float32).astype(int), (width - 1, height - 1) * 2)
        for j in candidates[order][: round(SHARE * len(candidates))]:
            x0, y0, x1, y1 = boxes[j].tolist()
            if x1 > x0 and y1 > y0:
                polygon = placed.points[placed.offsets[j] : placed.offsets[j + 1]].astype(np.int32)
                objects.append(_Object(k, placed.cls[j], (x0, y0, x1, y1), polygon))
        if not objects or len(objects) >= ENOUGH:
            break
    return objects


def _fit(source: _Object, plan: AugmentPlan, row: int, spot: tuple[int, int, int, int]) -> Insert | None:
    """Resize an object into a spot, keeping its proportions; None when too little is left of it."""
    x0, y0, x1, y1 = source.box
    h, w = y1 - y0, x1 - x0
    ratio = min((spot[3] - spot[1]) / h, (spot[2] - spot[0]) / w)
    size = int(w * ratio), int(h * ratio)
    if min(size) <= LEAST_SIDE:
        return None
    outline = _outline(source, plan.canvas[row, source.layer].astype(int).tolist())
    mask = cv2.resize(outline, size) > 0
    if mask.sum() <= LEAST_MASK:
        return None
    # Tiles of a mosaic of four meet where the last one begins.
    xc, yc = plan.rects[row, source.layer, 3, :2]
    tile = int(x0 + x1 > 2 * xc) + 2 * int(y0 + y1 > 2 * yc)
    return Insert(source.layer, tile, source.box, outline, spot[0], spot[1], mask)


def _outline(source: _Object, canvas_hw: list[int]) -> npt.NDArray[np.uint8]:
    """The object filled with 255, as large as its box; drawn whole, as OpenCV draws lines differently that leave."""
    x0, y0, x1, y1 = source.box
    left, top = np.minimum(source.polygon.min(0), (x0, y0)).tolist()
    right, low = np.minimum(np.maximum(source.polygon.max(0) + 1, (x1, y1)), canvas_hw[::-1]).tolist()
    out = np.zeros((low - top, right - left), np.uint8)
    cv2.drawContours(out, [source.polygon], -1, 255, cv2.FILLED, offset=(-left, -top))
    return np.ascontiguousarray(out[y0 - top : y1 - top, x0 - left : x1 - left])


def insert_objects(
    inserts: tuple[Insert, ...],
    tiles: dict[tuple[int, int], PackedTile],
    plan: AugmentPlan,
    row: int,
    dst: U8Image,
) -> None:
    """Paste objects on a finished picture, which may be flipped already.

    Args:
        tiles: (layer, tile) -> its pixels, for every insert.
        dst: (3, H, W) uint8, changed in place.
    """
    upright = dst[:: 1 if plan.bgr[row] else -1, :: -1 if plan.flipud[row] else 1, :: -1 if plan.fliplr[row] else 1]
    for item in inserts:
        cut = _cut_out(item, tiles[item.layer, item.tile], plan.pads[row, item.layer, item.tile])
        h, w = item.mask.shape
        pixels = cv2.resize(cut, (w, h))
        for channel in range(3):
            place = upright[channel, item.y : item.y + h, item.x : item.x + w]
            np.copyto(place, pixels[..., channel], where=item.mask)


def _cut_out(item: Insert, tile: PackedTile, pad: npt.NDArray[np.float64]) -> U8Image:
    """An object on black, (h, w, 3) BGR."""
    x0, y0, x1, y1 = item.box
    left, top = int(pad[0]), int(pad[1])
    h, w = tile.shape
    out = np.zeros((y1 - y0, x1 - x0), np.uint32)
    xa, ya, xb, yb = max(x0, left), max(y0, top), min(x1, left + w), min(y1, top + h)
    if xa < xb and ya < yb:
        out[ya - y0 : yb - y0, xa - x0 : xb - x0] = tile[ya - top : yb - top, xa - left : xb - left]
    out[item.outline == 0] = 0
    return cv2.cvtColor(out.view(np.uint8).reshape(*out.shape, 4), cv2.COLOR_BGRA2BGR)
