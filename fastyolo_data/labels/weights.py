"""Image weights made from the labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import LabelTable

__all__ = ["class_balanced_weights"]


def class_balanced_weights(table: LabelTable) -> npt.NDArray[np.float64]:
    """Return weights with which every class is drawn equally often, however rare it is.

    The weight of an image is the sum over its boxes of 1 / (boxes of that class in the split), so the images of each
    class together weigh 1. Images without boxes, which that formula would never draw, get the mean weight of the
    others: they come as often as without weights.

    Returns:
        (n,) float64. All ones when no image has a box.

    Source: labels_to_class_weights and labels_to_image_weights of yolov5 7.0 (utils/general.py), without the share of
    the present mAP; there, images without boxes have weight 0.
    """
    cls = table.cls.astype(np.int64)
    if not len(cls):
        return np.ones(len(table))
    share = 1.0 / np.maximum(np.bincount(cls), 1)
    total = np.concatenate(([0.0], np.cumsum(share[cls])))
    weights = total[table.box_offsets[1:]] - total[table.box_offsets[:-1]]
    labelled = np.diff(table.box_offsets) > 0
    weights[labelled] = np.maximum(weights[labelled], share.min())  # a difference of sums can round to below 0
    weights[~labelled] = weights[labelled].mean()
    return weights
