"""A labelled image set: what the loader reads from, with the attributes that training code touches."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastyolo_data.assemble import BatchJob, BatchMemory
from fastyolo_data.augment import Renderer, SampleContext, TilePool, instance_rules, usable_hyp
from fastyolo_data.caching import Tiles
from fastyolo_data.config import LoaderConfig, check_weights
from fastyolo_data.datatypes import DataSpec, F32Array, LabelTable, U8Image
from fastyolo_data.decode import probe_with_remark
from fastyolo_data.errors import ConfigError
from fastyolo_data.hyp import Hyp
from fastyolo_data.kernels import jpeg
from fastyolo_data.labels import class_balanced_weights, label_path, load_labels, resolve_data
from fastyolo_data.messages import show_messages
from fastyolo_data.plan import EpochOrder, SamplePlanner, batch_shapes, plan_order, rect_order, share_size, tile_shape
from fastyolo_data.store import TileStore

__all__ = ["DataInput", "LabelledImages", "read_split"]

DataInput = str | Path | Mapping[str, Any] | Sequence[str | Path]

# Tiles that mosaic partners come from under mosaic_pool="recent": as many as in a stock Ultralytics worker's buffer.
POOL_BATCHES = 8
POOL_MAX = 1000


def read_split(data: DataInput, config: LoaderConfig) -> tuple[LabelTable, DataSpec]:
    """Find the images of a split and read their labels, from the label cache where nothing changed.

    Raises:
        ConfigError: `data` or a file that it names is unusable, or there is nothing to load.
    """
    if config.verbose:
        show_messages()
    spec = resolve_data(data, config.split)
    api = jpeg.load()
    table = load_labels(
        spec,
        probe=lambda path: probe_with_remark(path, api),
        task=config.task,
        single_cls=config.single_cls,
        classes=config.classes,
        fraction=config.fraction,
        cache_dir=config.cache_dir,
        rescan=config.rescan,
        verbose=config.verbose,
        augment=config.augment,
        prefix=config.prefix,
    )
    if config.min_items:
        table = table.take(np.flatnonzero(np.diff(table.box_offsets) >= config.min_items))
        if not len(table):
            raise ConfigError(f"{config.prefix}no image has min_items={config.min_items} labels or more; lower it")
    return table, spec


class LabelledImages:
    """Images and labels of one split, augmented on access.

    Labels and sizes are read-only; `indices`, `mosaic` and `image_weights` may be assigned and take effect from the
    next epoch on.

    Attributes:
        im_files: path of every image.
        names: class names.
        skipped: path -> reason, for files that were left out.
        batch_shapes: (batches, 2) height and width of rect batches, else None.
        batch: (n,) batch number of each image, in file order.
    """

    def __init__(self, table: LabelTable, spec: DataSpec, config: LoaderConfig) -> None:
        if config.augment:
            config = replace(config, hyp=usable_hyp(config.hyp, config.task, spec, say=True))
        self.config = config
        self._spec = spec
        self.dialect = config.rules
        self.rules = instance_rules(self.dialect, config.task, config.hyp, spec)
        if config.rect:
            table = table.take(rect_order(table.hw))
        self.table = table
        self.names = spec.names
        self.skipped = table.skipped
        self.imgsz = self.img_size = config.imgsz
        self.stride = config.stride
        self.augment = config.augment
        self.rect = config.rect
        self.batch_shapes = None
        if config.rect:
            self.batch_shapes = batch_shapes(table.hw, config.batch, config.imgsz, config.stride, config.pad)
        self.batch = np.arange(len(table)) // config.batch
        self.tile_hw = tile_shape(table.hw, config.imgsz, self.dialect)
        self.tiles = Tiles(table, self.tile_hw, spec, config, self.dialect)
        self._refuse_unbuilt()
        self._mosaic = config.augment and not config.rect
        self._pasting = True
        self._indices: npt.NDArray[np.int64] | None = None
        self._weights: npt.NDArray[np.float64] | None = None
        self._version = 0
        if config.image_weights is not None:
            self.image_weights = config.image_weights
        self._lock = threading.Lock()
        self._lists: dict[str, Any] = {}
        self._single: tuple[SampleContext, Renderer] | None = None
        self._asked: dict[int, int] = {}

    def _refuse_unbuilt(self) -> None:
        if self.config.quad and self.config.task != "detect":
            raise ConfigError(
                f"quad=True with task={self.config.task!r}: quad batches are for boxes only; switch it off"
            )

    # ---- what training code reads ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.table)

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.table)

    @property
    def hyp(self) -> Hyp:
        """Augmentation hyper-parameters in force."""
        return self.config.hyp

    @property
    def im_files(self) -> list[str]:
        """Path of every image, as given by the user."""
        return self._list("im_files", lambda: list(self.table.im_files))

    @property
    def label_files(self) -> list[str]:
        """Path of every image's label file, whether it exists or not."""
        return self._list("label_files", lambda: [label_path(f) for f in self.table.im_files])

    @property
    def labels(self) -> list[F32Array]:
        """(n_i, 5) float32 `cls xywhn` of every image; the caller's copies."""
        return self._list("labels", lambda: [self.table.boxes_of(i) for i in range(len(self))])

    @property
    def segments(self) -> list[list[F32Array]]:
        """Normalised polygons of every image, one (k, 2) array per box; empty lists where there are none."""
        return self._list("segments", lambda: [self.table.segments_of(i) for i in range(len(self))])

    @property
    def keypoints(self) -> F32Array:
        """(boxes, K, 3) float32 of the whole split, in label order."""
        return self.table.keypoints

    @property
    def shapes(self) -> npt.NDArray[np.int64]:
        """(n, 2) original width and height."""
        return self.table.hw[:, ::-1].astype(np.int64)

    def _list(self, name: str, make: Any) -> Any:
        """Materialise a per-image list when it is first asked for; most runs never need it."""
        if name not in self._lists:
            self._lists[name] = make()
        return self._lists[name]

    def load_image(self, i: int) -> tuple[U8Image, tuple[int, int], tuple[int, int]]:
        """Load image i at training size.

        Returns:
            (h, w, 3) uint8 BGR, the caller's own; original (h0, w0); (h, w).

        Raises:
            ImageDecodeError: the file is broken or was changed.
        """
        im = self.tiles.image(i)
        return im, (int(self.table.hw[i, 0]), int(self.table.hw[i, 1])), im.shape[:2]

    # ---- what may be assigned ----------------------------------------------------------------------------------------

    @property
    def mosaic(self) -> bool:
        """Whether mosaic (and mixup) may be used; close_mosaic sets it to False."""
        return self._mosaic

    @mosaic.setter
    def mosaic(self, value: bool) -> None:
        self._mosaic = bool(value) and self.augment and not self.rect
        self._pasting = bool(value)
        self._version += 1

    def close_mosaic(self, hyp: object = None) -> None:
        """Switch mosaic and mixup off from the next epoch on (`hyp` is accepted as Ultralytics passes it)."""
        self.mosaic = False

    def set_hyp(self, hyp: Hyp) -> None:
        """Change the augmentation from the next epoch on; the form of masks stays."""
        self.config = replace(self.config, hyp=usable_hyp(hyp, self.config.task, self._spec, say=False))
        self._version += 1

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """Image at each position of an epoch, before shuffling. Assign any sequence of image numbers."""
        return np.arange(len(self)) if self._indices is None else self._indices

    @indices.setter
    def indices(self, value: Sequence[int] | npt.NDArray[np.integer]) -> None:
        indices = np.asarray(value, np.int64)
        if indices.ndim != 1 or not len(indices) or indices.min() < 0 or indices.max() >= len(self):
            raise ConfigError(
                f"indices of shape {indices.shape}: expected a non-empty list of image numbers, 0 to {len(self) - 1}"
            )
        if self.rect:
            raise ConfigError("indices cannot be changed with rect=True: batches have their own shapes")
        self._indices = indices.copy()
        self._version += 1

    @property
    def image_weights(self) -> npt.NDArray[np.float64] | None:
        """(n,) weights that images are drawn with, with replacement, or None: every image once.

        "balanced" may be assigned too, and makes weights from the labels.
        """
        return self._weights

    @image_weights.setter
    def image_weights(self, value: npt.ArrayLike | str | None) -> None:
        weights = check_weights(value)
        if isinstance(weights, str):
            weights = class_balanced_weights(self.table)
        if weights is not None and len(weights) != len(self):
            raise ConfigError(f"image_weights has {len(weights)} numbers for {len(self)} images; give one per image")
        self._weights = None if weights is None else weights.copy()
        self._version += 1

    # ---- what the loader uses ----------------------------------------------------------------------------------------

    @property
    def plan_token(self) -> tuple[int, ...]:
        """Changes whenever something that plans depend on was assigned."""
        return (self._version,)

    @property
    def samples(self) -> int:
        """Samples of one epoch for this rank."""
        c = self.config
        n = len(self) if self._indices is None else len(self._indices)
        return share_size(n, c.batch, c.rank, c.world_size, c.augment and not c.rect)

    def order(self, epoch: int) -> EpochOrder:
        """Images of one epoch for this rank."""
        c = self.config
        weights = self._weights if self._weights is None or self._indices is None else self._weights[self._indices]
        return plan_order(
            len(self),
            seed=c.seed,
            epoch=epoch,
            shuffle=c.shuffle,
            batch=c.batch,
            rank=c.rank,
            world_size=c.world_size,
            pad_ranks=c.augment and not c.rect,
            indices=self._indices,
            weights=weights,
        )

    def planner(self) -> SamplePlanner:
        """Planner for the present state of the data set."""
        c = self.config
        return SamplePlanner(
            tile_hw=self.tile_hw,
            imgsz=c.imgsz,
            hyp=c.hyp,
            dialect=self.dialect,
            seed=c.seed,
            augment=c.augment,
            mosaic=self._mosaic,
            recent=self._pool_size if c.mosaic_pool == "recent" else 0,
            shapes=self.batch_shapes,
            pasting=self._pasting and self.table.has_polygons,
        )

    @property
    def _pool_size(self) -> int:
        return min(len(self), POOL_BATCHES * self.config.batch, POOL_MAX)

    def context(self, store: TileStore | None = None) -> SampleContext:
        """What worker threads share; every call makes a new tile pool.

        Args:
            store: tiles; default: the configured cache, which the caller must give back by `tiles.release()`.
        """
        exact = self.config.numerics == "exact"
        pool = None
        if self.augment:
            # Workers are up to a few samples apart, so a tile can be wanted a little after its window has closed.
            pool = TilePool(self._pool_size + self.config.workers, int(self.tile_hw.prod(1).max()))
        canvas = 2 * self.imgsz if self.augment and (self.dialect.mosaic9 or self.hyp.copy_paste) else 0
        rows = int(
            max(self.tile_hw.max(), self.imgsz, canvas, 0 if self.batch_shapes is None else self.batch_shapes.max())
        )
        return SampleContext(self.table, store or self.tiles.acquire(), pool, self.rules, exact, rows)

    # ---- single samples ----------------------------------------------------------------------------------------------

    def __getitem__(self, i: int) -> Any:
        """Make one sample, in the form of the dialect's stock data set; asking again gives the next augmentation.

        Returns:
            Ultralytics: dict with img (3, H, W) uint8, cls (k, 1), bboxes (k, 4), batch_idx (k,), the meta keys, and
            what the task adds: masks and sem_masks, keypoints, or (k, 5) bboxes.
            YOLOv5/7/9: (img, labels (k, 6) with an empty first column, path, shapes), and masks last.
        """
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"image {i} of {n}")
        i %= n
        with self._lock:
            if self._single is None:
                context = self.context(self.tiles.peek())
                self._single = context, Renderer(context)
            context, renderer = self._single
            job = BatchJob(self._plan_single(i), context, BatchMemory(False, 0), None)
            job.run(0, renderer)
        batch = job.finish()
        if isinstance(batch, dict):
            one_each = ("img", "im_file", "ori_shape", "ratio_pad", "resized_shape", "sem_masks")
            return {k: v[0] if k in one_each else v for k, v in batch.items()}
        images, targets, paths, shapes, *masks = batch
        return images[0], targets, paths[0], shapes[0], *masks

    def __getstate__(self) -> dict[str, Any]:
        """Everything but locks and open stores, so that spawned workers of other loaders can have the data set."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_single", "_lists")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _single=None, _lists={})

    def _plan_single(self, i: int) -> Any:
        repeat = self._asked.get(i, 0)
        self._asked[i] = repeat + 1
        order = EpochOrder(np.arange(len(self)), np.array([i]), np.array([repeat]), self.batch[i : i + 1])
        return replace(self.planner(), recent=0).plan(order, 0, 0, 1)
