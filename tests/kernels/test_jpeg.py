"""kernels/jpeg.py: pixels equal to OpenCV's, statuses, loading, cache and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import cv2
import numpy as np
import pytest

from fastyolo_data.kernels import jpeg
from tests.decode.pictures import array, encode, photo

RAW = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION


@pytest.fixture(scope="module")
def api() -> jpeg.JpegApi:
    loaded = jpeg.load()
    if loaded is None:
        pytest.skip("no libjpeg-turbo 3 on this machine, or numba is switched off")
    return loaded


def decode(api: jpeg.JpegApi, data: bytes, divisor: int = 1) -> tuple[int, np.ndarray]:
    out = np.full(1 << 22, 77, np.uint8)
    status, h, w = api.decode(array(data), out, divisor)
    assert (out[h * w * 3 :] == 77).all(), "wrote behind the picture"
    return status, out[: h * w * 3].reshape(h, w, 3)


@pytest.mark.parametrize("hw", [(1, 1), (1, 37), (37, 1), (8, 8), (17, 33), (240, 321), (427, 640)])
@pytest.mark.parametrize("sampling", ["444", "422", "420", "440", "411"])
def test_decode_equals_opencv(api, hw, sampling):
    flag = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{sampling}")
    data = encode(photo(*hw), ".jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, flag)
    status, im = decode(api, data)
    assert status == api.OK
    np.testing.assert_array_equal(im, cv2.imdecode(array(data), RAW))


@pytest.mark.parametrize(
    "flags",
    [(cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 3), (cv2.IMWRITE_JPEG_QUALITY, 10)],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_decode_kinds_of_jpeg(api, flags, channels):
    im = photo(70, 101)
    data = encode(im if channels == 3 else im[..., 1], ".jpg", *flags)
    status, got = decode(api, data)
    assert status == api.OK
    np.testing.assert_array_equal(got, cv2.imdecode(array(data), RAW))


@pytest.mark.parametrize(("divisor", "flag"), [(2, 17), (4, 33), (8, 65)])
@pytest.mark.parametrize("hw", [(1, 1), (63, 129), (427, 640)])
def test_scaled_decode_equals_opencv_reduced(api, divisor, flag, hw):
    data = encode(photo(*hw))
    status, im = decode(api, data, divisor)
    assert status == api.OK
    assert im.shape[:2] == (-(-hw[0] // divisor), -(-hw[1] // divisor))
    np.testing.assert_array_equal(im, cv2.imdecode(array(data), flag))


def test_small_buffer_is_reported_and_untouched(api):
    out = np.full(10, 77, np.uint8)
    assert api.decode(array(encode(photo(20, 30))), out, 1) == (api.SMALL, 20, 30)
    assert (out == 77).all()


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8\xff", b"junk" * 50, encode(photo(9, 9), ".png")])
def test_not_a_jpeg(api, data):
    assert decode(api, data)[0] == api.UNSUITED


def test_missing_data_is_a_warning_without_noise(api, capfd):
    data = encode(photo(200, 200))
    for cut in (data[:-2], data[: len(data) // 2]):
        assert decode(api, cut)[0] == api.WARNED
    assert capfd.readouterr() == ("", "")


def test_tables_of_the_picture_before_are_not_reused(api):
    """Motion-JPEG frames carry no Huffman tables: the standard ones apply, whatever was decoded before."""
    data = encode(photo(64, 64))
    start = data.index(b"\xff\xc4")
    while data[start : start + 2] == b"\xff\xc4":
        data = data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]
        start = data.find(b"\xff\xc4")
    _, first = decode(api, data)
    decode(api, encode(photo(64, 64, 1), ".jpg", cv2.IMWRITE_JPEG_OPTIMIZE, 1))
    _, again = decode(api, data)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, cv2.imdecode(array(data), RAW))


def test_four_threads_decode_at_the_same_time(api):
    files = [encode(photo(211, 300, seed), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, seed % 2) for seed in range(8)]
    wanted = [cv2.imdecode(array(f), RAW) for f in files]
    wrong: list[int] = []

    def work(first: int) -> None:
        for i in range(40):
            k = (first + i) % len(files)
            if not np.array_equal(decode(api, files[k])[1], wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_load_is_one_object_for_all_threads(monkeypatch):
    calls = []
    monkeypatch.setattr(jpeg, "_loaded", [])
    monkeypatch.setattr(jpeg, "_find", lambda: calls.append(1) or object())
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(jpeg.load())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(calls) == 1
    assert len(set(map(id, got))) == 1


@pytest.mark.parametrize("path", ["", "/no/such/libturbojpeg.so", "libm.so.6", __file__])
def test_unusable_libraries_are_passed_over(path):
    assert jpeg._try_library(path) is False


def test_no_library_gives_none(monkeypatch):
    monkeypatch.setattr(jpeg, "_loaded", [])
    monkeypatch.setattr(jpeg, "_wheel_libraries", lambda: ["/no/such/file.so"])
    monkeypatch.setattr(jpeg, "_system_libraries", lambda: [])
    assert jpeg.load() is None


CHILD = """
import sys
import numpy as np
from fastyolo_data.kernels import jpeg
assert "turbojpeg" not in sys.modules
api = jpeg.load()
out = np.empty(1 << 16, np.uint8)
status, h, w = api.decode(np.fromfile(sys.argv[1], np.uint8), out, 1)
assert "turbojpeg" not in sys.modules, "the module of that name may belong to PyTurboJPEG"
stats = jpeg._decode.stats
print(status, h, w, int(out[: h * w * 3].astype(np.int64).sum()), "hits", sum(stats.cache_hits.values()))
"""


def test_fresh_processes_with_cold_and_warm_cache(api, tmp_path):
    """Machine code from numba's disk cache must find the library again in a new process."""
    data = encode(photo(40, 50))
    (tmp_path / "a.jpg").write_bytes(data)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CHILD, str(tmp_path / "a.jpg")]
    runs = [subprocess.run(command, env=env, capture_output=True, text=True, timeout=120) for _ in range(2)]
    total = int(cv2.imdecode(array(data), RAW).astype(np.int64).sum())
    for run, hits in zip(runs, (0, 1), strict=True):
        assert run.returncode == 0, run.stderr
        assert run.stdout.split() == ["0", "40", "50", str(total), "hits", str(hits)]


FORKING = """
import os, sys
import numpy as np
from fastyolo_data.kernels import jpeg
api = jpeg.load()
data, out = np.fromfile(sys.argv[1], np.uint8), np.empty(1 << 16, np.uint8)
before = api.decode(data, out, 1)
child = os.fork()
if not child:
    os._exit(0 if api.decode(data, out, 1) == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_works_after_fork(api, tmp_path):
    (tmp_path / "a.jpg").write_bytes(encode(photo(40, 50)))
    command = [sys.executable, "-c", FORKING, str(tmp_path / "a.jpg")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def test_a_foreign_module_named_turbojpeg_is_left_alone(api, tmp_path):
    """PyTurboJPEG installs turbojpeg.py."""
    (tmp_path / "turbojpeg.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "a.jpg").write_bytes(encode(photo(40, 50)))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", CHILD, str(tmp_path / "a.jpg")]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("0 40 50 ")


@pytest.mark.parametrize("switch", [{"FASTYOLO_JPEG": "opencv"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_switched_off(switch):
    code = "from fastyolo_data.kernels import jpeg; print(jpeg.load())"
    env = {**os.environ, **switch}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "None", run.stderr
