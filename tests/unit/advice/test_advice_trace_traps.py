"""What a trace seems to say at first sight, and what it says: written by hand as torch writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.advice.test_advice_from_traces import Part, computed, copied, fetched, findings, short
from tests.unit.trace.trace_builder import SIDE, Trace, training

from laptime.advice import advise
from laptime.errors import DataError
from laptime.records import Advice, TraceSummary
from laptime.trace import summarize

_STEP_US, _STEPS = 1000.0, 10


def updated(*operators: str, kernels: int) -> Part:
    """An update of the optimizer over the last 600 us, by kernels that follow one another."""

    def add(trace: Trace, at: float) -> None:
        trace.note("Optimizer.step#AdamW.step", at + 300, 90)
        each = 600 / kernels
        for number in range(kernels):
            op = trace.op(operators[number % len(operators)], at + 300 + number * 90 / kernels, 0.9)
            trace.launch(op, at + 300.1 + number * 90 / kernels, at + 390 + number * each, each, "multi_tensor_apply")

    return add


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        (("aten::_foreach_add_", "aten::_fused_adamw_"), ""),
        (("aten::_foreach_add_", "aten::_foreach_mul_"), "with foreach kernels"),
        (("aten::add_", "aten::addcdiv_"), "in a loop"),
    ],
)
def test_an_update_of_many_kernels_is_a_loop_only_where_its_operators_say_so(
    operators: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    found = findings((computed(end=390), updated(*operators, kernels=80)), tmp_path)
    assert ("optimizer" in found) == bool(words)
    if words:
        assert words in found["optimizer"].evidence[0]


def advice_of(trace: Trace, folder: Path) -> tuple[Advice, TraceSummary]:
    summary = summarize(trace.write(folder / "trace.json"))
    return advise(None, summary), summary


def steps_of(*parts: Part) -> Trace:
    trace = Trace()
    for number in range(_STEPS):
        at = number * _STEP_US
        trace.step(number + 3, at, _STEP_US)
        for part in parts:
            part(trace, at)
    return trace


def waiting(trace: Trace, at: float) -> None:
    trace.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 400)


def test_without_kernels_nobody_knows_what_a_gpu_waits_for(tmp_path: Path) -> None:
    trace = steps_of(waiting, computed(410, 990))
    seen, _ = advice_of(trace, tmp_path)
    assert "workers" in {f.id for f in seen.findings}
    trace.events = [e for e in trace.events if e.get("cat") != "kernel"]
    blind, summary = advice_of(trace, tmp_path)
    assert "device" in summary.missing
    assert "workers" not in {f.id for f in blind.findings}
    assert any(w.id == "workers" and "exposed data wait" in w.reason for w in blind.withheld)


def test_idle_time_without_a_mark_of_data_may_be_a_wait_for_it(tmp_path: Path) -> None:
    advice, summary = advice_of(steps_of(short), tmp_path)
    assert "data" in summary.missing
    assert "launch-bound" not in {f.id for f in advice.findings}
    (why,) = (w.reason for w in advice.withheld if w.id == "launch-bound")
    assert 'record_function("data")' in why
    advice, summary = advice_of(steps_of(fetched, short), tmp_path)
    assert "data" not in summary.missing
    assert "launch-bound" in {f.id for f in advice.findings}


def zeroed(trace: Trace, at: float) -> None:
    """Gradients filled with zeros on a GPU: the host takes its time for it, which the device hides."""
    trace.note("Optimizer.zero_grad#SGD.zero_grad", at + 10, 300)
    for number in range(10):
        zero = trace.op("aten::zero_", at + 11 + 29 * number, 28)
        fill = trace.op("aten::fill_", at + 11.5 + 29 * number, 27)
        trace.launch(fill, at + 13 + 29 * number, at + 800 + 15 * number, 15, "FillFunctor")
        assert zero


def test_zeroed_gradients_count_by_the_device_though_the_fill_stands_for_its_caller(tmp_path: Path) -> None:
    found = findings((fetched, computed(end=790), zeroed), tmp_path)["zero-grad"]
    assert "filling them takes 0.15 of 1.0 ms" in found.evidence[0]


def test_on_a_cpu_too(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(_STEPS):
        at = number * _STEP_US
        trace.step(number + 3, at, _STEP_US)
        trace.note("Optimizer.zero_grad#SGD.zero_grad", at + 600, 310)
        trace.op("aten::zero_", at + 601, 300)
        trace.op("aten::fill_", at + 601.5, 299)
        trace.note("Optimizer.step#SGD.step", at + 910, 80)
    found = {f.id: f for f in advice_of(trace, tmp_path)[0].findings}
    assert "filling them takes 0.30 of 1.0 ms" in found["zero-grad"].evidence[0]


def test_a_collector_that_the_device_hides_costs_nothing(tmp_path: Path) -> None:
    def collected(trace: Trace, at: float) -> None:
        trace.line("Python GC", at + 300, 200)

    assert "garbage-collection" not in findings((fetched, computed(10, 999), collected), tmp_path)
    assert "garbage-collection" in findings((fetched, computed(end=700), collected), tmp_path)


def test_collectives_at_once_are_waited_for_once(tmp_path: Path) -> None:
    def sharded(trace: Trace, at: float) -> None:
        trace.meta["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}
        for number, name in enumerate(("AllGather", "ReduceScatter")):
            trace.device("kernel", f"ncclDevKernel_{name}_RING_LL", at + 600, 300, stream=SIDE + number)

    summary = summarize(steps_of(fetched, computed(end=590), sharded).write(tmp_path / "t.json"))
    assert sum(r.exposed_ms for r in summary.collectives) == pytest.approx(0.3)
    assert [r.ms for r in summary.collectives] == pytest.approx([0.3, 0.3])


def test_pageable_copies_beside_kernels_cost_nothing(tmp_path: Path) -> None:
    assert "pinned-copies" not in findings((fetched, computed(), copied("Pageable", beside=True)), tmp_path)


def test_marks_around_steps_and_of_a_second_profiler_are_no_steps(tmp_path: Path) -> None:
    plain = summarize(training(4).write(tmp_path / "plain.json"))
    around, twice = training(4), training(4)
    around.step(100, -5, 4010)
    for number in range(4):
        twice.step(number + 3, number * 1000.0, 1000.0)
    for trace in (around, twice):
        found = summarize(trace.write(tmp_path / "other.json"))
        assert found.steps == 4
        assert found.step_mean_ms == plain.step_mean_ms
        assert found.attribution_ms == plain.attribution_ms


def test_several_processes_in_one_file_are_told(tmp_path: Path) -> None:
    trace = training(3)
    other = [{**e, "pid": 200} for e in training(3).events if e.get("pid") == 100]
    trace.events += other
    with pytest.raises(DataError, match="steps of 2 processes"):
        summarize(trace.write(tmp_path / "both.json"))


def test_a_recording_whose_schedule_began_anew_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text(json.dumps({"schemaVersion": 1, "trace_id": "A", "traceEvents": []}))
    with pytest.raises(DataError, match=r"begun another cycle.*repeat=1"):
        summarize(path)


def test_torch_before_1_11_wrote_its_marks_as_operators(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(_STEPS):
        at = number * _STEP_US
        trace.host("Operator", f"ProfilerStep#{number}", at, _STEP_US)
        trace.host("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 400)
        trace.host("Operator", "aten::mm", at + 410, 400)
        trace.host("Operator", "Optimizer.step#SGD.step", at + 820, 150)
    summary = summarize(trace.write(tmp_path / "old.json"))
    assert summary.attribution_ms["data_loading"] == pytest.approx(0.4)
    assert summary.optimizer_ms == pytest.approx(0.15)
    assert [r.name for r in summary.operators] == ["aten::mm"]
