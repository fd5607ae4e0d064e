"""Marks add up, by an injected clock."""

from laptime.measure.marks import StepMarks


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds * 1_000_000


def test_parts_add_up_to_the_steps():
    clock = Clock()
    marks = StepMarks(clock)
    marks.start()
    for wait, forward, rest in ((3, 10, 1), (5, 10, 2), (4, 13, 0)):
        for part, duration in (("data", wait), ("forward", forward)):
            clock.pass_ms(duration)
            marks(part)
        clock.pass_ms(rest)
        marks.end_step()
    assert marks.parts_s() == {"data": 0.012, "forward": 0.033, "rest": 0.003}
    assert marks.step_ms_median() == 17.0
    assert sum(marks.steps_ns) == sum(marks.totals_ns.values())


def test_start_forgets_the_epoch_before():
    clock = Clock()
    marks = StepMarks(clock)
    marks.start()
    clock.pass_ms(7)
    marks("data")
    marks.start()
    assert marks.parts_s() == {}
    assert marks.step_ms_median() is None
