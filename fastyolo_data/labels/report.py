"""What a scan tells the user: one summary line, the first few reasons, and errors that name their causes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import islice

from fastyolo_data.datatypes import DataSpec
from fastyolo_data.errors import ConfigError
from fastyolo_data.labels.cache import ScanRecords
from fastyolo_data.labels.find import hint_other_normal_form, label_path

__all__ = ["check_any_label", "nothing_left", "report"]

_LOG = logging.getLogger("fastyolo_data")
_SHOWN = 5  # lines of each kind


def report(
    records: ScanRecords, skipped: Mapping[str, str], hints: Sequence[str], prefix: str, verbose: bool, how: str
) -> None:
    """Log a summary, and a few lines each about skipped files, remarks on label files, and misplaced ones.

    Args:
        records: the usable images.
        skipped: path -> reason.
        hints: remarks of the search for images.
        prefix: put before every line.
        verbose: whether to log the summary; warnings are always logged.
        how: where the labels came from and how long it took.
    """
    if verbose:
        backgrounds = int((records.columns.counts == 0).sum())
        _LOG.info(
            "%s%d images, %d backgrounds, %d skipped, %d boxes (%s)",
            prefix, len(records), backgrounds, len(skipped), len(records.columns.cls), how,
        )  # fmt: skip
    _warn_some(prefix, f"{len(skipped)} files skipped", _reasons(skipped), len(skipped))
    notes = [f"{records.paths[i]}: {note}" for i, note in islice(records.notes.items(), _SHOWN)]
    _warn_some(prefix, f"{len(records.notes)} files used with remarks", notes, len(records.notes))
    misnamed = hint_other_normal_form(_missing_labels(records))
    hints = [*hints, *misnamed]
    _warn_some(prefix, f"{len(hints)} remarks on label files", list(hints[:_SHOWN]), len(hints))


def _reasons(skipped: Mapping[str, str]) -> list[str]:
    """Return the first few reasons, each starting with its path once."""
    return [r if r.startswith(p) else f"{p}: {r}" for p, r in islice(skipped.items(), _SHOWN)]


def _warn_some(prefix: str, title: str, lines: Sequence[str], total: int) -> None:
    if not total:
        return
    more = f"\n  … and {total - len(lines)} more" if total > len(lines) else ""
    _LOG.warning("%s%s:%s%s", prefix, title, "".join(f"\n  {line}" for line in lines), more)


def _missing_labels(records: ScanRecords) -> list[str]:
    """Return the label files that were expected and are not there, of images whose name is not plain ASCII."""
    missing = (records.labels.size < 0).nonzero()[0]
    if not len(missing) or (records.paths.blob < 128).all():
        return []
    return [path for i in missing.tolist() if not (path := label_path(records.paths[i])).isascii()]


def nothing_left(spec: DataSpec, prefix: str, skipped: Mapping[str, str]) -> str:
    """Return the message for a split without any usable image."""
    causes = "".join(f"\n  {line}" for line in _reasons(skipped))
    more = f"\n  … and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
    return (
        f"{prefix}{spec.origin}: no usable image is left, all {len(skipped)} were skipped; expected at least one "
        f"image with a correct label file or none. Repair these files:{causes}{more}"
    )


def check_any_label(records: ScanRecords, augment: bool, prefix: str) -> None:
    """Complain when not one image has a label file: training on that teaches nothing.

    Raises:
        ConfigError: in a training split.
    """
    if (records.labels.size >= 0).any():
        return
    first = records.paths[0]
    message = (
        f"{prefix}no label file was found for any of {len(records)} images; the label of {first} was expected at "
        f"{label_path(first)}. Put the labels there (images/… and labels/… side by side)"
    )
    if augment:
        raise ConfigError(message)
    _LOG.warning("%s", message)
