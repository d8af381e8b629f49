"""Every cache mode of ours against those of the stock loaders, in one round with interleaved passes.

Usage: python benchmarks/compare_cache_modes.py [data.yaml | folder | list] [options of `fastyolo bench`]

It is `fastyolo bench --together` with all modes: build time, bytes on disk, memory, first batch, images per second cold
(page cache emptied) and warm; table, and JSON and chart where asked for. Without data the demo set is generated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastyolo_data.cli.main import main

MODES = "none,ram,memmap,lmdb,lmdb-jpeg"


def run(argv: Sequence[str]) -> int:
    """Run the comparison; options given later win over the defaults here."""
    return main(["bench", "--together", "--cache", MODES, "--no-gpu-sim", *argv])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
