"""The warm-up meets every shape of an epoch, on all ranks alike, and takes no step for nothing."""

import gc
import weakref
from dataclasses import replace

import pytest
from tests.unit.conftest import make_data, make_spec

from laptime.engine.build import build, make_recipe
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.workloads.base import Counts
from laptime.world import World


def warmed_up(recipe, **changes) -> list[int]:
    """Samples of each step of a warm-up that is cut to one step."""
    taken = []

    def step(p, batch):
        taken.append(len(batch))
        return Counts(0.0, 0, len(batch))

    recipe = replace(recipe, step=step, **changes)
    parts = build(recipe, mark=StepMarks())
    Session(parts, recipe, parts.mark, lambda *_: None).warm_up(Plan(1, 1, 1))
    return taken


@pytest.mark.parametrize("epochs", [0, 1])
def test_what_the_set_up_has_left_is_collected_before_the_first_epoch(recipe, epochs):
    """A full search for garbage among all that was imported had fallen into one of the first epochs."""
    cycle = type("Cycle", (), {})()
    cycle.itself, gone = cycle, weakref.ref(cycle)
    del cycle
    parts = build(recipe, mark=StepMarks())
    gc.disable()
    try:
        Session(parts, recipe, parts.mark, lambda *_: None).warm_up(Plan(1, epochs, 1))
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.gpu
def test_on_a_gpu_the_first_epoch_alone_says_what_memory_training_takes():
    recipe = make_recipe(make_spec(device="cuda"), make_data(size=8), ())
    parts = build(recipe, mark=StepMarks())
    session, plan = Session(parts, recipe, parts.mark, lambda *_: None), Plan(3, 1, None)
    session.warm_up(plan)
    first, *later = [epoch.peak_memory_mib for epoch in session.counted(plan)]
    assert first > 0
    assert later == [None, None]


@pytest.mark.parametrize(("size", "expected"), [(20, [20, 8]), (16, [16]), (48, [48])])
def test_the_last_batch_is_met_where_it_is_of_another_size(recipe, size, expected):
    assert len(recipe.data.train) == 48
    assert warmed_up(recipe, batch_size=size) == expected


@pytest.mark.parametrize("size", [7, 15])
def test_ranks_take_as_many_steps_though_only_one_of_them_meets_another_size(recipe, size):
    """48 images leave a last batch of 6 and of 3: steps exchange gradients, so one rank alone would wait for ever."""
    found = [warmed_up(recipe, batch_size=size, world=World(rank=rank, size=2)) for rank in (0, 1)]
    assert [len(taken) for taken in found] == [2, 2]
