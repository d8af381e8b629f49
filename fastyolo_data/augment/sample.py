"""Carrying out plans: pixels into the batch image, label rows into the batch's columns."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.augment.exact import render_exact
from fastyolo_data.augment.pool import PackedTile, TilePool
from fastyolo_data.datatypes import LabelTable, U8Image
from fastyolo_data.hyp import Dialect
from fastyolo_data.kernels.boxes import POLYGON_INSIDE, POLYGON_VISIBLE, finish_boxes, letterbox_boxes, warp_boxes
from fastyolo_data.kernels.pack import pack_image
from fastyolo_data.kernels.warp import HUE_ADDITIVE, HUE_MULTIPLICATIVE, HUE_OFF, make_scratch, render_sample
from fastyolo_data.plan import AugmentPlan, LetterboxPlan
from fastyolo_data.store import TileReader, TileStore

__all__ = ["LabelRows", "Renderer", "SampleContext"]

_NO_TILE = np.zeros((1, 1), np.uint32)


@dataclass(frozen=True)
class LabelRows:
    """Label columns of a batch while it is being made; each sample has a range of its own.

    Attributes:
        cls: (m,) float64; xywhn: (m, 4) float64.
        starts, stops: (B,) int64 rows of each sample; stops[i] is set when sample i is done.
    """

    cls: npt.NDArray[np.float64]
    xywhn: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]

    @classmethod
    def room_for(cls, plan: AugmentPlan | LetterboxPlan, table: LabelTable) -> LabelRows:
        """Allocate rows for every label of every tile of a plan."""
        counts = np.diff(table.box_offsets)
        if isinstance(plan, AugmentPlan):
            used = np.arange(4) < plan.counts[..., None]
            room = np.where(used, counts[plan.tiles], 0).sum((1, 2))
        else:
            room = counts[plan.index]
        ends = np.cumsum(room)
        total = int(ends[-1]) if len(ends) else 0
        return cls(np.empty(total), np.empty((total, 4)), ends - room, ends.copy())


class LoadTimer:
    """Counts tile loads and the seconds they took, over all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        """Count one load."""
        with self._lock:
            self.seconds += seconds
            self.count += 1


@dataclass(frozen=True)
class SampleContext:
    """What all workers share; nothing in it changes while they run.

    Attributes:
        table: labels.
        store: tiles.
        pool: tiles in use; None without augmentation.
        dialect: rules.
        exact: use the stock sequence of OpenCV calls instead of the fused kernel.
        row_pixels: the longest row of any tile or batch image, in pixels.
        timer: what loading costs.
    """

    table: LabelTable
    store: TileStore
    pool: TilePool | None
    dialect: Dialect
    exact: bool
    row_pixels: int
    timer: LoadTimer = field(default_factory=LoadTimer)


class Renderer:
    """Makes samples; one per worker thread, owns its scratch memory."""

    def __init__(self, context: SampleContext) -> None:
        table = context.table
        self._context = context
        self._reader: TileReader = context.store.reader()
        self._columns = tuple(
            _frozen(a) for a in (table.box_offsets, table.cls, table.xywhn, table.point_offsets, table.points)
        )
        longest = int(np.diff(table.point_offsets).max()) if table.has_polygons and len(table.cls) else 0
        self._points = np.empty((2, longest + 1002, 2))
        self._scratch = make_scratch(context.row_pixels, context.row_pixels)
        rule = context.dialect.visible_polygons
        self._polygon_rule = POLYGON_VISIBLE if rule else POLYGON_INSIDE
        # Boxes without their polygons, for dialects that use polygons in mosaics only.
        self._plain_columns = (*self._columns[:3], _frozen(np.empty(0, np.int64)), _frozen(table.points[:0]))

    def run(self, plan: AugmentPlan | LetterboxPlan, row: int, dst: U8Image, labels: LabelRows) -> None:
        """Make sample `row` of a plan.

        Args:
            dst: (3, H, W) uint8, the sample's place in the batch; fully overwritten.
            labels: its rows of this sample are filled and labels.stops[row] is set.

        Raises:
            ImageDecodeError: one of its images cannot be read.
        """
        if isinstance(plan, LetterboxPlan):
            self._letterbox(plan, row, dst, labels)
        else:
            self._augment(plan, row, dst, labels)

    def _load(self, index: int) -> U8Image:
        began = time.perf_counter()
        im = self._reader.tile(index)
        self._context.timer.add(time.perf_counter() - began)
        return im

    def _letterbox(self, plan: LetterboxPlan, row: int, dst: U8Image, labels: LabelRows) -> None:
        index, box = int(plan.index[row]), plan.box
        im = self._load(index)
        h, w = int(box.new_hw[row, 0]), int(box.new_hw[row, 1])
        if im.shape[:2] != (h, w):
            im = cv2.resize(im, (w, h), interpolation=cv2.INTER_LINEAR)
        pack_image(_frozen(im), dst, int(box.top[row]), int(box.left[row]), 114, False)
        start = int(labels.starts[row])
        hw = plan.tile_hw[row].astype(np.float64)
        stop = letterbox_boxes(index, hw, box.ratio[row], box.pad[row], self._columns, labels.cls, labels.xywhn, start)
        out_hw = np.array(plan.out_hw, np.float64)
        finish_boxes(labels.xywhn, start, stop, out_hw, self._context.dialect.box_margin, False, False)
        labels.stops[row] = stop

    def _augment(self, plan: AugmentPlan, row: int, dst: U8Image, labels: LabelRows) -> None:
        pool, counts = self._context.pool, plan.counts[row]
        assert pool is not None, "augmentation needs a tile pool"
        used = np.arange(4) < counts[:, None]
        wanted = zip(plan.tiles[row][used].tolist(), plan.until[row][used].tolist(), strict=True)
        held: list[int] = []
        packed: list[PackedTile] = []
        try:
            for index, until in wanted:
                packed.append(pool.acquire(index, until, self._load))
                held.append(index)
            self._pixels(plan, row, packed, dst)
        finally:
            for index in held:
                pool.release(index)
        self._labels(plan, row, labels)

    def _pixels(self, plan: AugmentPlan, row: int, packed: list[PackedTile], dst: U8Image) -> None:
        if plan.resize_hw[row, 0]:
            packed = [_resize_packed(packed[0], plan.resize_hw[row])]
        first = int(plan.counts[row, 0])
        if self._context.exact:
            images = [_unpack(tile) for tile in packed]
            layers = [images[:first], images[first:]] if len(images) > first else [images]
            dst[...] = render_exact(plan, row, layers, self._context.dialect.additive_hue)
            return
        hue = HUE_OFF
        if plan.hsv_active:
            hue = HUE_ADDITIVE if self._context.dialect.additive_hue else HUE_MULTIPLICATIVE
        padded = [*packed[:first], *[_NO_TILE] * (4 - first), *packed[first:]]
        padded += [_NO_TILE] * (8 - len(padded))
        render_sample(
            dst,
            tuple(padded[:4]),
            tuple(padded[4:]),
            plan.rects[row],
            plan.pads[row],
            plan.counts[row],
            plan.inverse[row],
            plan.ratio[row],
            hue,
            plan.hsv[row],
            plan.flipud[row],
            plan.fliplr[row],
            plan.bgr[row],
            self._scratch,
        )

    def _labels(self, plan: AugmentPlan, row: int, labels: LabelRows) -> None:
        start = stop = int(labels.starts[row])
        out_hw = np.array(plan.out_hw, np.float64)
        dialect = self._context.dialect
        for k in range(2):
            count = int(plan.counts[row, k])
            if count == 0:
                break
            mosaic = count == 4
            polygons = mosaic or dialect.polygons_without_mosaic
            stop = warp_boxes(
                plan.tiles[row, k],
                count,
                plan.label_hw[row, k],
                plan.label_pads[row, k],
                self._columns if polygons else self._plain_columns,
                plan.canvas[row, k],
                mosaic,
                plan.matrix[row, k],
                plan.scale[row, k],
                out_hw,
                self._polygon_rule,
                dialect.max_aspect,
                self._points,
                labels.cls,
                labels.xywhn,
                stop,
            )
        flipud, fliplr = plan.flipud[row], plan.fliplr[row]
        finish_boxes(labels.xywhn, start, stop, out_hw, dialect.box_margin, flipud, fliplr)
        labels.stops[row] = stop


def _frozen(array: npt.NDArray) -> npt.NDArray:
    """A read-only view: numba compiles a kernel anew for writable arrays, and tables can be either."""
    view = array.view()
    view.flags.writeable = False
    return view


def _unpack(tile: PackedTile) -> U8Image:
    h, w = tile.shape
    return cv2.cvtColor(tile.view(np.uint8).reshape(h, w, 4), cv2.COLOR_BGRA2BGR)


def _resize_packed(tile: PackedTile, hw: npt.NDArray[np.int64]) -> PackedTile:
    """Resize as the stock letterbox does; OpenCV treats channels alike, so the fourth does not matter."""
    h, w = tile.shape
    size = (int(hw[1]), int(hw[0]))
    out = cv2.resize(tile.view(np.uint8).reshape(h, w, 4), size, interpolation=cv2.INTER_LINEAR)
    return out.view(np.uint32)[..., 0]
