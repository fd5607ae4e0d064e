"""Rules that were told what their remedy took in a trial, beside what they say without one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from advice_examples import cpu
from advice_records import record

from laptime.advice import signals_of
from laptime.advice.outcome import Abstain
from laptime.advice.rules.batch import batch_size
from laptime.advice.rules.model import precision
from laptime.advice.rules.pages import memory_pages
from laptime.advice.rules.threads import fewer_threads
from laptime.advice.rules.updates import optimizer
from laptime.records import PassRecord, PrecisionRecord, ProfileRecord, ThreadsRecord, UpdateRecord
from laptime.records.breakdown import SetupRecord


def passes(**by_size: float) -> tuple[PassRecord, ...]:
    """`b32=60.0` for 60 ms at 32 samples."""
    return tuple(PassRecord(batch_size=int(name[1:]), pass_ms=ms) for name, ms in by_size.items())


LOOP = cpu(optimizer_ms=30.0)
SHARED = cpu(optimizer_ms=20.0, forward_ms=25.0, backward_ms=50.0, steps=40, passes=((32, 30.0), (512, 480.0)))


def test_of_the_optimizer_goes_what_the_trial_says():
    # By itself a loop over tensors finds its memory ready: 4 of 5 parts go there, and 5 of 6 of what a step takes.
    found = optimizer(replace(LOOP, updates=UpdateRecord(own_ms=25.0, fused_ms=5.0)))
    assert found.gain_ms == pytest.approx((0.95 * 24.0, 1.05 * 25.0))
    assert "25.00 ms as it is and 5.00 ms fused" in found.evidence[1]
    # The other way round where the trial met a slower minute than the steps.
    slower = optimizer(replace(LOOP, updates=UpdateRecord(own_ms=50.0, fused_ms=10.0)))
    assert slower.gain_ms == pytest.approx((0.95 * 20.0, 1.05 * 24.0))
    nearly_all = optimizer(replace(LOOP, updates=UpdateRecord(own_ms=25.0, fused_ms=0.5)))
    assert nearly_all.gain_ms[1] == pytest.approx(30.0)


def test_without_a_trial_of_the_optimizer_other_machines_tell():
    found = optimizer(LOOP)
    assert found.gain_ms == pytest.approx((0.65 * 30.0, 0.90 * 30.0))
    assert "where it was measured" in found.evidence[1]


@pytest.mark.parametrize("fused_ms", [24.5, 31.0])
def test_a_fused_kernel_that_is_no_faster_is_not_proposed(fused_ms):
    found = optimizer(replace(LOOP, updates=UpdateRecord(own_ms=25.0, fused_ms=fused_ms)))
    assert isinstance(found, Abstain)
    assert f"25.00 ms as it is and {fused_ms:.2f} ms fused" in found.reason


def test_passes_at_the_remedy_s_own_size_need_no_fit():
    # 32 samples of the larger batch take 45 ms of 60, so of 75 ms 18.75 go, whatever passes in evaluation say.
    found = batch_size(replace(SHARED, trained=passes(b256=360.0, b32=60.0)))
    assert found.remedy == "large-batch:size=256"
    gain = 20.0 * 7 / 8 + 75.0 * (1 - 45 / 60)
    assert found.gain_ms == pytest.approx((0.9 * gain, 1.1 * gain))
    assert "20.0 ms of optimizer and 21.4 ms of forward and backward" in found.evidence[0]
    assert "60.0 ms for 32 samples and 360.0 ms for 256" in found.evidence[0]


@pytest.mark.parametrize("sizes", [{"b32": 60.0, "b64": 104.0}, {"b16": 38.0, "b32": 60.0}])
def test_from_other_sizes_it_is_the_line_through_them(sizes):
    # 16 ms and 1.375 ms a sample: 368 ms for 256, which is 46 ms for 32 of them.
    found = batch_size(replace(SHARED, trained=passes(**sizes)))
    gain = 20.0 * 7 / 8 + 75.0 * (1 - 46 / 60)
    assert sum(found.gain_ms) / 2 == pytest.approx(gain)


def test_samples_that_are_slower_in_a_larger_batch_count_against_it():
    alike = batch_size(replace(SHARED, trained=passes(b32=60.0, b256=480.0)))
    slower = batch_size(replace(SHARED, trained=passes(b32=60.0, b256=504.0)))  # 63 ms for 32
    assert sum(alike.gain_ms) / 2 == pytest.approx(20.0 * 7 / 8)
    assert sum(slower.gain_ms) / 2 == pytest.approx(20.0 * 7 / 8 - 75.0 * 3 / 60)
    assert batch_size(replace(SHARED, trained=passes(b32=60.0, b256=600.0))) is None


def test_passes_of_a_slow_moment_widen_the_range_down_to_what_the_steps_themselves_allow():
    # 120 ms for what takes 75 in a step; of those 480 ms are 60 for 32 samples, so that a fifth is fixed at the least.
    found = batch_size(replace(SHARED, trained=passes(b32=120.0, b256=480.0)))
    least, most = 20.0 * 7 / 8 + 75.0 - 60.0, 20.0 * 7 / 8 + 75.0 * (1 - 60 / 120)
    assert found.gain_ms == pytest.approx((least, 1.1 * most))
    assert "but 75.0 ms in a step (a slow moment, so the range is wide)" in found.evidence[0]
    # Passes that are slower in a larger batch than steps now leave the optimizer.
    none = batch_size(replace(SHARED, trained=passes(b32=120.0, b256=720.0)))
    assert none.gain_ms[0] == pytest.approx(20.0 * 7 / 8)
    # Beside loaders a step's passes may be the slower ones, which says nothing of the trial; nor does a quarter.
    for alone in (40.0, 93.0):
        usual = batch_size(replace(SHARED, trained=passes(b32=alone, b256=4.0 * alone)))
        assert usual.gain_ms == pytest.approx(tuple(end * most for end in (0.9, 1.1)))
        assert "slow moment" not in usual.evidence[0]


def test_two_moments_widen_the_range_by_what_they_differ():
    one, other = passes(b32=60.0, b256=360.0), passes(b32=60.0, b256=240.0)
    gains = [20.0 * 7 / 8 + 75.0 * (1 - large / 60) for large in (45.0, 30.0)]
    for trained in (one + other, other + one):
        found = batch_size(replace(SHARED, trained=trained))
        assert found.gain_ms == pytest.approx((0.9 * gains[0], 1.1 * gains[1]))
        assert "60.0 ms for 32 samples and 300.0 ms for 256" in found.evidence[0]
    # Never narrower than one alone.
    assert batch_size(replace(SHARED, trained=one * 2)).gain_ms == pytest.approx((0.9 * gains[0], 1.1 * gains[0]))
    # A slow moment does not count where the other was none, and where both were the lower end is the lowest of both.
    slow = passes(b32=120.0, b256=240.0)
    assert batch_size(replace(SHARED, trained=one + slow)) == batch_size(replace(SHARED, trained=one))
    slower = batch_size(replace(SHARED, trained=slow + passes(b32=120.0, b256=480.0)))
    assert slower.gain_ms[0] == pytest.approx(20.0 * 7 / 8 + 75.0 - 60.0)
    assert "slow moment" in slower.evidence[0]


def test_without_a_trial_evaluation_s_passes_tell_and_without_those_nobody_does():
    found = batch_size(replace(SHARED, passes=((32, 30.0), (512, 240.0))))
    low, high = 16 / 30, 1 - (14 / 30) ** 2
    assert found.gain_ms == pytest.approx(tuple(7 / 8 * (20.0 + share * 75.0) for share in (low, high)))
    assert "by a fit" in found.evidence[0]
    assert batch_size(replace(SHARED, passes=None, trained=passes(b32=60.0, b256=360.0))) is not None


def test_trials_come_out_of_the_record_and_old_ones_have_none():
    plain = record()
    assert (signals_of(plain).updates, signals_of(plain).trained) == (None, None)
    old = plain.model_copy(update={"profile": ProfileRecord.model_validate({"schedule": "1,2,5,1"})})
    assert (signals_of(old).updates, signals_of(old).trained) == (None, None)
    tried = ProfileRecord(
        schedule="1,2,5,1",
        updates=UpdateRecord(own_ms=9.0, fused_ms=2.0),
        passes=passes(b32=60.0, b256=360.0),
        precision=PrecisionRecord(own_ms=70.0, bf16_ms=35.0),
    )
    found = signals_of(plain.model_copy(update={"profile": ProfileRecord.model_validate_json(tried.model_dump_json())}))
    assert found.updates == tried.updates
    assert found.trained == tried.passes
    assert found.shorter == tried.precision


def test_bf16_rests_on_its_trial_and_not_on_a_probe_of_other_steps():
    both, trial = 90.0, PrecisionRecord(own_ms=80.0, bf16_ms=60.0)
    told = replace(SHARED, precision="fp32", forward_ms=30.0, backward_ms=60.0, bf16_gain=2.0)
    found = precision(replace(told, shorter=trial))
    assert found.gain_ms == pytest.approx((0.19 * both, 0.31 * both))
    assert "80.0 ms in fp32 and 60.0 ms in bf16" in found.evidence[1]
    probed = precision(told)
    assert probed.gain_ms[0] > found.gain_ms[1]
    assert precision(replace(told, precision="bf16", shorter=trial)) is None


def test_bf16_that_is_no_faster_in_its_trial_is_not_proposed_whatever_a_probe_said():
    told = replace(SHARED, precision="fp32", forward_ms=30.0, backward_ms=60.0, bf16_gain=2.0)
    found = precision(replace(told, shorter=PrecisionRecord(own_ms=80.0, bf16_ms=79.0)))
    assert isinstance(found, Abstain)
    assert "no faster" in found.reason


def test_a_moment_with_another_larger_batch_is_not_told_under_the_first_s():
    """In a slow moment half of the larger batch may be all that a second holds."""
    found = batch_size(replace(SHARED, trained=(*passes(b32=60.0, b256=360.0), *passes(b32=62.0, b128=190.0))))
    assert "61.0 ms for 32 samples and 360.0 ms for 256" in found.evidence[0]


def test_the_threads_of_a_trial_are_the_command_s_and_the_optimizer_may_gain_as_much():
    trial = (ThreadsRecord(count=8, pass_ms=50.0), ThreadsRecord(count=2, pass_ms=30.0))
    found = fewer_threads(cpu(fewer_threads=trial))
    both, updates = 33.0 + 62.0, 4.0
    assert found.remedy == "threads:count=2"
    assert found.gain_ms == pytest.approx((0.34 * both, 0.46 * (both + updates)))
    assert "50.0 ms on 8 threads and 30.0 ms on 2" in found.evidence[1]


def test_what_a_profile_has_of_threads_is_what_rules_read():
    trial = (ThreadsRecord(count=8, pass_ms=50.0), ThreadsRecord(count=2, pass_ms=30.0))
    profile = ProfileRecord(schedule="1,1,3,1", threads=trial)
    told = signals_of(record().model_copy(update={"profile": profile, "setup": SetupRecord(threads=8)}))
    assert (told.fewer_threads, told.threads) == (trial, 8)
    untried = profile.model_copy(update={"threads": ()})
    assert signals_of(record().model_copy(update={"profile": untried})).fewer_threads is None


def test_few_pages_may_be_fewer_in_another_run():
    many = memory_pages(cpu(page_faults=9000.0, system_cpu_ms=30.0, threads=2))
    few = memory_pages(cpu(page_faults=8000.0, system_cpu_ms=30.0, threads=2))
    assert many.gain_ms == pytest.approx((0.9 * 15.0, (0.35 + 0.65 / 2) * 30.0))
    assert few.gain_ms == pytest.approx((0.25 * many.gain_ms[0], many.gain_ms[1]))
