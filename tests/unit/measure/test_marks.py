"""Marks by part and step, by injected clocks."""

import gc

import pytest

from laptime.measure.marks import Clocks, StepMarks
from laptime.measure.pauses import watched_pauses


class Clock:
    """Wall, thread and process time that a test moves on by itself."""

    def __init__(self) -> None:
        self.now = self.used = self.process = 0

    def pass_ms(self, milliseconds: float, cpu_share: float = 1.0) -> None:
        self.now += round(milliseconds * 1_000_000)
        self.used += round(milliseconds * 1_000_000 * cpu_share)
        self.process += round(milliseconds * 2_000_000)

    def marks(self) -> StepMarks:
        return StepMarks(Clocks(lambda: self.now, lambda: self.used, lambda: self.process))


def run_step(clock: Clock, marks: StepMarks, rest: float = 0.0, /, **parts: float) -> None:
    for part, duration in parts.items():
        clock.pass_ms(duration)
        marks(part)
    clock.pass_ms(rest)
    marks.end_step()


def test_parts_add_up_to_the_steps():
    clock = Clock()
    marks = clock.marks()
    marks.start(3)
    for wait, forward, rest in ((3, 10, 1), (5, 10, 2), (4, 13, 0)):
        run_step(clock, marks, rest, data=wait, forward=forward)
    marks.stop()
    times = marks.times()
    assert times.parts_s() == {"data": 0.012, "forward": 0.033, "rest": 0.003}
    assert times.step_ms_median() == 17.0
    assert times.ns.sum() == clock.now
    assert times.ns.sum(axis=1).tolist() == [14_000_000, 17_000_000, 17_000_000]


def test_a_part_that_ends_twice_in_a_step_is_added_up():
    clock = Clock()
    marks = clock.marks()
    marks.start(1)
    for part, duration in (("data", 2), ("copy", 3), ("data", 1), ("optimizer", 4), ("optimizer", 5)):
        clock.pass_ms(duration)
        marks(part)
    marks.end_step()
    marks.stop()
    assert marks.times().parts_s() == {"data": 0.003, "copy": 0.003, "optimizer": 0.009, "rest": 0.0}


def test_starting_workers_is_a_part_of_the_wait_and_known_by_itself():
    clock = Clock()
    marks = clock.marks()
    marks.start(2)
    run_step(clock, marks, 0.0, workers=7, data=2, forward=1)
    run_step(clock, marks, 0.0, data=2, forward=1)
    marks.stop()
    times = marks.times()
    assert times.parts == ("data", "forward", "rest")
    assert times.worker_start_ns == 7_000_000
    assert times.parts_s()["data"] == 0.011


def test_start_forgets_the_epoch_before():
    clock = Clock()
    marks = clock.marks()
    marks.start(2)
    run_step(clock, marks, data=7)
    run_step(clock, marks, data=7)
    marks.stop()
    marks.start(2)
    marks.stop()
    times = marks.times()
    assert times.parts_s() == {}
    assert times.step_ms_median() is None
    assert (times.fetch_wall_ns, times.process_cpu_ns) == (0, 0)


def test_marks_outside_of_an_epoch_are_not_kept_and_a_step_that_broke_off_neither():
    clock = Clock()
    marks = clock.marks()
    marks("data")
    marks.start(2)
    run_step(clock, marks, data=7)
    clock.pass_ms(9)
    marks("data")
    marks.stop()
    marks("forward")
    assert marks.times().parts_s() == {"data": 0.007, "rest": 0.0}


def test_more_steps_and_more_marks_than_were_announced_find_room():
    clock = Clock()
    marks = clock.marks()
    marks.start(1)
    for _ in range(50):
        run_step(clock, marks, **{f"part {n}": 1 for n in range(10)})
    marks.stop()
    times = marks.times()
    assert times.ns.shape == (50, 11)
    assert times.parts_s() == {**{f"part {n}": 0.05 for n in range(10)}, "rest": 0.0}


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_fetches_that_wait_differ_from_fetches_that_compute(share):
    clock = Clock()
    marks = clock.marks()
    marks.start(17)
    for step in range(17):
        clock.pass_ms(20, cpu_share=1.0 if step == 0 else share)
        marks("data")
        run_step(clock, marks, copy=3, data=1, forward=10)
    marks.stop()
    times = marks.times()
    assert times.fetch_wall_ns == 2 * 20_000_000  # the steps 1 and 9; never the first one
    assert times.fetch_cpu_ns / times.fetch_wall_ns == share
    assert times.process_cpu_ns == 16 * 34 * 2_000_000


class Recorder:
    """Stands where a device's events stand, and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def mark(self, part: str) -> None:
        self.told.append(part)

    def end_step(self) -> None:
        self.told.append("end")

    def steps_ms(self) -> dict[str, list[float]]:
        return {"data": [1.0]}


def test_a_device_is_told_each_border_once_and_nothing_outside_of_an_epoch():
    clock = Clock()
    marks = clock.marks()
    marks.device = Recorder()
    marks("data")
    for _ in range(2):
        marks.device.told.clear()
        marks.start(12)
        for _ in range(12):
            run_step(clock, marks, 1, data=1, copy=1, forward=1)
        marks.stop()
        marks("forward")
        assert marks.device.told == ["start", *["data", "copy", "forward", "rest", "end"] * 12]
        assert marks.times().device_ms == {"data": [1.0]}


def test_the_collector_s_passes_are_added_up_and_not_watched_afterwards():
    ticks = iter(range(0, 1000, 5))
    before = list(gc.callbacks)
    with watched_pauses(lambda: next(ticks)) as pauses:
        gc.disable()
        try:
            gc.collect()
            gc.collect()
        finally:
            gc.enable()
    seen = pauses.held.gc_s
    gc.collect()
    assert seen == pauses.held.gc_s == pytest.approx(2 * 5e-9)
    assert gc.callbacks == before
