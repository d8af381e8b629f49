"""The data set that Ultralytics sees: its own class, with our labels, order and samples beneath."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ultralytics.data.augment import Albumentations
from ultralytics.data.dataset import YOLODataset

from fastyolo_data.config import LoaderConfig
from fastyolo_data.dataset import LabelledImages, read_split
from fastyolo_data.datatypes import LabelTable
from fastyolo_data.errors import ConfigError
from fastyolo_data.hyp import Hyp
from fastyolo_data.integrations.options import FastOptions
from fastyolo_data.integrations.ultralytics.reasons import changed_transform, describe, say_once
from fastyolo_data.plan import batch_shapes, rect_order

__all__ = ["FastYOLODataset"]


class FastYOLODataset(YOLODataset):
    """A YOLODataset whose labels our scanner read and whose samples our core makes.

    It stays a complete stock data set: when `transforms` or `labels` are edited, which we cannot honour, the stock
    methods make the samples (see why_stock). Everything Ultralytics reads is there; labels are copies, changed by
    update_labels.

    Args:
        config: checked options of the core; what only the loader knows is put in by `core`.
        options: ours; image_weights is used in training.
        *args, **kwargs: of YOLODataset.

    Raises:
        FileNotFoundError: the image path does not exist.
        ValueError: no labels, or labels that do not fit the task, as in the stock class.
    """

    def __init__(self, *args: Any, config: LoaderConfig, options: FastOptions, **kwargs: Any) -> None:
        self.options = options
        self._config = config
        self._in_rect_order = False
        self._edited = False
        self._single: LabelledImages | None = None
        self.labels_version = 0  # counts changes that need a new core
        super().__init__(*args, **kwargs)

    # ---- the steps of the stock constructor --------------------------------------------------------------------------

    def get_img_files(self, img_path: Any) -> list[str]:
        """Find the images and read their labels in one go; stock rules, our label cache."""
        for path in img_path if isinstance(img_path, (list, tuple)) else [img_path]:
            if not Path(path).exists():
                raise FileNotFoundError(f"{self.prefix}Error loading data from {img_path}: {path} does not exist")
        split = self._config.split
        self._table, self._spec = read_split({**self.data, split: img_path}, self._config)
        return list(self._table.im_files)

    def get_labels(self) -> list[dict[str, Any]]:
        """Return one stock label dict per image.

        Raises:
            ValueError: a box without polygon in a task that needs one for each.
        """
        boxes = len(self._table.cls)
        polygons = int(np.count_nonzero(np.diff(self._table.point_offsets)))
        if (self.use_segments or self.use_obb) and boxes != polygons:
            task, kind = ("OBB", "an OBB") if self.use_obb else ("Segment", "a segment")
            raise ValueError(
                f"{self.prefix}{task} dataset requires equal numbers of boxes and segments, but got {polygons} "
                f"segments and {boxes} boxes. Please supply {kind} dataset, not a detect dataset."
            )
        return self._label_dicts()

    def update_labels(self, include_class: list[int] | None) -> None:
        """Keep the labels of these classes only; images stay. None keeps all (single_cls is done when reading)."""
        if include_class is None:
            return
        self._table = self._table.keep(np.isin(self._table.cls, np.asarray(include_class, np.float32)))
        self.labels = self._label_dicts()
        self._changed()

    def set_rectangle(self) -> None:
        """Sort images by aspect ratio and set batch shapes, as the stock method does."""
        self._in_rect_order = True
        table = self._ordered()
        self.labels = self._label_dicts()
        self.im_files = list(table.im_files)
        self.batch_shapes = batch_shapes(table.hw, self.batch_size, self.imgsz, self.stride, self.pad)
        self.batch = np.arange(len(table)) // self.batch_size

    def build_transforms(self, hyp: Any) -> Any:
        """Build the stock composition, which says what is in force, and remember it: edits are noticed by that."""
        hyp = copy(hyp)
        transforms = super().build_transforms(hyp)  # switches off in hyp what does not apply here
        self._hyp = Hyp.parse(hyp)
        self._pristine = describe(transforms)
        self._foreign = changed_transform(transforms)
        if any(getattr(t, "transform", None) is not None for t in transforms.transforms if type(t) is Albumentations):
            say_once(
                "albumentations is installed; its default list in Ultralytics (blur, median blur, grey, CLAHE, 1 % of "
                "the images each) is left out. With augmentations=[...] the stock pipeline runs your list"
            )
        return transforms

    # ---- state -------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.labels_version += 1
        self._edited = False
        self._single = None

    def _ordered(self) -> LabelTable:
        return self._table.take(rect_order(self._table.hw)) if self._in_rect_order else self._table

    def _label_dicts(self) -> list[dict[str, Any]]:
        """Labels in the stock form; arrays are views of one copy of the columns."""
        table = self._ordered()
        cls, boxes, points, keypoints = (a.copy() for a in (table.cls, table.xywhn, table.points, table.keypoints))
        ends, hw = table.box_offsets.tolist(), table.hw.tolist()
        cuts = table.point_offsets.tolist() or [0] * (len(cls) + 1)
        labels = []
        for i, im_file in enumerate(table.im_files):
            lo, hi = ends[i], ends[i + 1]
            segments = [points[cuts[j] : cuts[j + 1]] for j in range(lo, hi)] if cuts[lo] < cuts[hi] else []
            label = {
                "im_file": im_file,
                "shape": tuple(hw[i]),
                "cls": cls[lo:hi, None],
                "bboxes": boxes[lo:hi],
                "segments": segments,
                "keypoints": keypoints[lo:hi] if self.use_keypoints else None,
                "normalized": True,
                "bbox_format": "xywh",
            }
            if self._in_rect_order:
                del label["shape"]  # the stock method takes it out while it sorts
            labels.append(label)
        return labels

    @property
    def fast_hyp(self) -> Hyp:
        """Augmentation in force: after close_mosaic, what is left."""
        return self._hyp

    def why_stock(self) -> str | None:
        """Return why the stock methods have to make the samples now, or None."""
        if self._foreign is not None:
            return self._foreign
        if describe(self.transforms) != self._pristine:
            return "dataset.transforms was changed"
        return "dataset.labels was edited" if self._edited else None

    def check_labels(self) -> None:
        """Look whether somebody edited `labels` since they were made; takes a few milliseconds per 10,000 images."""
        self._edited = self._labels_differ()

    def _labels_differ(self) -> bool:
        table = self._ordered()
        if len(self.labels) != len(table):
            return True
        columns = [("cls", table.cls[:, None]), ("bboxes", table.xywhn)]
        columns += [("keypoints", table.keypoints)] if self.use_keypoints else []
        for key, column in columns:
            if not np.array_equal(np.concatenate([label[key] for label in self.labels]), column):
                return True
        points = [s for label in self.labels for s in label["segments"]]
        return len(points) > 0 and not np.array_equal(np.concatenate(points), table.points)

    # ---- samples -----------------------------------------------------------------------------------------------------

    def plain_core(self, **changes: Any) -> LabelledImages:
        """Make a core data set over the present labels and augmentation, without image weights.

        Args:
            changes: fields of LoaderConfig that the loader decides.

        Raises:
            ConfigError: something the core does not do.
        """
        return LabelledImages(self._table, self._spec, replace(self._config, hyp=self._hyp, **changes))

    def core(self, **changes: Any) -> LabelledImages:
        """Make a core data set with image weights; see plain_core.

        Raises:
            ConfigError: the weights do not fit.
        """
        core = self.plain_core(**changes)
        if self.augment and self.options.image_weights is not None:
            core.image_weights = self._image_weights()
        return core

    def _image_weights(self) -> npt.ArrayLike | str:
        """Image weights as numbers in file order, or "balanced"."""
        if self.rect:
            raise ConfigError("image_weights and rect=True: rect sorts images by aspect ratio; leave one of them out")
        weights = self.options.image_weights
        return weights(self) if callable(weights) else weights

    def __getstate__(self) -> dict[str, Any]:
        """For workers of other loaders: without the core, and without a function that may not be picklable."""
        options = replace(self.options, image_weights=None)
        return {**self.__dict__, "_single": None, "options": options, "_pristine": self.why_stock() is None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The copy's transforms are what they were, although they are other objects."""
        self.__dict__.update(state)
        self._pristine = describe(self.transforms) if state["_pristine"] else None

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.why_stock() is not None:
            return super().__getitem__(index)
        if self._single is None:
            self._single = self.plain_core(cache="none")  # a cache belongs to a loader
        return self._single[index]
