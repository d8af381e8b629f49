"""Image files to BGR uint8 pixels, equal to what OpenCV gives with EXIF applied.

- `probe.py`     size of a file from its first bytes, and whether the loader can use it
- `image.py`     `Decoder`: bytes to pixels, one per worker thread; `read_image`
- `tile.py`      `TileMaker`: bytes to the picture at training size
- `jpegfile.py`  JPEG markers, orientation, and whether data is missing
- `report.py`    the text of ImageDecodeError
"""

from fastyolo_data.decode.image import Decoded, Decoder, read_image
from fastyolo_data.decode.probe import probe_image, probe_with_remark
from fastyolo_data.decode.tile import TileMaker

__all__ = ["Decoded", "Decoder", "TileMaker", "probe_image", "probe_with_remark", "read_image"]
