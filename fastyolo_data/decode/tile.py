"""The tile of an image: decoded, EXIF applied, resized so that its long side is the training size."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from fastyolo_data.datatypes import U8Image
from fastyolo_data.decode.image import Decoder
from fastyolo_data.errors import ImageDecodeError

__all__ = ["TileMaker"]


class TileMaker:
    """Turns file bytes into tiles; owns its buffers. One per thread, never shared.

    Args:
        decoder: used for nothing else while this object lives.
        area_when_shrinking: shrink with INTER_AREA (YOLOv5 validation) instead of INTER_LINEAR.
        scaled: allow DCT-scaled decoding of pictures at least twice as large as needed: faster, pixels differ.
    """

    def __init__(self, decoder: Decoder, *, area_when_shrinking: bool, scaled: bool) -> None:
        self._decoder = decoder
        self._shrink = cv2.INTER_AREA if area_when_shrinking else cv2.INTER_LINEAR
        self._scaled = scaled
        self._resized = np.empty(0, np.uint8)

    def make(self, data: npt.NDArray[np.uint8], path: str, hw0: tuple[int, int], tile_hw: tuple[int, int]) -> U8Image:
        """Decode one file and resize it to its tile.

        Args:
            data: (n,) uint8, the whole file.
            path: for messages.
            hw0: original size that the label scan found.
            tile_hw: size of the tile, by the dialect's rounding rule.

        Returns:
            (h, w, 3) uint8 BGR, a view of this object's memory, valid until its next call.

        Raises:
            ImageDecodeError: the file is broken, or its size is not the one of the label scan.
        """
        decoded = self._decoder.decode(data, path, min_long_side=max(tile_hw) if self._scaled else None)
        if tuple(decoded.hw0) != tuple(hw0):
            raise ImageDecodeError(
                f"{path}: the picture is {decoded.hw0[1]}x{decoded.hw0[0]} pixels, the label scan found "
                f"{hw0[1]}x{hw0[0]}; the file was changed during training. Build the loader again."
            )
        im = decoded.im
        if im.shape[:2] == tuple(tile_hw):
            return im
        h, w = tile_hw
        if self._resized.size < h * w * 3:
            self._resized = np.empty(h * w * 3, np.uint8)
        out = self._resized[: h * w * 3].reshape(h, w, 3)
        shrinking = max(tile_hw) < max(hw0)
        cv2.resize(im, (w, h), dst=out, interpolation=self._shrink if shrinking else cv2.INTER_LINEAR)
        return out
