"""Waiting for data, from steps as they were counted to the advice: bursts, uneven items, workers that sleep."""

from __future__ import annotations

import numpy as np
import pytest
from advice_examples import CASES, cpu
from advice_loading import ASLEEP, FULL
from advice_records import record

from laptime.advice import RULES, advise, signals_of
from laptime.advice.judge import ask, judge
from laptime.advice.outcome import Abstain
from laptime.advice.rules.limits import near_the_roof, too_noisy
from laptime.advice.rules.loading import batch_transform, decoded, workers
from laptime.advice.signals import Signals
from laptime.measure.breakdown import break_down
from laptime.measure.marks import EpochTimes
from laptime.records import ProfileRecord, RunRecord
from laptime.records.trace import OperatorRow

COMPUTE_MS = 40.0


def waiting(waits_ms, scatter=0.01, **setup) -> RunRecord:
    """The recorded run, whose steps wait for so long and compute for 40 ms on both cores; its fetches sleep."""
    computed = COMPUTE_MS * np.random.default_rng(0).uniform(1 - scatter, 1 + scatter, len(waits_ms))
    steps = np.stack([np.array(waits_ms), computed], axis=1)
    times = EpochTimes(
        ("data", "forward"),
        np.round(np.vstack([steps[:1], steps]) * 1e6).astype(np.int64),
        worker_start_ns=1 if setup.get("workers") else None,
        fetch_cpu_ns=5,
        fetch_wall_ns=100,
        process_cpu_ns=round(2 * computed.sum() * 1e6),
    )
    plain, found = record(), break_down(times, workers_cpu_s=1e-3 * len(times.ns))
    setup = plain.setup.model_copy(update=setup)
    epoch = plain.epochs[0].model_copy(update={"breakdown": found, "steps": found.steps})
    return plain.model_copy(update={"epochs": (epoch,), "setup": setup})


def ids(advice):
    return [f.id for f in advice.findings]


def test_workers_that_deliver_in_bursts_are_waited_for():
    found = advise(waiting([0, 24] * 60, workers=2, train_mib=150.0))
    assert ids(found) == ["resident-data", "workers"]
    assert found.step_ms == pytest.approx(COMPUTE_MS + 12, rel=0.01)
    said = " ".join(found.findings[0].evidence)
    assert "ms a step are exposed data wait (23 %)" in said
    assert "the wait itself scatters, so its mean counts: half of the steps wait under 12.0 ms" in said
    assert "which mostly wait themselves: take 3" in found.findings[1].what


def test_a_wait_in_every_fourth_step_is_a_wait():
    bursts = waiting([0, 0, 0, 96] * 15, workers=4)
    known = signals_of(bursts)
    assert (known.step_ms, known.wait_ms) == (pytest.approx(64, rel=0.01), pytest.approx(24))
    assert known.noise < 0.02
    assert known.workers_cpu_ms == pytest.approx(1.0)
    profiled = bursts.model_copy(update={"profile": ProfileRecord(schedule="1,2,5,1", floor_share=0.9)})
    assert near_the_roof(signals_of(profiled)) is None
    assert too_noisy(known) is None


def test_a_loader_whose_items_vary_makes_no_noisy_machine():
    found = advise(waiting(24 * np.random.default_rng(1).uniform(0.7, 1.3, 200)))
    assert "workers" in ids(found)
    assert found.noise < 0.02
    low, high = found.findings[0].step_ms_expected
    assert COMPUTE_MS * 0.98 < low < high < 0.8 * found.step_ms


def test_a_machine_that_scatters_is_noisy_whatever_the_loader_does():
    found = advise(waiting([0, 24] * 100, scatter=0.3))
    assert found.findings == ()
    assert found.verdict.startswith("The machine was too noisy")
    assert "not told apart" not in found.verdict


def test_where_the_wait_is_not_told_apart_the_noise_says_so():
    assert "24.0 of 100.0 ms, is not told apart" in too_noisy(cpu(noise=0.2, wait_ms=24.0)).verdict
    assert "told apart" not in too_noisy(cpu(noise=0.2)).verdict


def test_step_wait_and_work_add_up_on_a_gpu_too():
    device_ms = {"data": [0.0, 0.0, 0.0, 8.0] * 5, "forward": [10.0] * 20}
    times = EpochTimes(("data", "forward"), np.full((21, 2), 6_000_000), device_ms=device_ms)
    plain = waiting([0, 0])
    epoch = plain.epochs[0].model_copy(update={"breakdown": break_down(times)})
    spec = plain.spec.model_copy(update={"device": "cuda"})
    found = signals_of(plain.model_copy(update={"epochs": (epoch,), "spec": spec}))
    assert (found.step_ms, found.wait_ms, found.noise) == (12.0, 2.0, None)
    assert found.wait_quartiles_ms == (0.0, 0.0, 2.0)


def test_a_record_without_the_work_of_its_steps_is_judged_by_whole_ones():
    found = signals_of(record(noise=0.08))
    assert (found.step_ms, found.wait_ms, found.noise) == (59.5, 17.9, pytest.approx(0.08))
    assert found.wait_quartiles_ms is None
    epoch = (
        record()
        .epochs[0]
        .model_copy(
            update={
                "breakdown": None,
                "step_ms_median": 40.0,
                "epoch_s": 3.84,
                "parts_s": {"data": 1.44, "forward": 2.4},
            }
        )
    )
    coarse = signals_of(record().model_copy(update={"epochs": (epoch,)}))
    assert (coarse.step_ms, coarse.wait_ms) == (pytest.approx(64), pytest.approx(24))


def test_workers_that_sleep_leave_the_cores_free():
    found = workers(cpu(**ASLEEP))
    assert found.remedy == "workers:count=3"
    assert found.gain_ms == pytest.approx((15.0, 30.0))
    assert "the workers 0.1" in found.evidence[1]
    # All that computes has two cores: (130 + 30) / 2 = 80 ms are the least.
    assert workers(cpu(**ASLEEP | {"workers_cpu_ms": 30.0})).gain_ms[1] == pytest.approx(20.0)


def test_workers_that_compute_are_given_free_cores_alone():
    busy = {**ASLEEP, "workers_cpu_ms": 190.0}
    full = workers(cpu(**busy))
    assert isinstance(full, Abstain)
    assert "use 3.2 of 2 cores already" in full.reason
    assert workers(cpu(**busy, cores=4)).remedy == "workers:count=3"


def test_of_workers_whose_time_nobody_knows_it_says_so():
    found = workers(cpu(**ASLEEP | {"workers_cpu_ms": None}))
    assert isinstance(found, Abstain)
    assert "the workers' CPU time is not known" in found.reason
    room = workers(cpu(workers=1, wait_ms=30.0, process_cpu_ms=60.0, cores=8))
    assert "is taken to fill one" in room.evidence[1]


def test_a_transform_that_was_timed_narrows_the_range():
    unknown = batch_transform(cpu(**FULL))
    assert unknown.gain_ms == pytest.approx((6.0, 27.0))
    assert "20,000 MiB" in " ".join(unknown.evidence)
    assert "all 2 cores" in " ".join(unknown.evidence)
    rows = (
        OperatorRow(name="aten::div", self_ms=15.0, calls=32, region="data"),
        OperatorRow(name="aten::sub_", self_ms=5.0, calls=32, region="data"),
        OperatorRow(name="aten::conv2d", self_ms=40.0, calls=9, region="forward"),
    )
    timed = batch_transform(cpu(**FULL, operators=rows))
    assert timed.gain_ms == pytest.approx((0.78 * 20.0, 27.0))
    assert timed.confidence > unknown.confidence
    assert "20.0 ms a step of it in operations on single items" in timed.evidence[1]


def test_nothing_is_proposed_twice_for_one_wait():
    for fires, _ in CASES.values():
        for s in fires:
            given = ids(judge(ask(RULES, s), s, {}))
            assert "batch-transform" not in given or not {"workers", "resident-data"} & set(given)


def test_a_step_whose_loader_nobody_knows_gets_no_advice_on_it():
    proposed = {p.id for p in ask(RULES, Signals(step_ms=100.0, wait_ms=30.0)).proposals}
    assert not proposed & {"workers", "resident-data", "batch-transform"}


def test_an_image_folder_whose_files_take_the_time_is_kept_decoded_and_not_transformed_otherwise():
    folder = cpu(**FULL, decoding_share=0.6)
    found = decoded(folder)
    assert found.gain_ms == pytest.approx((0.75 * 0.6 * 30.0, 1.3 * 0.6 * 30.0))
    assert found.remedy == "decoded"
    assert batch_transform(folder) is None
    assert decoded(cpu(**{**FULL, "workers": 2}, decoding_share=0.6)).gain_ms[1] == pytest.approx(30.0)
