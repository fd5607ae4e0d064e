"""Worker processes and copies beside the step give the batches of the plain loader."""

import multiprocessing
import pickle
import re
from dataclasses import replace

import pytest
import torch

from laptime.engine.build import build
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations import loader, loader_room
from laptime.optimizations.augment import Augmented
from laptime.optimizations.data import ItemDataset, items, settle
from laptime.optimizations.loader import candidates, pinned, workers
from laptime.optimizations.resident import NormalizedLoader, ResidentLoader, image_loader, no_room, resident


def all_batches(recipe, epochs=2):
    loader = items(recipe)
    return [b for epoch in range(epochs) for b in loader.epoch(epoch)], len(loader)


@pytest.mark.parametrize("change", [lambda r: workers(r, {"count": 2}), lambda r: pinned(r, {})])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_batches_are_those_of_the_plain_loader(recipe, change, channels_last):
    plain = replace(recipe, channels_last=channels_last, batch_size=20)
    expected, steps = all_batches(plain)
    found, found_steps = all_batches(change(plain))
    assert found_steps == steps
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.inputs.equal(other.inputs)
        assert one.inputs.stride() == other.inputs.stride()
        assert one.labels.equal(other.labels)


def test_an_epoch_that_was_left_early_does_not_spoil_the_next(recipe):
    chosen = workers(recipe, {"count": 2})
    loader, expected = items(chosen), all_batches(recipe, 1)[0]
    next(iter(loader.epoch(3)))
    assert all(a.inputs.equal(b.inputs) for a, b in zip(loader.epoch(0), expected, strict=True))
    assert len(multiprocessing.active_children()) == 2
    del loader
    assert not multiprocessing.active_children()


def test_without_workers_nothing_more_is_fetched_of_an_epoch_that_was_left_early(recipe, monkeypatch):
    plain, fetched = ItemDataset.__getitem__, []
    monkeypatch.setattr(ItemDataset, "__getitem__", lambda self, index: fetched.append(index) or plain(self, index))
    loader = items(replace(recipe, batch_size=4))
    next(iter(loader.epoch(3)))
    settle(loader)
    assert len(fetched) == 4
    assert len(list(loader.epoch(0))) == 12


def test_what_an_epoch_that_was_left_early_has_under_way_is_waited_for(recipe):
    chosen = workers(replace(recipe, batch_size=4), {"count": 2})
    loader, expected = items(chosen), all_batches(replace(recipe, batch_size=4), 1)[0]
    wrapped = Augmented(loader, chosen)
    next(iter(wrapped.epoch(3)))
    assert under_way(loader)
    settle(wrapped)
    assert not under_way(loader)
    settle(wrapped)
    found = list(wrapped.epoch(0))
    assert len(found) == len(expected) == 12
    assert all(a.inputs.equal(b.inputs) for a, b in zip(found, expected, strict=True))


def under_way(loader) -> int:
    """Batches that workers were told to fetch and that nobody has taken yet."""
    return loader.loader._iterator._tasks_outstanding


def test_the_warm_up_leaves_nothing_to_wait_for(recipe):
    recipe = workers(replace(recipe, batch_size=4), {"count": 2})
    parts = build(recipe, mark=StepMarks())
    Session(parts, recipe, parts.mark, lambda *_: None).warm_up(Plan(1, 1, 2))
    assert parts.loader.sampler.stopped
    assert not under_way(parts.loader)
    assert len(list(parts.loader.epoch(0))) == 12


def test_the_number_that_was_tried_out_is_written_down(recipe):
    chosen = workers(recipe, {"count": -1})
    count = chosen.settled["workers"]["count"]
    assert count == chosen.loading.workers
    assert "samples/s" in chosen.notes[-1]
    assert workers(recipe, {"count": count}).loading == chosen.loading
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("cores", "own", "tried"), [(1, 0, (0,)), (4, 0, (0, 2, 4)), (64, 0, (0, 2, 4, 8)), (2, 4, (0, 2, 4))]
)
def test_candidates_are_what_the_cores_hold_and_what_the_baseline_has(recipe, monkeypatch, cores, own, tried):
    monkeypatch.setattr(loader, "allowed_cores", lambda: cores)
    assert candidates(replace(recipe, loading=replace(recipe.loading, workers=own))) == tried


def test_data_of_one_batch_is_timed_epoch_after_epoch(recipe, monkeypatch):
    monkeypatch.setattr(loader, "allowed_cores", lambda: 2)
    whole = replace(recipe, batch_size=len(recipe.data.train))
    (note,) = workers(whole, {"count": -1}).notes[len(recipe.notes) :]
    rates = [float(text.replace(",", "")) for text in re.findall(r"\d: ([\d.,]+) samples/s", note)]
    assert len(rates) == 2
    assert min(rates) > 0


def test_where_memory_holds_no_more_workers_they_are_fewer_and_a_note_tells(recipe, monkeypatch):
    batch = recipe.batch_size * 3 * 4 * recipe.image_size[0] * recipe.image_size[1]
    # Two batches of each of two processes, and a little.
    monkeypatch.setattr(loader_room, "_shared_bytes", lambda: round(2 * 2 * batch / 0.8) + batch)
    chosen = workers(recipe, {"count": 20})
    assert chosen.loading.workers == chosen.settled["workers"]["count"] == 2
    assert "2 loader workers instead of 20: 0.0 GiB of shared memory (/dev/shm) hold no more" in chosen.notes
    monkeypatch.setattr(loader_room, "_shared_bytes", lambda: batch)
    assert workers(recipe, {"count": -1}).loading.workers == 0
    assert not multiprocessing.active_children()


def test_the_dataset_can_be_sent_to_a_spawned_worker(image_data):
    dataset = ItemDataset(image_data)
    sent = pickle.loads(pickle.dumps(dataset))
    assert sent[3][0].equal(dataset[3][0])


def test_images_that_leave_no_room_stay_on_the_host():
    assert no_room(needed=1, free=80, whole=80) is None
    assert no_room(needed=50, free=80, whole=80) is None
    assert "do not fit" in no_room(needed=61, free=80, whole=80)


def test_images_are_normalized_once_where_that_leaves_room(recipe):
    needed = 4 * recipe.data.train.images.numel()
    assert image_loader(recipe, needed, 0) is NormalizedLoader
    assert image_loader(recipe, needed - 1, 0) is ResidentLoader


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["pinned", "resident"])
def test_on_a_gpu_the_images_are_equal_to_the_last_bit(recipe, name):
    expected, _ = all_batches(recipe)
    on_gpu = replace(recipe, device=torch.device("cuda"))
    changed = pinned(on_gpu, {}) if name == "pinned" else resident(on_gpu, {})
    loader = changed.make_loader(changed)
    found = [b for epoch in range(2) for b in loader.epoch(epoch)]
    for one, other in zip(found, expected, strict=True):
        assert one.inputs.is_cuda
        assert one.inputs.cpu().equal(other.inputs)
