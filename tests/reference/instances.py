"""What kernels/instances.py computes, one instance at a time in NumPy.

An instance is a dict: cls, xyxy (4,), polygon (k, 2) with k = 0 for none, keypoints (K, 3).
"""

from __future__ import annotations

import numpy as np

from tests.reference.boxes import box_after_warp, inside_bounds, is_candidate, project, resample, visible_bounds


def clip(points: np.ndarray, hw) -> np.ndarray:
    """Points moved to the border of a picture."""
    return np.clip(points, 0, (hw[1], hw[0]))


def clip_keypoints(keypoints: np.ndarray, hw) -> np.ndarray:
    """Points outside become invisible and move to the border."""
    outside = (keypoints[:, :2] < 0).any(1) | (keypoints[:, :2] > (hw[1], hw[0])).any(1)
    return np.c_[clip(keypoints[:, :2], hw), np.where(outside, 0, keypoints[:, 2])]


def to_pixels(label: dict, hw, pad, total: int) -> dict:
    """A normalised label (cls, xywhn, polygon, keypoints) on a canvas; polygons with `total` points unless 0."""
    x, y, w, h = label["xywhn"].astype(np.float64)
    box = np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2]) * (hw[1], hw[0], hw[1], hw[0])
    polygon = label["polygon"]
    if len(polygon):
        if total:
            polygon = resample(polygon.astype(np.float64), total, True)
        polygon = (polygon.astype(np.float32) * np.float32((hw[1], hw[0])) + np.float32(pad)).astype(np.float64)
    keypoints = label["keypoints"].astype(np.float64)
    keypoints = np.c_[keypoints[:, :2] * (hw[1], hw[0]) + pad, keypoints[:, 2]]
    return {"cls": label["cls"], "xyxy": box + np.tile(pad, 2), "polygon": polygon, "keypoints": keypoints}


def place(tiles, canvas, clipped: bool, total: int) -> list[dict]:
    """Instances of a layer on its canvas.

    Args:
        tiles: per tile (hw, pad, labels).
        total: points per polygon; more when one has more; 0 leaves them alone.
    """
    longest = max((len(p["polygon"]) for _, _, labels in tiles for p in labels), default=0)
    total = longest + 1 if total and longest > total else total
    out = []
    for hw, pad, labels in tiles:
        for label in labels:
            one = to_pixels(label, hw, pad, total)
            if clipped:
                one["xyxy"] = clip(one["xyxy"].reshape(2, 2), canvas).ravel()
                one["polygon"] = clip(one["polygon"], canvas)
                one["keypoints"] = clip_keypoints(one["keypoints"], canvas)
            if (one["xyxy"][2:] > one["xyxy"][:2]).all():
                out.append(one)
    return out


def warp(instances: list[dict], m, scale: float, out_hw, visible: bool, max_aspect: float) -> list[dict]:
    """Instances on the output picture: Ultralytics (visible) or YOLOv5."""
    min_area = 0.01 if any(len(i["polygon"]) for i in instances) else 0.1
    out = []
    for one in instances:
        polygon = one["polygon"]
        if len(polygon):
            polygon = project(m, polygon if visible else resample(polygon, 1000, False))
            box = visible_bounds(polygon, *out_hw) if visible else inside_bounds(polygon, *out_hw)
            polygon = np.clip(polygon, box[:2], box[2:]).astype(np.float32) if visible else polygon
        else:
            box = box_after_warp(m, one["xyxy"])
        box = clip(box.reshape(2, 2), out_hw).ravel()
        if is_candidate(one["xyxy"], box, scale, min_area, max_aspect):
            keypoints = np.c_[project(m, one["keypoints"][:, :2]), one["keypoints"][:, 2]]
            keypoints = clip_keypoints(keypoints, out_hw)
            out.append({"cls": one["cls"], "xyxy": box, "polygon": polygon, "keypoints": keypoints})
    return out
