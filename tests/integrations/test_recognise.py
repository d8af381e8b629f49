"""Which code base is it, and was it edited?"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from fastyolo_data.integrations import fingerprints
from fastyolo_data.integrations.fingerprints import deciding_functions, fingerprint, fingerprint_file, known_code
from fastyolo_data.integrations.recognise import Recognised, Refused, recognise
from tests.integrations.forks import DATA_MODULE, write_fork
from tests.integrations.make_fingerprints import FILES

TABLE = json.loads(Path(fingerprints.__file__).with_name("fingerprints.json").read_text(encoding="utf-8"))


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a fork as a package of its own and import one of its modules."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(kind, name="utils.{data}", **kwargs):
        package = f"recognised_fork_{len(list(tmp_path.iterdir()))}"
        write_fork(tmp_path, kind, package, **kwargs)
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.{name.format(data=DATA_MODULE[kind])}")

    yield load
    for name in [n for n in sys.modules if n.startswith("recognised_fork_")]:
        del sys.modules[name]


def edit(module: ModuleType, old: str, new: str) -> ModuleType:
    """Edit a module's file and load it again."""
    path = Path(module.__file__)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new) + "# longer, so no compiled file is taken\n")
    return importlib.reload(module)


@pytest.mark.parametrize("kind", ["yolov5", "yolov7", "yolov9"])
@pytest.mark.parametrize(("name", "variant"), [("utils.{data}", "detect"), ("utils.segment.{data}", "segment")])
def test_kind_and_variant_come_from_signatures(load, kind, name, variant):
    found = recognise(load(kind, name), trust=True)
    assert isinstance(found, Recognised)
    assert (found.kind, found.variant, found.rounding) == (kind, variant, "ceil")
    assert found.version in TABLE[kind]["versions"]


def test_rounding_is_read_from_load_image(load):
    assert recognise(load("yolov5", rounding="int"), trust=True).rounding == "floor"


def test_panoptic_and_pose_are_refused_even_if_trusted(load):
    panoptic = recognise(load("yolov9", "utils.segment.{data}", item="self.semantic_masks"), trust=True)
    assert isinstance(panoptic, Refused)
    assert "panoptic" in panoptic.reason
    pose = recognise(edit(load("yolov7"), "prefix=''", "prefix='', tidl_load=False, kpt_label=False"), trust=True)
    assert isinstance(pose, Refused)
    assert "pose" in pose.reason
    assert not pose.by_content


def test_other_modules_are_nothing(load):
    train = load("yolov5", "train")  # imported the function, does not define it
    assert train.create_dataloader is not None
    for module in (train, ast, sys.modules[__name__]):
        assert recognise(module, trust=True) is None


def test_edited_code_is_refused_and_named(load):
    found = recognise(load("yolov5"))
    assert isinstance(found, Refused)
    assert found.by_content
    assert "LoadImagesAndLabels.__getitem__" in found.reason
    assert "create_dataloader" in found.reason


def test_ultralytics_by_version(monkeypatch):
    build = pytest.importorskip("ultralytics.data.build")
    ultralytics = sys.modules["ultralytics"]
    assert recognise(build) == Recognised("ultralytics", "detect", ultralytics.__version__, "ceil")
    monkeypatch.setattr(ultralytics, "__version__", "9.0.1")
    assert "9.0.1" in recognise(build).reason
    assert recognise(build, trust=True).version == "9.0.1"


# ---- fingerprints ----------------------------------------------------------------------------------------------------

PLAIN = """
def load_image(self, i):
    if i > 1.5:
        return f"a{i}b" + 'c', [j for j in self.x]
    assert i, 'one'
    return None
"""
SAME = '''
def load_image(self: object, i: int) -> tuple:
    """Loads."""
    print("here"); LOGGER.info(f"{i}")
    n: int
    if (i > 1.50):  # comment
        return (f'a{i}'
                "b" + "c", [j for j in self.x])
    assert i, "another"
    pass
    return None
'''


def digest(source: str) -> str:
    return fingerprint(ast.parse(textwrap.dedent(source)).body[0])


def test_fingerprint_sees_what_matters_only():
    assert digest(PLAIN) == digest(SAME)
    changes = {
        "1.5": "1.6", "> 1": ">= 1", "'c'": "'d'", "self.x": "self.y", "a{i}b": "a{i!r}b", "(self, i)": "(self, i=0)",
        "return None": "return [None]", "[j for": "[self for",
    }  # fmt: skip
    for old, new in changes.items():
        assert old in PLAIN
        assert digest(PLAIN.replace(old, new)) != digest(PLAIN), old


def test_neighbouring_constants_are_joined_in_format_strings_only():
    assert digest("def f(): return g('a', 'b')") != digest("def f(): return g('ab')")
    assert digest("def f(): return ('a', 'b')") != digest("def f(): return ('ab',)")


def test_fingerprint_is_the_same_in_every_python():
    assert digest(PLAIN) == "a2325daff44f"


def test_function_replaced_at_run_time_is_noticed(load):
    module = load("yolov5")
    cls = module.LoadImagesAndLabels
    cls.__getitem__ = lambda self, i: i
    functions = deciding_functions(module, cls)
    assert functions["LoadImagesAndLabels.__getitem__"] is cls.__getitem__
    assert "LoadImagesAndLabels.__getitem__" in known_code("yolov5").compare(functions)[0]
    module.create_dataloader = len
    assert deciding_functions(module, cls)["create_dataloader"] is None


def test_methods_of_a_subclass_count(load):
    module = load("yolov5", "utils.segment.{data}")
    functions = deciding_functions(module, module.LoadImagesAndLabelsAndMasks)
    assert {"LoadImagesAndLabelsAndMasks.__getitem__", "LoadImagesAndLabels.load_image", "polygon2mask"} <= set(
        functions
    )


def test_table_holds_hashes_only():
    assert set(TABLE) == {"yolov5", "yolov7", "yolov9"}
    for family in TABLE.values():
        for name, digests in family["functions"].items():
            assert re.fullmatch(r"[\w.]+", name)
            for hexadecimal, positions in digests.items():
                assert re.fullmatch("[0-9a-f]{12}", hexadecimal)
                assert positions == sorted(set(positions))
                assert positions[-1] < len(family["versions"])


@pytest.mark.parametrize("kind", ["yolov5", "yolov7", "yolov9"])
def test_checkout_is_known(kind):
    """Each function of a checkout has a fingerprint in the table."""
    variable = f"{kind.upper()}_REPO"
    root = Path(os.environ.get(variable, f"/tmp/up/{kind}"))
    paths = [root / f for f in FILES if (root / f).is_file()]
    if not paths:
        pytest.skip(f"{root} is not there: {variable} names a checkout of the repository")
    found = [item for p in paths for item in fingerprint_file(p.read_text(encoding="utf-8")).items()]
    assert len(found) > 20
    assert [name for name, hexadecimal in found if hexadecimal not in TABLE[kind]["functions"].get(name, {})] == []
