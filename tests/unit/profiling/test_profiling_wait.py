"""The wait that the marks see and the one that the trace attributes are one and the same, over the same steps."""

import runpy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.unit.profiling.profiling_examples import tiny

from laptime.engine.build import build
from laptime.measure.marks import StepMarks
from laptime.spec import ProfileSchedule

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks" / "breakdown.py"


@pytest.mark.parametrize("workers", [0, 1])
def test_marks_and_trace_see_the_same_wait(tmp_path, workers):
    script = runpy.run_path(str(SCRIPT))
    _, recipe = tiny(train=40)
    # Four items a batch: 20 ms of waiting beside a step of a millisecond or two, so that a worker can't hide it.
    make_loader = partial(script["slowed"], delay=script["Delay"](0.005, busy=False))
    recipe = replace(recipe, make_loader=make_loader, loading=replace(recipe.loading, workers=workers))
    found = script["compared"](build(recipe, StepMarks()), ProfileSchedule(0, 1, 4, 1), tmp_path)
    assert workers or found.marked_ms > 10  # a busy machine's step may hide what a worker waits
    assert found.traced_ms == pytest.approx(found.marked_ms, rel=0.1, abs=0.2)
    assert found.step_ms > found.marked_ms
