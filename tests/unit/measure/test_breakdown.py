"""From marks to quartiles; and the parts of real epochs, by an injected clock."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from measure_examples import tiny_recipe

from laptime.engine.build import build
from laptime.engine.loop import train_epoch
from laptime.measure.breakdown import Ending, break_down, device_steps_ms, middle_step_ms
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import Clocks, EpochTimes, StepMarks
from laptime.measure.pauses import Held
from laptime.records import Quartiles


def counted(recipe, marks: StepMarks | None = None, epochs: int = 2):
    marks = marks or StepMarks()
    session = Session(build(recipe, marks), recipe, marks, lambda *_: None)
    plan = Plan(epochs, 1, None)
    session.warm_up(plan)
    return list(session.counted(plan))


def times_of(*steps: dict[str, float], **more) -> EpochTimes:
    parts = tuple(dict.fromkeys(name for step in steps for name in step))
    table = [[round(step.get(p, 0) * 1e6) for p in parts] for step in steps]
    return EpochTimes(parts, np.array(table, dtype=np.int64).reshape(len(steps), len(parts)), **more)


def test_the_first_step_stands_apart():
    first = {"data": 100, "copy": 5, "forward": 300}
    later = [{"data": d, "forward": f} for d, f in ((1, 10), (2, 20), (3, 30), (4, 40), (5, 50))]
    found = break_down(times_of(first, *later, worker_start_ns=60_000_000), Held(0.25, 0.006, 300))
    assert found.steps == 5
    assert (found.step_ms.low, found.step_ms.median, found.step_ms.high) == (22, 33, 44)
    assert found.parts_ms["data"].median == 3
    assert found.parts_ms["copy"].high == 0
    assert found.first_batch_s == 0.105
    assert found.worker_start_s == 0.06
    assert (found.gc_s, found.system_cpu_ms, found.page_faults) == (0.25, 1, 50)
    assert found.mean_ms == {"data": 3, "copy": 0, "forward": 30}


def test_means_add_up_to_the_mean_step():
    random = np.random.default_rng(0).lognormal(size=(200, 5))
    times = times_of(*({f"part {i}": v for i, v in enumerate(step)} for step in random))
    found = break_down(times)
    assert sum(found.mean_ms.values()) == pytest.approx(times.ns[1:].sum(axis=1).mean() / 1e6, rel=1e-12)


def test_the_work_of_a_step_is_told_apart_from_a_wait_that_comes_in_bursts():
    found = break_down(times_of(*[{"data": wait, "forward": 40} for wait in (90, *(0, 0, 0, 96) * 5)]))
    assert found.compute_ms == Quartiles.of([40])
    assert (found.step_ms.median, found.step_ms.high) == (40, 64)
    assert found.mean_ms == {"data": 24, "forward": 40}
    assert break_down(times_of({"step": 3}, {"step": 5})).compute_ms == Quartiles.of([5])


def test_the_epoch_s_workers_are_shared_out_over_all_its_steps():
    steps = [{"data": 4}] * 5
    assert break_down(times_of(*steps, worker_start_ns=1), workers_cpu_s=0.2).workers_cpu_ms == pytest.approx(40)
    assert break_down(times_of(*steps, worker_start_ns=1)).workers_cpu_ms is None
    assert break_down(times_of(*steps), workers_cpu_s=0.2).workers_cpu_ms is None  # processes of another kind


def test_one_step_is_described_by_itself_and_none_by_nothing():
    found = break_down(times_of({"data": 4, "forward": 6}))
    assert (found.steps, found.step_ms.median, found.process_cpu_ms) == (1, 10, None)
    assert break_down(EpochTimes((), np.zeros((0, 0), dtype=np.int64))) is None


def test_cpu_time_is_given_where_it_was_measured():
    steps = [{"data": 4, "forward": 6}] * 3
    found = break_down(times_of(*steps, fetch_cpu_ns=1, fetch_wall_ns=4, process_cpu_ns=40_000_000))
    assert (found.fetch_cpu_share, found.process_cpu_ms) == (0.25, 20)
    assert break_down(times_of(*steps)).fetch_cpu_share is None


def test_device_times_become_quartiles_by_part():
    found = break_down(times_of({"step": 1}, device_ms={"step": [3.0, 1.0, 2.0], "data": [0.0, 0.0, 0.0]}))
    assert found.device_ms == {"step": Quartiles.of([1, 2, 3]), "data": Quartiles.of([0])}
    assert found.device_mean_ms == {"step": 2, "data": 0}


def ahead(steps: int, **more) -> EpochTimes:
    """A host that asks for a step in a millisecond, after a first one of 100."""
    return times_of({"data": 90, "forward": 10}, *[{"data": 0.25, "forward": 0.75}] * (steps - 1), **more)


def test_a_gpu_s_step_is_on_its_own_clock():
    device_ms = {"data": [0.5, 0.0, 0.5, 1.0], "forward": [19.5, 10.0, 29.5, 39.0]}
    times = ahead(9, device_ms=device_ms)
    assert device_steps_ms(device_ms) == [20.0, 10.0, 30.0, 40.0]
    found = break_down(times, ending=Ending(own_s=0.3, drain_s=0.192))
    assert found.step_ms == Quartiles.of([20, 10, 30, 40])
    assert found.step_p99_ms == pytest.approx(39.7)
    assert found.compute_ms == Quartiles.of([19.5, 10, 29.5, 39])
    assert found.device_mean_ms == {"data": 0.5, "forward": 24.5}
    assert (found.steps, found.drain_s) == (8, 0.192)
    assert found.parts_ms["forward"].median == 0.75
    assert found.mean_ms == {"data": 0.25, "forward": 0.75}
    assert middle_step_ms(times, found) == 25


def test_where_no_step_of_a_gpu_was_read_the_epoch_s_seconds_tell_the_mean():
    found = break_down(ahead(9), ending=Ending(own_s=0.34, drain_s=0.232))
    assert found.step_ms.low == found.step_ms.median == found.step_ms.high == pytest.approx(30)
    assert found.step_p99_ms is None
    assert found.compute_ms is None
    one = break_down(ahead(1), ending=Ending(own_s=0.12, drain_s=0.02))
    assert one.step_ms.median == pytest.approx(120)


def test_a_host_that_waits_in_every_step_has_the_gpu_s_steps():
    found = break_down(ahead(9), ending=Ending(own_s=0.1081, drain_s=0.0001))
    assert found.step_ms == Quartiles.of([1])
    assert found.step_p99_ms == pytest.approx(1)
    assert found.drain_s == 0.0001


def test_a_cpu_s_middle_step_is_of_all_steps():
    times = times_of({"step": 50}, {"step": 1}, {"step": 2}, {"step": 3})
    found = break_down(times)
    assert (found.step_ms.median, found.drain_s) == (2, None)
    assert middle_step_ms(times, found) == 2.5
    assert middle_step_ms(EpochTimes((), np.zeros((0, 0), dtype=np.int64)), None) is None


def test_the_parts_of_an_epoch_are_its_steps():
    ticks = itertools.count(step=1_000_000)
    cpu = itertools.count()
    marks = StepMarks(Clocks(lambda: next(ticks), lambda: next(cpu), lambda: next(cpu)))
    epoch = counted(tiny_recipe(), marks)[1]
    found = epoch.breakdown
    # Each mark takes one tick of a millisecond: four steps of six parts, three without the first.
    assert epoch.steps == 4
    assert found.steps == 3
    assert list(found.parts_ms) == ["data", "forward", "backward", "optimizer", "read", "rest"]
    assert found.step_ms.median == sum(q.median for q in found.parts_ms.values()) == 6
    assert sum(found.mean_ms.values()) == pytest.approx(6)
    assert sum(epoch.parts_s.values()) == pytest.approx(0.024)
    assert epoch.data_wait_s == pytest.approx(0.004)
    assert found.first_batch_s == pytest.approx(0.001)
    assert found.device_ms == {}
    assert found.worker_start_s is None
    assert found.drain_s is None
    assert epoch.step_ms_median == 6
    assert found.gc_s is not None
    assert found.page_faults is not None


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (("resident", "no-reads"), {"data", "forward", "backward", "optimizer", "rest"}),
        (("channels-last",), {"data", "copy", "forward", "backward", "optimizer", "read", "rest"}),
        (("pinned",), {"data", "copy", "forward", "backward", "optimizer", "read", "rest"}),
        (("resident", "no-reads", "graph"), {"data", "step", "rest"}),
        (("flip", "channels-last"), {"data", "copy", "forward", "backward", "optimizer", "read", "rest"}),
    ],
)
def test_each_kind_of_step_has_its_parts(names, parts):
    for epoch in counted(tiny_recipe(*names)):
        assert set(epoch.parts_s) == set(epoch.breakdown.parts_ms) == parts
        assert sum(epoch.breakdown.mean_ms.values()) > 0
        assert epoch.breakdown.first_batch_s > 0


def test_worker_processes_have_a_start():
    epoch = counted(tiny_recipe("workers", workers={"count": 1}), epochs=1)[0]
    assert 0 < epoch.breakdown.worker_start_s <= epoch.breakdown.first_batch_s
    assert "workers" not in epoch.parts_s


def test_the_border_between_fetch_and_copy_is_the_loader_s():
    recipe = tiny_recipe("channels-last")
    seen: list[str] = []
    parts = build(recipe, mark=seen.append)
    for _ in parts.loader.epoch(0, parts.mark):
        seen.append("batch")
    assert seen[:6] == ["data", "copy", "batch"] * 2


def test_an_epoch_s_records_survive_their_json():
    epoch = counted(tiny_recipe("resident"), epochs=1)[0]
    assert type(epoch).model_validate_json(epoch.model_dump_json()) == epoch


@pytest.mark.gpu
def test_on_a_gpu_the_same_parts_have_device_times():
    recipe = replace(tiny_recipe("resident", "no-reads"), device=torch.device("cuda"))
    epoch = counted(recipe)[1]
    found = epoch.breakdown
    assert set(found.device_ms) == {"data", "forward", "backward", "optimizer", "rest"}
    assert all(q.low >= 0 for q in found.device_ms.values())
    assert found.device_ms["backward"].median > 0
    assert found.step_ms.median == epoch.step_ms_median >= found.device_ms["backward"].median
    assert 0 <= found.drain_s <= epoch.epoch_s


def test_marks_change_nothing_that_is_learnt():
    def losses(mark) -> list[float]:
        return [float(counts.loss_sum) for counts in train_epoch(build(tiny_recipe("channels-last"), mark=mark), 0)]

    marks = StepMarks()
    marks.start(4)
    marked = losses(marks)
    assert len(marked) == 4
    assert marked == losses(lambda _: None)
