"""An environment for the training code of YOLOv5 7.0 and YOLOv9, which needs older libraries than our own tests.

torch, torchvision, OpenCV, numba and whatever else fits are those of the running interpreter: the new environment looks
for them behind its own packages. So only a few small packages are installed. The environment is kept for later runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = (
    "yolov5==7.0.14",
    "yolov9pip==0.0.4",
    # For pkg_resources, numpy.trapz, FreeTypeFont.getsize and huggingface_hub.utils, which newer ones lack.
    "setuptools<81",
    "numpy<2.3",
    "pillow<10",
    "huggingface-hub<0.25",
    # What it imports and our tests lack.
    "absl-py",
    "ipython",
    "pandas",
    "pillow-avif-plugin",
    "protobuf",
    "python-dotenv",
    "requests-toolbelt",
    "roboflow",
    "scipy",
    "seaborn",
    "tensorboard",
    "thop",
    "traitlets",
)
LAST_PYTHON = (3, 11)  # pillow<10 has no wheels for later ones, and the code calls random.randrange with floats


@dataclass(frozen=True, slots=True)
class StockEnv:
    """An environment in which `import yolov5` and the scripts of YOLOv5 and YOLOv9 work."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The folder with the packages `yolov5` and `yolov9`; their scripts are files in there."""
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)}))

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Variables for a subprocess: this checkout importable, settings and fonts in the environment, one thread."""
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))},
            "PYTHONPATH": str(ROOT),
            "YOLOV5_CONFIG_DIR": str(self.folder / "settings"),
            "YOLO_CONFIG_DIR": str(self.folder / "settings"),
            "YOLO_OFFLINE": "True",
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",  # their checkpoints are whole pickled models
            "OMP_NUM_THREADS": "1",  # quicker for tiny models
            **(extra or {}),
        }

    def run(
        self, args: Sequence[str | Path], cwd: Path, extra: Mapping[str, str] | None = None, timeout: float = 280
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with arguments; stderr goes to stdout."""
        return subprocess.run(
            [str(self.python), *map(str, args)],
            cwd=cwd,
            env=self.environment(extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_stock_env() -> StockEnv:
    """The environment, made if there is none yet for these requirements and this interpreter.

    FASTYOLO_TEST_ENVS names the folder that keeps it (default: ~/.cache/fastyolo-tests). Tests are skipped where it
    cannot be made, unless FASTYOLO_STOCK_TESTS is "required".
    """
    if sys.version_info[:2] > LAST_PYTHON or os.name != "posix":
        pytest.skip("the training code of YOLOv5 7.0 and YOLOv9 runs with Python 3.10 and 3.11, here tested on POSIX")
    base = sysconfig.get_path("purelib")
    key = hashlib.sha256("\n".join((*REQUIREMENTS, base, sys.version)).encode()).hexdigest()[:16]
    home = Path(os.environ.get("FASTYOLO_TEST_ENVS") or Path.home() / ".cache" / "fastyolo-tests")
    env = StockEnv(home / key)
    if env.folder.is_dir():
        return env
    home.mkdir(parents=True, exist_ok=True)
    draft = StockEnv(Path(tempfile.mkdtemp(prefix=f"{key}-", dir=home)))
    try:
        _fill(draft, base)
        draft.folder.rename(env.folder)
    except subprocess.CalledProcessError as e:
        reason = f"no environment for YOLOv5 and YOLOv9, pip failed: {e.stdout.strip()[-500:]}"
        assert os.environ.get("FASTYOLO_STOCK_TESTS") != "required", reason
        pytest.skip(reason)
    except OSError:
        if not env.folder.is_dir():  # else another test run was quicker
            raise
    finally:
        shutil.rmtree(draft.folder, ignore_errors=True)
    return env


def _fill(env: StockEnv, base: str) -> None:
    """Make the environment in an empty folder; base: the packages it falls back to."""
    venv.EnvBuilder(symlinks=True).create(env.folder)
    pip = [sys.executable, "-m", "pip", "--python", str(env.python), "install", "--no-deps", "--no-compile", "-q"]
    subprocess.run(
        [*pip, "--retries", "2", *REQUIREMENTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=True,
    )
    # Only now: pip must not take the packages of the other environment for its own.
    (env.packages / "fastyolo_tests_base.pth").write_text(base + "\n", encoding="utf-8")
    import matplotlib

    settings = env.folder / "settings"
    settings.mkdir()
    shutil.copy(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", settings / "Arial.ttf")
