"""The CPU time of real loader workers: ones that compute, ones that sleep, ones that end with their epoch."""

import gc
import time

import pytest
import torch
from measure_examples import tiny_recipe
from torch.utils.data import DataLoader, Dataset

from laptime.engine.build import build
from laptime.measure.epochs import Plan, Session
from laptime.measure.loader_workers import cpu_s_by_worker, spent_s
from laptime.measure.marks import StepMarks

ITEM_S = 0.01


def spin(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


class Items(Dataset[int]):
    def __init__(self, busy: bool) -> None:
        self.busy = busy

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        (spin if self.busy else time.sleep)(ITEM_S)
        return index


def spent_in_an_epoch(busy: bool, persistent: bool) -> float | None:
    loader = DataLoader(Items(busy), batch_size=4, num_workers=2, persistent_workers=persistent)
    list(loader)
    gc.collect()  # workers of the loaders before this one
    before = cpu_s_by_worker()
    list(loader)
    return spent_s(before, cpu_s_by_worker())


def test_workers_that_compute_differ_from_workers_that_sleep():
    busy, asleep = (spent_in_an_epoch(busy, persistent=True) for busy in (True, False))
    assert busy > 16 * ITEM_S / 2  # the system counts a process's time in hundredths of a second
    assert asleep < busy / 2


def test_of_workers_that_end_with_the_epoch_nothing_is_known():
    assert spent_in_an_epoch(busy=True, persistent=False) is None
    assert spent_s({1: 2.0}, {1: 3.0, 4: 0.5}) is None


class Spinning:
    """A transform that costs CPU time."""

    def __init__(self, inner) -> None:
        self.inner = inner

    def __call__(self, image) -> torch.Tensor:
        spin(ITEM_S)
        return self.inner(image)


def epochs(count: int, warmup_epochs: int):
    marks = StepMarks()
    recipe = tiny_recipe("workers", workers={"count": count})
    parts = build(recipe, marks)
    items = parts.loader.loader.dataset
    items.transform = Spinning(items.transform)
    session, plan = Session(parts, recipe, marks, lambda *_: None), Plan(2, warmup_epochs, None)
    session.warm_up(plan)
    return [epoch.breakdown for epoch in session.counted(plan)]


def test_an_epoch_records_what_its_workers_took():
    for found in epochs(2, warmup_epochs=1):
        # 28 images in four steps.
        assert found.workers_cpu_ms == pytest.approx(28 * ITEM_S * 1e3 / 4, rel=0.5)
    assert [found.workers_cpu_ms for found in epochs(0, warmup_epochs=1)] == [None, None]


def test_the_epoch_that_starts_its_workers_does_not_know_what_they_took():
    first, second = epochs(1, warmup_epochs=0)
    assert first.workers_cpu_ms is None
    assert second.workers_cpu_ms > 28 * ITEM_S * 1e3 / 4 / 2
