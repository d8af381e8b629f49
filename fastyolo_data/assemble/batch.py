"""One batch: its samples' places, and the form in which the training code receives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastyolo_data.assemble.buffers import BatchMemory
from fastyolo_data.assemble.quad import join_quads
from fastyolo_data.augment import Renderer, SampleContext, Targets, collect_targets, make_labels
from fastyolo_data.errors import FastYoloError
from fastyolo_data.plan import AugmentPlan, LetterboxPlan

__all__ = ["BatchJob", "DeviceBatch", "Uploader"]

Plan = AugmentPlan | LetterboxPlan
Quads = npt.NDArray[np.bool_] | None
Batch = dict[str, Any] | tuple[Any, ...]


@dataclass(frozen=True)
class DeviceBatch:
    """A batch whose copy to the device is under way; usable on a stream after that stream waited for `event`."""

    batch: Batch
    event: torch.cuda.Event


class Uploader:
    """Copies finished batches to a CUDA device on a stream of its own, ahead of the consumer."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def upload(self, batch: Batch) -> DeviceBatch:
        """Start copying every tensor of a batch; the host memory is kept until the copy has read it."""
        with torch.cuda.stream(self._stream):
            moved = _map_tensors(batch, lambda t: t.to(self._device, non_blocking=True))
            event = torch.cuda.Event()
            event.record(self._stream)
        return DeviceBatch(moved, event)

    def receive(self, item: DeviceBatch) -> Batch:
        """Make the current stream wait for a batch and own it."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(item.event)
        _map_tensors(item.batch, lambda t: t.record_stream(current))
        return item.batch


def _map_tensors(batch: Batch, fn: Any) -> Batch:
    if isinstance(batch, dict):
        return {k: fn(v) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
    return tuple(fn(v) if isinstance(v, torch.Tensor) else v for v in batch)  # type: ignore[return-value]


class BatchJob:
    """A batch in the making; see engine.Job.

    Args:
        plan: what every sample is.
        context: labels, tiles and rules.
        memory: where the pixels go.
        uploader: copies the finished batch to a device; None leaves it on the host.
        quads: from plan_quads: samples are joined four by four; None: not.
    """

    def __init__(
        self, plan: Plan, context: SampleContext, memory: BatchMemory, uploader: Uploader | None, quads: Quads = None
    ) -> None:
        self.rows = len(plan)
        self._plan = plan
        self._context = context
        self._memory = memory
        self._uploader = uploader
        self._quads = quads
        self._targets: list[Targets | None] = [None] * self.rows
        # A consumer inside torch.inference_mode() must get ordinary tensors; without workers this is its thread.
        with torch.inference_mode(False):
            self._pixels, self._images = memory.take((self.rows, 3, *plan.out_hw))

    def run(self, row: int, renderer: Renderer) -> None:
        """Make one sample.

        Raises:
            FastYoloError: with the sample's index and file in front of what went wrong.
        """
        try:
            self._targets[row] = renderer.run(self._plan, row, self._pixels[row])
        except Exception as error:
            index = int(self._plan.index[row])
            kind = type(error) if isinstance(error, FastYoloError) else FastYoloError
            text = str(error) if isinstance(error, FastYoloError) else f"{type(error).__name__}: {error}"
            raise kind(f"sample {index} ({self._context.table.im_files[index]}): {text}") from error

    def finish(self) -> Batch | DeviceBatch:
        """Collect the labels and hand the batch over in the dialect's form."""
        with torch.inference_mode(False):
            batch = self._as_dict() if self._context.dialect.batch_dict else self._as_tuple()
            if self._quads is not None:
                batch = join_quads(batch, self._quads)
            return batch if self._uploader is None else self._uploader.upload(batch)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Targets of all samples, see collect_targets."""
        made = [t for t in self._targets if t is not None]
        if made:
            return collect_targets(made)
        labels = make_labels(self._plan, self._context.table, self._context.dialect)
        return dict(zip(("batch_idx", "cls", "bboxes"), labels, strict=True))

    def _as_dict(self) -> dict[str, Any]:
        """Batch of Ultralytics (collate_fn of ultralytics 8.4.190 data/dataset.py)."""
        plan, table = self._plan, self._context.table
        hw0 = [(int(h), int(w)) for h, w in table.hw[plan.index]]
        gains = [(h / h0, w / w0) for (h0, w0), (h, w) in zip(hw0, _tile_hw(plan).tolist(), strict=True)]
        ratio_pad: list[Any] = gains
        if isinstance(plan, LetterboxPlan):
            box = plan.box
            ratio_pad = [
                ((gh * r, gw * r), (int(left), int(top)))
                for (gh, gw), r, left, top in zip(gains, box.ratio.tolist(), box.left, box.top, strict=True)
            ]
        batch = {
            **{name: self._memory.label(array) for name, array in self._arrays().items()},
            "im_file": tuple(table.im_files[int(i)] for i in plan.index),
            "img": self._images,
            "ori_shape": tuple(hw0),
            "ratio_pad": tuple(ratio_pad),
            "resized_shape": (plan.out_hw,) * self.rows,
        }
        return dict(sorted(batch.items()))

    def _as_tuple(self) -> tuple[Any, ...]:
        """Batch of YOLOv5/7/9 (collate_fn of yolov5 7.0 utils/dataloaders.py and utils/segment/dataloaders.py)."""
        plan, table = self._plan, self._context.table
        arrays = self._arrays()
        targets = np.concatenate((arrays["batch_idx"][:, None], arrays["cls"], arrays["bboxes"]), 1)
        pads = plan.box.pad if isinstance(plan, LetterboxPlan) else plan.label_pads[:, 0, 0]
        shapes: list[Any] = []
        for row, index in enumerate(plan.index):
            if isinstance(plan, AugmentPlan) and plan.counts[row, 0] > 1:
                shapes.append(None)
                continue
            h0, w0 = (int(v) for v in table.hw[index])
            h, w = _tile_hw(plan)[row].tolist()
            shapes.append(((h0, w0), ((h / h0, w / w0), (float(pads[row, 0]), float(pads[row, 1])))))
        files = tuple(table.im_files[int(i)] for i in plan.index)
        masks = (self._memory.label(arrays["masks"]),) if "masks" in arrays else ()
        return self._images, self._memory.label(targets), files, tuple(shapes), *masks


def _tile_hw(plan: Plan) -> np.ndarray:
    """(B, 2) tile height and width of each sample's own image."""
    if isinstance(plan, LetterboxPlan):
        return plan.tile_hw
    # Dialects that shuffle the places of a mosaic report no shapes for it, so place 0 is the own image otherwise.
    return plan.tile_hw[:, 0, 0]
