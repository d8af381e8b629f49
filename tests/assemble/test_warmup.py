"""After the warm-up no batch waits for the compiler."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from numba import config

import fastyolo_data as fy
from fastyolo_data import kernels
from fastyolo_data.assemble import compile_kernels
from fastyolo_data.hyp import DIALECTS
from fastyolo_data.kernels import jpeg
from tests.loaders import QUICK

KINDS = {"detect": "polygons", "segment": "polygons", "pose": "pose", "obb": "obb"}


def compiled() -> set[tuple[str, str]]:
    """Every kernel with every kind of arguments that it was compiled for."""
    modules = [importlib.import_module(m.name) for m in pkgutil.iter_modules(kernels.__path__, kernels.__name__ + ".")]
    functions = {f for m in modules for f in vars(m).values() if hasattr(f, "signatures")}
    return {(f.__name__, str(signature)) for f in functions for signature in f.signatures}


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("task", KINDS)
def test_loaders_compile_nothing_afterwards(request, task):
    compile_kernels(jpeg.try_out, [task], pasting=True)
    before = compiled()
    hyp = {"mixup": 0.5, "flipud": 0.5, "copy_paste": 0.5, "cutmix": 0.5, "paste_in": 0.5}
    for dialect in (d.name for d in DIALECTS.values() if task in d.tasks):
        for split, overlap in (("train", False), ("train", True), ("val", True)):
            options = {**QUICK, "workers": 0, "split": split, "hyp": {**hyp, "overlap_mask": overlap}}
            data = request.getfixturevalue(f"generated_{KINDS[task]}")
            with fy.build_loader(data, task=task, dialect=dialect, **options) as loader:
                for _ in loader:
                    pass
    assert compiled() - before == set()
