"""Regions of a step are those of its marks, whatever the first step of an epoch adds."""

from torch.profiler import profile

from laptime.profiling.regions import RegionMarks


def step(marks, *parts):
    marks.begin_step()
    for part in parts:
        marks(part)
    marks.end_step()


def calls(recorded) -> dict[str, int]:
    return {row.key: row.count for row in recorded.key_averages()}


def test_a_first_step_teaches_the_order_and_the_next_ones_are_named():
    marks = RegionMarks()
    with profile() as recorded:
        step(marks, "data", "forward", "optimizer", "optimizer")
        step(marks, "data", "forward", "optimizer", "optimizer")
    assert calls(recorded) == {"data": 1, "forward": 1, "optimizer": 2}


def test_a_mark_that_only_an_epoch_s_first_step_has_shifts_no_name():
    marks = RegionMarks()
    step(marks, "workers", "data", "forward")
    step(marks, "data", "forward")
    assert marks.order == ("data", "forward")
    with profile() as recorded:
        step(marks, "workers", "data", "forward")
        step(marks, "data", "forward")
    assert marks.order == ("data", "forward")
    assert calls(recorded) == {"data": 3, "forward": 2}
