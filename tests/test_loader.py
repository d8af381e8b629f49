"""The public loader: determinism, order, resuming, ownership of batches, errors, life of threads."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import fastyolo_data as fy
from fastyolo_data.labels import class_balanced_weights
from tests.loaders import QUICK, fingerprint, loader_threads

HYP = {"mosaic": 0.9, "mixup": 0.3, "degrees": 5.0}


@pytest.mark.parametrize("dialect", ["ultralytics", "yolov5", "yolov9"])
@pytest.mark.parametrize("mosaic_pool", ["recent", "uniform"])
def test_batches_do_not_depend_on_workers_or_prefetch(generated_polygons, mosaic_pool, dialect):
    seen = {}
    for workers, prefetch in ((0, 3), (1, 1), (2, 3), (5, 2), (2, 7)):
        options = {**QUICK, "workers": workers, "prefetch": prefetch, "hyp": HYP}
        with fy.build_loader(generated_polygons, mosaic_pool=mosaic_pool, dialect=dialect, **options) as loader:
            seen[workers, prefetch] = [fingerprint(b) for _ in range(2) for b in loader]
    first = seen.pop((0, 3))
    assert len(set(first)) == len(first), "every batch differs from every other"
    assert all(other == first for other in seen.values())


def test_seeds_and_epochs_differ(generated_boxes):
    runs = []
    for seed in (0, 1, 12345):
        with fy.build_loader(generated_boxes, seed=seed, **QUICK) as loader:
            runs += [[fingerprint(b) for b in loader] for _ in range(2)]
    assert len({tuple(r) for r in runs}) == 6


def test_set_epoch_chooses_the_epoch(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        plain = [[fingerprint(b) for b in loader] for _ in range(3)]
        loader.set_epoch(1)
        assert [fingerprint(b) for b in loader] == plain[1]
        loader.sampler.set_epoch(0)
        assert [fingerprint(b) for b in loader] == plain[0]
        assert [fingerprint(b) for b in loader] == plain[1], "without set_epoch the count goes on"


@pytest.mark.parametrize("taken", [0, 1, 3, 6])
def test_resuming_delivers_exactly_the_rest(generated_boxes, taken):
    options = {**QUICK, "batch": 4, "hyp": HYP}
    with fy.build_loader(generated_boxes, **options) as loader:
        next(iter(loader))
        whole = [fingerprint(b) for b in loader]  # epoch 1
        after = [fingerprint(b) for b in loader]  # epoch 2
        loader.set_epoch(1)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        state = loader.state_dict()
    for workers in (0, 3):
        with fy.build_loader(generated_boxes, **{**options, "workers": workers}) as restored:
            restored.load_state_dict(state)
            expected = whole[taken:] + after if taken < len(whole) else after
            delivered = [fingerprint(b) for _ in range(2 if taken < len(whole) else 1) for b in restored]
            assert delivered == expected


def test_state_of_another_set_is_refused(generated_boxes, generated_polygons):
    with fy.build_loader(generated_boxes, **QUICK) as a, fy.build_loader(generated_polygons, **QUICK) as b:
        with pytest.raises(fy.ConfigError, match="files"):
            b.load_state_dict(a.state_dict())
        with pytest.raises(fy.ConfigError, match="version"):
            b.load_state_dict({})


def test_iter_is_lazy_and_the_last_iterator_wins(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        unused = enumerate(loader)
        assert not loader_threads(), "nothing may run before the first batch is asked for"
        whole = [fingerprint(b) for b in loader]
        assert len(whole) == len(loader)
        loader.set_epoch(0)
        first = iter(loader)
        next(first)
        loader.set_epoch(0)
        assert [fingerprint(b) for b in loader] == whole
        with pytest.raises(fy.FastYoloError, match="another pass"):
            next(first)
        del unused


def test_partial_passes_start_anew(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        firsts = [fingerprint(next(iter(loader))) for _ in range(3)]
        loader.set_epoch(0)
        assert fingerprint(next(iter(loader))) == firsts[0]
        assert len(set(firsts)) == 3


def test_two_loaders_at_once(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as alone:
        expected = [fingerprint(b) for b in alone]
    with fy.build_loader(generated_boxes, **QUICK) as a, fy.build_loader(generated_boxes, **QUICK) as b:
        pairs = [(fingerprint(x), fingerprint(y)) for x, y in zip(a, b, strict=True)]
    assert pairs == [(e, e) for e in expected]


def test_a_held_batch_never_changes(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        held, marks = [], []
        for _ in range(2):
            for batch in loader:
                held.append(batch)
                marks.append(fingerprint(batch))
        assert [fingerprint(b) for b in held] == marks
        views = [b["img"][0, 0].numpy() for b in held]
        copies = [v.copy() for v in views]
        del held, batch
        for _ in loader:
            pass
        assert all(np.array_equal(v, c) for v, c in zip(views, copies, strict=True)), "a view keeps its batch alive"


def test_memory_of_dropped_batches_is_used_again(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        addresses = [batch["img"].data_ptr() for _ in range(6) for batch in loader]
    assert len(set(addresses)) <= QUICK["prefetch"] + 4


def test_changing_a_batch_in_place_changes_no_other(generated_boxes):
    with fy.build_loader(generated_boxes, split="val", **QUICK) as loader:
        before = [fingerprint(b) for b in loader]
        for batch in loader:
            batch["img"].zero_()
            batch["bboxes"].mul_(2.0)
            batch["cls"] += 1
        assert [fingerprint(b) for b in loader] == before


def test_batches_are_ordinary_tensors_inside_inference_mode(generated_boxes):
    for workers in (0, 2):
        with fy.build_loader(generated_boxes, **{**QUICK, "workers": workers}) as loader, torch.inference_mode():
            batch = next(iter(loader))
            assert not any(v.is_inference() for v in batch.values() if isinstance(v, torch.Tensor))


def test_close_mosaic_takes_effect_at_the_next_pass(generated_boxes):
    options = {**QUICK, "hyp": {"mosaic": 1.0, "translate": 0.0, "scale": 0.0, "hsv_h": 0, "hsv_s": 0, "hsv_v": 0}}
    with fy.build_loader(generated_boxes, **options) as loader:
        epochs = [sum(1 for b in loader for _ in b["im_file"]) for _ in range(2)]
        loader.dataset.close_mosaic()
        loader.reset()
        closed = list(loader)
        assert epochs[0] == len(loader.dataset) == sum(len(b["im_file"]) for b in closed)
    with fy.build_loader(generated_boxes, **{**options, "hyp": {**options["hyp"], "mosaic": 0.0}}) as never:
        never.set_epoch(2)
        assert [fingerprint(b) for b in never] == [fingerprint(b) for b in closed]


def test_close_mosaic_without_reset_reaches_prefetched_batches(generated_boxes):
    options = {**QUICK, "prefetch": 6}
    with fy.build_loader(generated_boxes, **options) as loader:
        for _ in loader:
            pass
        time.sleep(0.5)  # the next epoch is being prefetched with mosaic
        loader.dataset.mosaic = False
        closed = [fingerprint(b) for b in loader]
    with fy.build_loader(generated_boxes, **{**options, "hyp": {"mosaic": 0.0}}) as never:
        never.set_epoch(1)
        assert [fingerprint(b) for b in never] == closed


def test_assigned_indices_and_weights_are_followed(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        files = loader.dataset.im_files
        loader.dataset.indices = [3, 3, 5, 3]
        names = [f for b in loader for f in b["im_file"]]
        assert sorted(names) == sorted([files[3]] * 3 + [files[5]])
        images = next(b["img"] for b in loader)
        assert len({i.numpy().tobytes() for i in images}) == 4, "repeats of an image are augmented differently"
        loader.dataset.indices = range(len(files))
        weights = np.zeros(len(files))
        weights[[1, 2]] = 1.0, 3.0
        loader.dataset.image_weights = weights
        drawn = [f for _ in range(8) for b in loader for f in b["im_file"]]
        assert set(drawn) == {files[1], files[2]}
        assert 0.6 < drawn.count(files[2]) / len(drawn) < 0.9
        with pytest.raises(fy.ConfigError, match="image_weights"):
            loader.dataset.image_weights = np.ones(3)
        for bad in (np.nan, -1.0, 0.0):
            with pytest.raises(fy.ConfigError, match="image_weights"):
                loader.dataset.image_weights = np.full(len(files), bad)
        with pytest.raises(fy.ConfigError, match="indices"):
            loader.dataset.indices = [len(files)]


def test_balanced_weights_come_from_the_labels(generated_boxes):
    with fy.build_loader(generated_boxes, image_weights="balanced", **QUICK) as loader:
        expected = class_balanced_weights(loader.dataset.table)
        np.testing.assert_array_equal(loader.dataset.image_weights, expected)
        drawn = [f for b in loader for f in b["im_file"]]
        assert len(set(drawn)) < len(drawn) == len(loader.dataset)


def test_ranks_share_an_epoch(generated_boxes):
    for split, shuffle in (("train", True), ("val", False)):
        shares = []
        for rank in range(3):
            options = {**QUICK, "batch": 5, "rank": rank, "world_size": 3, "mosaic_pool": "uniform"}
            with fy.build_loader(generated_boxes, split=split, **options) as loader:
                assert sum(len(b["im_file"]) for b in loader) == len(loader.sampler)
                shares.append([loader.dataset.im_files[i] for i in loader.sampler])
        every = [f for share in shares for f in share]
        n = len(loader.dataset)
        assert set(every) == set(loader.dataset.im_files)
        if shuffle:
            assert len({len(s) for s in shares}) == 1
            assert len(every) - n < 3
        else:
            assert every == loader.dataset.im_files, "validation: each image once, in order"


def test_uniform_partners_do_not_depend_on_the_number_of_ranks(generated_boxes):
    def samples(world: int) -> dict[str, bytes]:
        out = {}
        for rank in range(world):
            options = {**QUICK, "rank": rank, "world_size": world, "mosaic_pool": "uniform"}
            with fy.build_loader(generated_boxes, **options) as loader:
                for batch in loader:
                    out |= {f: i.numpy().tobytes() for f, i in zip(batch["im_file"], batch["img"], strict=True)}
        return out

    assert samples(1) == samples(2) == samples(3)


def test_an_image_lost_during_training_is_named(tmp_path, generated_boxes):
    root = Path(shutil.copytree(generated_boxes.parent, tmp_path / "set"))
    for workers in (0, 2):
        with fy.build_loader(root / "data.yaml", **{**QUICK, "workers": workers}) as loader:
            victim = Path(loader.dataset.im_files[7])
            content = victim.read_bytes()
            victim.unlink()
            with pytest.raises(fy.ImageDecodeError, match=rf"sample \d+ .*{victim.name}"):
                for _ in loader:
                    pass
            victim.write_bytes(content)
            assert sum(len(b["im_file"]) for b in loader) == len(loader.dataset), "the loader goes on afterwards"


def test_dataset_items(generated_boxes):
    for dialect in ("ultralytics", "yolov5"):
        dataset = fy.build_dataset(generated_boxes, dialect=dialect, verbose=False, imgsz=128)
        first, second = dataset[0], dataset[0]
        image = (lambda item: item["img"] if isinstance(item, dict) else item[0])(first)
        assert image.shape == (3, 128, 128)
        other = second["img"] if isinstance(second, dict) else second[0]
        assert not torch.equal(image, other), "asking again gives the next augmentation"
        assert sum(1 for _ in dataset) == len(dataset), "iteration ends with IndexError"
        assert dataset[-1] is not None
        im, hw0, hw = dataset.load_image(1)
        assert im.dtype == np.uint8
        assert im.shape == (*hw, 3)
        assert max(hw) == 128
        assert tuple(dataset.shapes[1]) == hw0[::-1]
        assert [len(x) for x in dataset.labels] == [len(dataset.table.boxes_of(i)) for i in range(len(dataset))]


def test_closed_loader_says_so(generated_boxes):
    loader = fy.build_loader(generated_boxes, **QUICK)
    next(iter(loader))
    loader.close()
    loader.close()
    assert not loader_threads()
    with pytest.raises(fy.FastYoloError, match="closed"):
        next(iter(loader))


def test_a_forgotten_loader_ends_its_threads(generated_boxes):
    loader = fy.build_loader(generated_boxes, **QUICK)
    batch = next(iter(loader))
    assert loader_threads()
    del loader
    gc.collect()
    deadline = time.monotonic() + 10
    while loader_threads() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not loader_threads()
    assert batch["img"].sum() > 0, "its batch outlives it"


def test_many_loaders_leave_nothing_behind(generated_boxes):
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

    for _ in range(3):
        with fy.build_loader(generated_boxes, **QUICK) as loader:
            next(iter(loader))
    before, threads = descriptors(), threading.active_count()
    for _ in range(20):
        with fy.build_loader(generated_boxes, **QUICK) as loader:
            next(iter(loader))
            loader.reset()
            next(iter(loader))
    assert descriptors() <= before
    assert threading.active_count() <= threads


def test_stats_add_up(generated_boxes):
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    assert stats["batches"] == len(loader)
    assert stats["samples"] >= len(loader.dataset)
    assert 0 < stats["load"] < stats["render"]
    assert stats["loads"] >= len(loader.dataset)


def test_each_image_is_decoded_once_per_epoch(tmp_path):
    from tests.conftest import write_set

    data = write_set(tmp_path / "many", "boxes", n=150)
    with fy.build_loader(data, imgsz=64, batch=4, workers=2, verbose=False) as loader:  # pool of 32 tiles, 150 images
        for _ in range(2):
            for _ in loader:
                pass
        prefetched = 4 * (loader.dataset.config.prefetch + 1)
        assert loader.stats()["loads"] <= 2 * 150 + prefetched + 64


def test_drop_last(generated_boxes):
    with fy.build_loader(generated_boxes, drop_last=True, **{**QUICK, "batch": 7}) as loader:
        assert [len(b["im_file"]) for b in loader] == [7, 7, 7]
        assert len(loader) == 3


@pytest.mark.gpu
def test_batches_arrive_on_the_device(generated_boxes):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    with fy.build_loader(generated_boxes, **QUICK) as loader:
        host = [fingerprint(b) for b in loader]
        assert next(iter(loader))["img"].is_pinned()
    with fy.build_loader(generated_boxes, device="cuda:0", **QUICK) as loader:
        batches = list(loader)
    assert all(b["img"].is_cuda for b in batches)
    moved = [{k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in b.items()} for b in batches]
    assert [fingerprint(b) for b in moved] == host
