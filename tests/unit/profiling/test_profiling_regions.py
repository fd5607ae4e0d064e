"""Regions of a step are those of its marks, whatever the first and the last step of an epoch add or lack."""

from collections import Counter
from dataclasses import replace

from tests.unit.profiling.profiling_examples import tiny
from torch.profiler import profile

from laptime.optimizations.base import Loading
from laptime.profiling.capture import Recorder, record_steps, undisturbed
from laptime.profiling.regions import Kind, RegionMarks
from laptime.spec import ProfileSchedule


def step(marks, kind, *parts):
    marks.begin_step(kind)
    for part in parts:
        marks(part)
    marks.end_step()


def calls(recorded) -> dict[str, int]:
    return {row.key: row.count for row in recorded.key_averages()}


def test_a_first_step_teaches_the_order_and_the_next_ones_are_named():
    marks = RegionMarks()
    with profile() as recorded:
        step(marks, Kind.MIDDLE, "data", "forward", "optimizer", "optimizer")
        step(marks, Kind.MIDDLE, "data", "forward", "optimizer", "optimizer")
    assert calls(recorded) == {"data": 1, "forward": 1, "optimizer": 2}


def test_workers_that_start_shift_no_name():
    marks = RegionMarks()
    step(marks, Kind.FIRST, "workers", "data", "forward")
    assert marks.order == ("data", "forward")
    with profile() as recorded:
        step(marks, Kind.FIRST, "workers", "data", "forward")
    assert calls(recorded) == {"data": 2, "forward": 1}


def test_each_kind_of_step_has_its_own_order():
    marks = RegionMarks()
    kinds = {Kind.FIRST: "ahead data forward", Kind.MIDDLE: "data copy forward", Kind.LAST: "forward"}
    for kind, parts in kinds.items():
        step(marks, kind, *parts.split())
    with profile() as recorded:
        for kind in (Kind.MIDDLE, Kind.LAST, Kind.FIRST, Kind.MIDDLE):
            step(marks, kind, *kinds[kind].split())
    assert calls(recorded) == {"ahead": 1, "data": 3, "copy": 2, "forward": 4}


def test_the_kinds_are_those_of_an_epoch():
    assert [Kind.of(place, 4) for place in range(4)] == [Kind.FIRST, Kind.MIDDLE, Kind.MIDDLE, Kind.LAST]
    assert Kind.of(0, 1) is Kind.FIRST


def test_copies_that_run_ahead_are_named_in_each_step():
    from laptime.engine.build import build

    _, recipe = tiny(train=16)
    parts = build(replace(recipe, loading=Loading(pinned=True)), lambda _: None)
    found: list[Counter[str]] = []
    with undisturbed(parts):
        for _ in range(2):  # the second recording knows all kinds
            with profile() as recorded:
                record_steps(parts, 0, ProfileSchedule(0, 0, 4, 1), Recorder(None))
            found.append(Counter(calls(recorded)))
    # Four steps: data and copy twice, once, once; the last has only the end of its fetch. Then `data` ends each fetch.
    assert (found[1]["data"], found[1]["copy"], found[1]["forward"], found[1]["backward"]) == (8, 4, 4, 4)
