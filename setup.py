"""Package metadata of fastyolo_data (build system and tool settings: pyproject.toml)."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
# The turbojpeg wheels exist for these platforms and Pythons only; elsewhere pip would try to build the source.
# Without it a system libturbojpeg 3 is used, else OpenCV.
TURBOJPEG = (
    "turbojpeg>=0.0.2; python_version < '3.14' and ("
    "(sys_platform == 'linux' and platform_machine == 'x86_64') or sys_platform == 'win32'"
    " or (sys_platform == 'darwin' and platform_machine == 'arm64'))"
)

setup(
    name="fastyolo_data",
    version="0.1.0",
    description="The data loader that keeps a GPU busy when people train YOLO.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["fastyolo_data", "fastyolo_data.*"]),
    package_data={"fastyolo_data": ["py.typed", "integrations/*.json", "integrations/site/*.py"]},
    install_requires=[
        "torch>=2.0",
        "numpy>=1.23",
        "opencv-python>=4.6",
        "numba>=0.59",
        "lmdb>=1.4",
        "PyYAML>=5.3",
        "tqdm>=4.64",
        "psutil>=5.9",
        TURBOJPEG,
    ],
    extras_require={
        # What the tests compare with. ultralytics brings torchvision, matplotlib and Pillow.
        "test": [
            "pytest>=7",
            "pytest-timeout>=2",
            "ultralytics>=8.4,<8.5",
            "cloudpickle>=3.1.1",
            "pillow>=10",
            "ruff>=0.6",
        ],
        "bench": ["matplotlib>=3.5", "ultralytics>=8.4,<8.5"],
    },
    entry_points={"console_scripts": ["fastyolo = fastyolo_data.cli.main:main"]},
)
