"""Are the batches of two contenders comparable? Asked before anything is timed."""

from __future__ import annotations

from typing import Any

__all__ = ["compare", "implausible"]

Description = dict[str, Any]  # what the worker's `describe` answers


def implausible(name: str, found: Description, batch: int, imgsz: int) -> list[str]:
    """Return what is wrong with one contender's batches on their own; empty when they look like training batches.

    Args:
        name: the contender, for the messages.
        found: its description.
        batch, imgsz: what it was asked for.
    """
    layout, n = found["layout"], found["numbers"]
    problems = []
    if layout.get("img", [None, None, None])[1:] != ["torch.uint8", [3, imgsz, imgsz]]:
        problems.append(f"{name}: img is {layout.get('img')}, expected uint8 (b, 3, {imgsz}, {imgsz})")
    if n["images"] > batch:
        problems.append(f"{name}: a batch has {n['images']:.0f} images, asked for {batch}")
    if not (5 < n["pixel_mean"] < 250 and n["pixel_std"] > 2):
        problems.append(f"{name}: pixels have mean {n['pixel_mean']:.1f} and deviation {n['pixel_std']:.1f}")
    if n["boxes_per_image"] == 0:
        problems.append(f"{name}: no boxes in any batch looked at")
    if n["box_min"] < -1e-3 or n["box_max"] > 1 + 1e-3:
        problems.append(f"{name}: boxes reach from {n['box_min']:.3f} to {n['box_max']:.3f}, expected 0 to 1")
    if n["batch_idx_max"] >= batch:
        problems.append(f"{name}: batch_idx reaches {n['batch_idx_max']:.0f} in batches of {batch}")
    return problems


def compare(name: str, found: Description, other: str, reference: Description) -> list[str]:
    """Return how the batches of `name` differ from those of `other`: keys, types, dtypes, shapes, and rough averages.

    The averages are over few random batches, hence the wide limits: they catch a missing augmentation or wrong pixels,
    not a subtle one (the parity tests do that).
    """
    a, b = found["layout"], reference["layout"]
    problems = [f"{name} has no key '{key}' that {other} has" for key in b if key not in a]
    problems += [f"{name} has a key '{key}' that {other} hasn't" for key in a if key not in b]
    # A tuple and a list of per-image values serve the same use; the tensors must agree.
    for key in sorted(a.keys() & b.keys()):
        if (a[key][1] or b[key][1]) and a[key] != b[key]:
            problems.append(f"'{key}' is {a[key]} in {name} and {b[key]} in {other}")
    x, y = found["numbers"], reference["numbers"]
    if abs(x["pixel_mean"] - y["pixel_mean"]) > 25:
        problems.append(f"mean pixel {x['pixel_mean']:.0f} in {name}, {y['pixel_mean']:.0f} in {other}")
    low, high = sorted((x["boxes_per_image"], y["boxes_per_image"]))
    if high > 2 * low:
        problems.append(f"{x['boxes_per_image']:.1f} boxes an image in {name}, {y['boxes_per_image']:.1f} in {other}")
    return problems
