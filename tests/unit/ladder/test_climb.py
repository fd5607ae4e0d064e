"""What joins in the first round: by time, by a trial where times are close, by quality where the trajectory changes."""

import pytest

from laptime.catalogue import LADDERS, STATISTICAL, find_optimization, find_preset, find_workload, rung_spec
from laptime.catalogue.entries import Preset
from laptime.compare.quality import Rules
from laptime.ladder.climb import Climb, Standing
from laptime.ladder.plan import make_plan, unfit
from laptime.records import EpochRecord, ProbeRecord, RunRecord
from laptime.spec import OptimizationSpec
from laptime.variants import Variant, baseline_of, resolve

FULL = find_preset(find_workload("cifar"), "full")
QUICK = find_preset(find_workload("cifar"), "quick")
GOOD = ProbeRecord(gains={"bf16": 1.5})
REAL = Rules(floor=0.55, real_data=True, test_count=10_000)
STAND_IN = Rules(floor=0.55, real_data=False, test_count=10_000)


def done(seconds: float, quality: float | None = None) -> RunRecord:
    return RunRecord(status="done", epochs=(EpochRecord(index=0, epoch_s=seconds, samples=10, test_accuracy=quality),))


def climber(quality: float | None = 0.66, rules: Rules = REAL, preset: Preset = FULL):
    plan = make_plan("cpu", preset, None, GOOD)
    return Climb(plan, Standing(baseline_of("cpu"), 100.0, quality), rules)


def climb_through(times: dict[str, float | None], preset: Preset = FULL):
    climb = climber(preset=preset, rules=STAND_IN)
    judged = {}
    for group in climb.plan.rungs:
        variant, rung = climb.next_rung(group)
        name = group[-1]
        seconds = times.get(name)
        record = done(seconds) if seconds else RunRecord(status="wrong", error="gradient error 2")
        judged[name] = climb.judge(variant, rung, record)
    return climb, judged


def test_a_faster_rung_joins_and_a_slower_one_stays_out():
    times = dict.fromkeys(LADDERS["cpu"], 200.0) | {"resident": 80.0, "dead-taps": 40.0}
    climb, judged = climb_through(times)
    assert judged["resident"].joined
    assert judged["resident"].on == "cpu-baseline"
    assert not judged["channels-last"].joined
    assert "slower in the first round" in judged["channels-last"].reason
    assert judged["dead-taps"].on == "cpu-resident"
    assert [o.name for o in climb.best.optimizations] == ["resident", "dead-taps"]
    whole, without = (v for v, _ in climb.optimized())
    assert [o.name for o in whole.optimizations] == ["resident", "dead-taps"]
    assert without.name == "cpu-optimized-without-dead-taps"
    assert [o.name for o in without.optimizations] == ["resident"]


def test_a_wrong_rung_never_joins_however_fast():
    climb, judged = climb_through({"resident": 80.0})
    assert not judged["bf16"].joined
    assert judged["bf16"].reason == "wrong: gradient error 2"
    assert [o.name for o in climb.best.optimizations] == ["resident"]


def test_a_run_whose_epochs_all_compiled_says_so():
    climb = climber()
    late = RunRecord(status="done", epochs=(EpochRecord(index=0, kept=False, compilations=2, epoch_s=1, samples=9),))
    judged = climb.judge(*climb.next_rung(("compile",)), late)
    assert not judged.joined
    assert "compiled anew" in judged.reason


# Less those that are for one other workload alone.
FOR_ALL = [r for r in LADDERS["cpu"] if not find_optimization(rung_spec(r).name).workload]


def test_a_short_ladder_lets_untried_rungs_into_optimized():
    climb, judged = climb_through({"dead-taps": 40.0, "products": 30.0}, QUICK)
    assert judged["products"].adds == "bf16+products"
    assert (
        len(climb.best.optimizations) == FOR_ALL.index("products") - 2
    )  # and its own, but for workers, decoded and whole-batch
    names = {o.name for o in climb.optimized()[0][0].optimizations}
    assert names == set(FOR_ALL) - {"decoded", "workers", "whole-batch", "compile", "lightning", *STATISTICAL}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_ladder_without_rungs_makes_the_optimized_variant_of_that_name(device):
    eurosat = find_workload("eurosat")
    probe = ProbeRecord(gains={"bf16": 1.5}, refusals=unfit(eurosat, device))
    plan = make_plan(device, find_preset(eurosat, "quick"), None, probe)
    assert plan.rungs == ()
    whole = Climb(plan, Standing(baseline_of(device), 100.0, None), STAND_IN).optimized()[0][0]
    # On a GPU some of the untried rungs replace others: resident data workers, bf16 fp16.
    assert whole.optimizations == resolve(f"{device}-optimized", plan.refused).optimizations


def test_a_group_that_is_slower_stays_out_as_a_whole():
    climb, _ = climb_through({"dead-taps": 40.0, "products": 50.0}, QUICK)
    names = {o.name for o in climb.optimized()[0][0].optimizations}
    assert not names & {"bf16", "products"}


@pytest.mark.parametrize(("seconds", "close"), [(79, False), (81, True), (100, True), (124, True), (126, False)])
def test_only_what_is_close_is_run_once_more(seconds, close):
    assert climber().close(("resident",), done(seconds)) is close


def test_what_has_no_time_is_not_run_once_more():
    assert not climber().close(("resident",), RunRecord(status="failed", error="boom"))


@pytest.mark.parametrize(
    ("first", "again", "joins"),
    [
        (104.0, (98.0, 90.0), True),  # a slow minute hit the first process
        (104.0, (98.0, 99.0), False),
        (96.0, (90.0, 95.0), False),  # and here it hit the best so far's
        (96.0, (99.0, 97.0), True),
    ],
)
def test_a_trial_judges_by_the_fastest_of_both_processes(first, again, joins):
    climb = climber()
    variant, rung = climb.next_rung(("threads",))
    judged = climb.judge(variant, rung, done(first), tuple(map(done, again)))
    assert judged.joined is joins
    assert "in two processes each" in judged.reason
    best = (min(first, again[1]), min(100.0, again[0]))
    assert climb.top.seconds == (best[0] if joins else best[1])
    assert all(f"{seconds:.3g} s" in judged.reason for seconds in best)


def test_a_trial_that_fails_leaves_the_first_round_s_verdict():
    climb = climber()
    broken = RunRecord(status="failed", error="boom")
    judged = climb.judge(*climb.next_rung(("threads",)), done(96.0), (done(80.0), broken))
    assert judged.joined
    assert "a trial of both came to no time" in judged.reason


def by_quality(seconds: float, quality: float, rules: Rules = REAL, baseline: float = 0.66):
    climb = climber(quality=baseline, rules=rules)
    return climb.judge(*climb.next_rung(("large-batch",)), done(seconds, quality))


def test_a_faster_statistical_rung_that_loses_quality_is_turned_away_with_both_numbers():
    judged = by_quality(30.0, 0.60)
    assert not judged.joined
    assert "accuracy 60.0 %, baseline 66.0 %" in judged.reason
    assert by_quality(30.0, 0.655).joined
    assert by_quality(30.0, 0.74).joined


def test_a_statistical_rung_that_is_as_fast_must_be_better_than_noise():
    worthwhile, noisy = by_quality(99.0, 0.68), by_quality(99.0, 0.67)
    assert worthwhile.joined
    assert not noisy.joined
    for judged in (worthwhile, noisy):
        assert "1.3 may be noise" in judged.reason
    assert by_quality(102.0, 0.70).joined
    assert not by_quality(104.0, 0.70).joined


def test_quality_turns_nothing_away_where_it_can_t_be_judged():
    assert by_quality(30.0, 0.10, STAND_IN).joined
    assert by_quality(30.0, 0.10, baseline=0.40).joined


def test_a_rung_in_place_of_another_says_so_and_leaves_the_other_where_it_loses():
    climb = climber(rules=STAND_IN)
    best = Variant("cpu-compile", "cpu", (OptimizationSpec(name="compile", options={"mode": "default"}),))
    climb.top = Standing(best, 50.0)
    variant, rung = climb.next_rung(("compile-layout",))
    assert [o.text() for o in variant.optimizations] == ["compile:layout=channels-last"]
    lost = climb.judge(variant, rung, done(70.0))
    assert lost.reason.startswith("in place of compile:mode=default: slower")
    assert climb.best is best
    assert climb.judge(variant, rung, done(30.0)).joined
    assert climb.best is variant


def test_a_rung_that_is_only_shown_never_joins(monkeypatch):
    from dataclasses import replace

    from laptime.ladder import climb as module

    find = module.find_optimization
    monkeypatch.setattr(module, "find_optimization", lambda name: replace(find(name), only_shown=True))
    climb = climber()
    judged = climb.judge(*climb.next_rung(("threads",)), done(50.0))
    assert not judged.joined
    assert "kept for comparison" in judged.reason
    assert not climb.close(("threads",), done(99.0))


def test_what_takes_nothing_beside_it_stands_on_the_baseline_and_leaves_the_best_where_it_is():
    climb = climber()
    assert climb.judge(*climb.next_rung(("resident",)), done(50.0)).joined
    variant, rung = climb.next_rung(("lightning",))
    assert [o.name for o in variant.optimizations] == ["lightning"]
    assert rung.on == "cpu-baseline"
    judged = climb.judge(variant, rung, done(102.0))
    assert judged.reason == "kept for comparison, slower in the first round: 102 s an epoch after 100 s"
    assert climb.best.name == "cpu-resident"


def test_a_statistical_rung_that_was_tried_and_paid_enters():
    times = dict.fromkeys(LADDERS["cpu"], 200.0) | {"resident": 80.0, "flip": 70.0}
    climb, judged = climb_through(times)
    assert judged["flip"].on == "cpu-resident"
    assert {o.name for o in climb.optimized()[0][0].optimizations} == {"resident", "flip"}
