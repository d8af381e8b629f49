"""The public loader: build_loader, build_dataset, FastLoader."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastyolo_data.assemble import BatchJob, BatchMemory, DeviceBatch, Engine, Uploader, compile_kernels
from fastyolo_data.augment import Renderer, SampleContext
from fastyolo_data.config import LoaderConfig
from fastyolo_data.dataset import DataInput, LabelledImages, read_split
from fastyolo_data.dropin import LoadImagesAndLabels
from fastyolo_data.errors import ConfigError, FastYoloError
from fastyolo_data.hyp import Hyp
from fastyolo_data.kernels import jpeg
from fastyolo_data.plan import EpochOrder, plan_quads

__all__ = ["FastLoader", "build_dataset", "build_loader"]


def build_loader(
    data: DataInput,
    *,
    split: str = "train",
    imgsz: int = 640,
    batch: int = 16,
    augment: bool | None = None,
    hyp: Hyp | Mapping[str, Any] | str | Path | None = None,
    cache: str | bool | None = "auto",
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    shuffle: bool | None = None,
    rect: bool = False,
    stride: int = 32,
    pad: float | None = None,
    seed: int = 0,
    rank: int | None = None,
    world_size: int | None = None,
    drop_last: bool = False,
    device: str | torch.device | None = None,
    task: str = "detect",
    dialect: str = "ultralytics",
    single_cls: bool = False,
    classes: Sequence[int] | None = None,
    fraction: float = 1.0,
    image_weights: npt.ArrayLike | str | None = None,
    mosaic_pool: str | None = None,
    numerics: str = "fast",
    prefetch: int | None = None,
    rescan: bool = False,
    verbose: bool = True,
) -> FastLoader:
    """Build a loader of training or validation batches from a YOLO data set.

    Args:
        data: a data.yaml, a dict of one, an image folder, a .txt list, or a list of those.
        split: which entry of the yaml: "train", "val", "test" or any other key.
        imgsz: side of the batch images in pixels, a multiple of stride.
        batch: images per batch (of this rank).
        augment: mosaic, warp, colour and flips; default: split == "train".
        hyp: augmentation hyper-parameters as a dict, a hyp yaml, a namespace or a Hyp; default: Hyp().
        cache: where decoded images are kept: "ram" (also True), "memmap" (also "disk": one mapped file), "lmdb", "none"
            (also None, False: every image is decoded every time), or "auto": measures, decides and says why. Changes
            the speed only, never a batch. The first use fills the cache.
        cache_dir: folder for caches, the label cache included; default: beside the data set, or the user's cache folder
            where that cannot be written to.
        workers: threads; default: the usable CPUs, at most 8. 0 makes batches in the calling thread.
        shuffle: new order every epoch; default: split == "train" and not rect.
        rect: batches of similar aspect ratio, padded as little as possible; no mosaic.
        stride: largest stride of the model.
        pad: slack of rect batches in strides; default 0 with augmentation, else 0.5.
        seed: decides order and augmentation together with the epoch. Nothing else does: not workers, prefetch or cache.
        rank, world_size: share of this process; default: torch.distributed's if it runs.
        drop_last: leave an incomplete last batch out.
        device: "cuda:0" and the like: batches are copied there ahead of time. Default: host memory, page-locked when
            CUDA is available.
        task: "detect"; with dialect="ultralytics" also "segment", "pose", "obb"; with "yolov5" and "yolov9" "segment".
        dialect: "ultralytics", "yolov5" or "yolov9": rounding, interpolation, colour formula, box filter, batch format.
        single_cls: every class becomes 0.
        classes: keep boxes of these classes only.
        fraction: share of the images to use, from the head of the sorted list.
        image_weights: (n,) weights: images are drawn with replacement. "balanced": every class equally often, by
            weights from the labels.
        mosaic_pool: where mosaic partners come from: "recent" (the last 8 * batch images of the epoch: one decode per
            image and epoch; default when shuffled) or "uniform" (any image).
        numerics: "fast" (fused kernels, about half a level from the stock pixels) or "exact" (the stock OpenCV calls).
        prefetch: batches made ahead; default 2.
        rescan: read all labels again, whatever the label cache says.
        verbose: progress bars and messages (label scan, cache decision) on stderr; with False, warnings only. A program
            that has set up logging gets the messages there instead, from the logger "fastyolo_data".

    Returns:
        A FastLoader. Batches are dicts (ultralytics) or tuples of 4, with masks 5 (the others); see
        docs/compatibility.md.

    Raises:
        ConfigError: an option or the data set is unusable; says what was found, what is allowed, what to do.
    """
    options = {k: v for k, v in locals().items() if k not in ("data", "device")}
    return FastLoader(_make_dataset(data, options), device=_device(device))


def build_dataset(data: DataInput, *, split: str = "train", **options: Any) -> LoadImagesAndLabels:
    """Build the data set of a loader without workers.

    Args:
        data, split: see build_loader.
        **options: any other option of build_loader except device.

    Raises:
        ConfigError: see build_loader.
    """
    known = {**_DEFAULTS, "split": split}
    for name in options:
        if name not in known:
            raise ConfigError(f"build_dataset has no option {name!r}; it takes {', '.join(sorted(known))}")
    return _make_dataset(data, {**known, **options})


_DEFAULTS = {k: v for k, v in (build_loader.__kwdefaults__ or {}).items() if k != "device"}


def _make_dataset(data: DataInput, options: dict[str, Any]) -> LoadImagesAndLabels:
    config = LoaderConfig.check(**options)
    return LoadImagesAndLabels.of(*read_split(data, config), config)


def _device(device: str | torch.device | None) -> torch.device | None:
    if device is None:
        return None
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError) as e:
        raise ConfigError(f"device={device!r}: expected None, 'cpu' or a CUDA device such as 'cuda:0'") from e
    if parsed.type == "cpu":
        return parsed
    if parsed.type != "cuda":
        raise ConfigError(f"device={device!r}: expected None, 'cpu' or a CUDA device; move batches yourself")
    if not torch.cuda.is_available() or (parsed.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={device!r}: PyTorch sees {torch.cuda.device_count()} CUDA devices here")
    return parsed if parsed.index is not None else torch.device("cuda", torch.cuda.current_device())


class _Stream:
    """The batches from one point on, epoch after epoch; what the engine plans from.

    Holds the data set but not the loader, so that a forgotten loader is collected and its threads end.
    """

    def __init__(
        self, dataset: LabelledImages, context: SampleContext, memory: BatchMemory, uploader: Uploader | None,
        epoch: int, batch: int, endless: bool,
    ) -> None:  # fmt: skip
        self.token = dataset.plan_token
        self.epoch = epoch
        self.first = batch
        self.endless = endless
        self._dataset = dataset
        self._context = context
        self._memory = memory
        self._uploader = uploader
        self._planner = dataset.planner()
        self._order: tuple[int, EpochOrder] | None = None
        self.batches = count_batches(dataset.samples, dataset.config)

    def _epoch_order(self, epoch: int) -> EpochOrder:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._dataset.order(epoch)
        return self._order[1]

    def plan(self, sequence: int) -> BatchJob | None:
        """Plan the batch at `sequence`, counted from the stream's start."""
        position = self.first + sequence
        if self.batches == 0 or (position >= self.batches and not self.endless):
            return None
        epoch, number = self.epoch + position // self.batches, position % self.batches
        order = self._epoch_order(epoch)
        config = self._dataset.config
        size = config.batch
        start, stop = number * size, min((number + 1) * size, len(order.mine))
        plan = self._planner.plan(order, epoch, start, stop)
        quads = plan_quads(order, config.seed, epoch, start, stop) if config.quad else None
        return BatchJob(plan, self._context, self._memory, self._uploader, quads)


def count_batches(samples: int, config: LoaderConfig) -> int:
    """Batches of one epoch."""
    return samples // config.batch if config.drop_last else -(-samples // config.batch)


class _Sampler:
    """The order of this rank's samples, as DistributedSampler offers it to training code."""

    def __init__(self, dataset: LabelledImages) -> None:
        self._dataset = dataset
        self.epoch: int | None = None

    def __len__(self) -> int:
        return self._dataset.samples

    def __iter__(self) -> Iterator[int]:
        return iter(self._dataset.order(self.epoch or 0).mine.tolist())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.epoch = int(epoch)


class FastLoader:
    """Iterates over batches, made ahead of time by threads of this process.

    Works with `for`, `next(iter(loader))`, partial passes, several epochs, inside torch.inference_mode(), and beside
    other loaders. Every pass is one epoch: the first is epoch 0 unless set_epoch says otherwise, then 1, 2... A pass
    begins at its first `next`, not at `iter()`; beginning a new one ends an unfinished one. A batch belongs to whoever
    holds it: its memory is used again only when nothing refers to it any more.

    Args:
        dataset: from build_dataset.
        device: CUDA device that batches are copied to; None or cpu: none.
    """

    def __init__(self, dataset: LabelledImages, *, device: torch.device | None = None) -> None:
        hyp = dataset.hyp
        pasting = dataset.augment and max(hyp.copy_paste, hyp.cutmix, hyp.paste_in) > 0
        compile_kernels(jpeg.try_out, [dataset.config.task], pasting)
        config = dataset.config
        self.dataset = dataset
        self.batch_size = config.batch
        self.num_workers = config.workers
        self.drop_last = config.drop_last
        self.sampler = _Sampler(dataset)
        self.device = device
        self._epoch = 0  # of the next pass
        self._skip = 0  # batches of it that a restored state has already delivered
        self._delivered = 0  # batches of the present pass that the consumer got
        self._running: int | None = None  # epoch of the present pass
        self._pass = 0
        self._closed = False
        self._open()

    def _open(self) -> None:
        """Make threads and memory; again in a forked child, where the parent's threads do not exist."""
        config = self.dataset.config
        on_cuda = self.device is not None and self.device.type == "cuda"
        pinned = on_cuda or (self.device is None and torch.cuda.is_available())
        context = self.dataset.context()
        self._context = context
        self._memory = BatchMemory(pinned, config.prefetch + 2)
        self._uploader = Uploader(self.device) if on_cuda and self.device is not None else None
        self._engine = Engine(lambda: Renderer(context), config.workers, config.prefetch)
        self._stream: _Stream | None = None
        self._position = 0  # batches taken from the stream
        self._finalizer = weakref.finalize(self, self._engine.close, 0.0)
        self._finalizer.atexit = False  # the engine closes itself at exit, and waits for its threads

    def __len__(self) -> int:
        return count_batches(len(self.sampler), self.dataset.config)

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()

    def _iterate(self) -> Iterator[Any]:
        """One pass; nothing happens before its first batch is asked for."""
        mine = self._begin()
        while True:
            if mine != self._pass:
                raise FastYoloError("another pass over this loader was begun; a loader serves one pass at a time")
            if self._delivered >= self._stream.batches:
                break
            batch = self._engine.get()
            self._position += 1
            self._delivered += 1
            if self._delivered >= self._stream.batches:
                self._running = None
            yield self._uploader.receive(batch) if isinstance(batch, DeviceBatch) else batch
            batch = None  # while suspended in the next get, this frame must not keep the batch's memory

    def _begin(self) -> int:
        if self._closed:
            raise FastYoloError("this loader is closed; build a new one")
        if self._engine.forked:
            self._finalizer.detach()
            self._open()
        if self.sampler.epoch is not None:
            if self.sampler.epoch != self._epoch:
                self._skip = 0
            self._epoch, self.sampler.epoch = self.sampler.epoch, None
        self._pass += 1
        if not self._continues():
            self._restart()
        self._running, self._delivered = self._epoch, self._skip
        self._epoch, self._skip = self._epoch + 1, 0
        return self._pass

    def _continues(self) -> bool:
        """Whether the prefetched stream goes on exactly where the next pass begins."""
        stream = self._stream
        if stream is None or not stream.batches or not stream.endless or stream.token != self.dataset.plan_token:
            return False
        at = stream.first + self._position
        return (stream.epoch + at // stream.batches, at % stream.batches) == (self._epoch, self._skip)

    def _restart(self) -> None:
        self._stream = _Stream(
            self.dataset, self._context, self._memory, self._uploader, self._epoch, self._skip,
            endless=self.dataset.augment,
        )  # fmt: skip
        self._position = 0
        self._engine.start(self._stream.plan)

    # ---- control -----------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass: it decides order and augmentation, together with the seed."""
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or epoch < 0:
            raise ConfigError(f"set_epoch({epoch!r}): expected a whole number >= 0")
        self.sampler.set_epoch(int(epoch))

    def reset(self) -> None:
        """Throw prefetched batches away; the next pass is planned anew from the data set's present state."""
        self._pass += 1
        self._stream = None
        self._running = None

    def close(self) -> None:
        """Stop the threads and free the memory. The loader cannot be used afterwards; closing twice is fine."""
        closed, self._closed = self._closed, True
        self._pass += 1
        self._stream = None
        self._finalizer.detach()
        self._engine.close()
        if not closed:
            self.dataset.tiles.release()

    def __enter__(self) -> FastLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- resuming ----------------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        c = self.dataset.config
        files = hashlib.blake2b(self.dataset.table.im_files.blob.tobytes(), digest_size=8).hexdigest()
        return {
            "images": len(self.dataset), "files": files, "seed": c.seed, "batch_size": c.batch, "imgsz": c.imgsz,
            "world_size": c.world_size, "shuffle": c.shuffle, "dialect": c.dialect, "mosaic_pool": c.mosaic_pool,
        }  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is: epoch and batches of it already delivered, as plain numbers and texts."""
        if self.sampler.epoch is not None and self._running is None:
            epoch, batch = self.sampler.epoch, 0
        elif self._running is not None:
            epoch, batch = self._running, self._delivered
        else:
            epoch, batch = self._epoch, self._skip
        return {"version": 1, "epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where state_dict was taken: the next pass delivers exactly the remaining batches of that epoch.

        Raises:
            ConfigError: the state belongs to another data set or to other options.
        """
        expected = {"version": 1, **self._identity()}
        for key, value in expected.items():
            if state.get(key) != value:
                raise ConfigError(
                    f"state_dict has {key}={state.get(key)!r}, this loader has {value!r}; resume with the data set and "
                    "options that the state was saved with"
                )
        self.reset()
        self.sampler.epoch = None
        self._epoch, self._skip = int(state["epoch"]), int(state["batch"])

    def stats(self) -> dict[str, float]:
        """Counts and seconds since the loader was built.

        Returns:
            batches, samples: made so far. wait: seconds the consumer waited for batches. plan, render, finish: seconds
            that workers spent planning, making samples (loading included), and collecting batches, summed over
            threads. load: the part of render spent reading and decoding. loads: tiles loaded.
        """
        s = self._engine.stats
        timer = self._context.timer
        return {
            "batches": s.batches, "samples": s.samples, "wait": s.wait, "plan": s.plan, "render": s.render,
            "finish": s.finish, "load": timer.seconds, "loads": timer.count,
        }  # fmt: skip
