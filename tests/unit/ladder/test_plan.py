"""Which variants a ladder tries, what joins and what is left out."""

import pytest

from laptime.catalogue import LADDERS, STATISTICAL, find_preset, find_workload
from laptime.entries import Preset
from laptime.errors import UsageError
from laptime.ladder.plan import Climb, make_plan
from laptime.ladder.request import LadderRequest, make_request, settled_preset
from laptime.records import EpochRecord, ProbeRecord, RunRecord
from laptime.variants import baseline_of, resolve

FULL = find_preset(find_workload("cifar"), "full")
QUICK = find_preset(find_workload("cifar"), "quick")
GOOD = ProbeRecord(gains={"bf16": 1.5})


def done(seconds: float) -> RunRecord:
    return RunRecord(status="done", epochs=(EpochRecord(index=0, epoch_s=seconds, samples=10),))


def climb_through(times: dict[str, float | None], preset: Preset = FULL, probe: ProbeRecord = GOOD):
    plan = make_plan("cpu", preset, None, probe)
    climb = Climb(plan, baseline_of("cpu"), best_s=100.0)
    judged = {}
    for group in plan.rungs:
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


def test_a_probe_without_gain_leaves_a_rung_out_with_its_figure():
    plan = make_plan("cpu", FULL, None, ProbeRecord(gains={"bf16": 0.62}))
    assert ("bf16",) not in plan.rungs
    assert ("products",) in plan.rungs
    (left,) = plan.left_out
    assert left.variant == "cpu-bf16"
    assert "0.62x" in left.reason
    climb = Climb(plan, baseline_of("cpu"), best_s=1.0)
    assert all(o.name != "bf16" for v, _ in climb.optimized() for o in v.optimizations)


def test_a_short_ladder_lets_untried_rungs_into_optimized():
    climb, judged = climb_through({"dead-taps": 40.0, "products": 30.0}, QUICK)
    assert judged["products"].adds == "bf16+products"
    assert len(climb.best.optimizations) == LADDERS["cpu"].index("products") + 1
    names = {o.name for o in climb.optimized()[0][0].optimizations}
    assert names == set(LADDERS["cpu"]) - set(STATISTICAL)


def test_a_rung_that_must_earn_its_place_enters_when_it_was_tried_and_paid():
    times = dict.fromkeys(LADDERS["cpu"], 200.0) | {"resident": 80.0, "flip": 70.0}
    climb, judged = climb_through(times)
    assert judged["flip"].on == "cpu-resident"
    assert {o.name for o in climb.optimized()[0][0].optimizations} == {"resident", "flip"}


def test_a_group_that_is_slower_stays_out_as_a_whole():
    climb, _ = climb_through({"dead-taps": 40.0, "products": 50.0}, QUICK)
    names = {o.name for o in climb.optimized()[0][0].optimizations}
    assert not names & {"bf16", "products"}


def test_named_variants_replace_the_ladder_and_bring_the_baseline():
    plan = make_plan("cpu", FULL, ["cpu-optimized", "cpu-resident+bf16"], GOOD)
    assert [v.name for v in plan.fixed] == ["cpu-baseline", "cpu-optimized", "cpu-resident+bf16"]
    assert not plan.adaptive


def test_unknown_variant_names_the_nearest():
    with pytest.raises(UsageError, match="cpu-resident"):
        make_plan("cpu", FULL, ["cpu-resdient"], GOOD)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"epochs": -3}, "-3"),
        ({"repeats": 0}, "repeats"),
        ({"limit_train": 0}, "limit_train"),
        ({"timeout": 0}, "timeout"),
        ({"preset": "huge"}, "huge"),
        ({"launcher": "ssh"}, "ssh"),
        ({"seed": -1}, "seed"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_nonsense_request_is_one_sentence(options, named):
    with pytest.raises(UsageError) as error:
        make_request(**options)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_a_request_overrides_its_preset():
    preset = settled_preset(LadderRequest(epochs=7, warmup_epochs=0, limit_train=99))
    assert (preset.epochs, preset.warmup_epochs, preset.limit_train) == (7, 0, 99)
    assert preset.repeats == QUICK.repeats


def test_variants_come_as_text_or_list():
    assert LadderRequest(variants="a, b,").variants == ("a", "b")
    assert LadderRequest(variants=["a"]).variants == ("a",)
    assert LadderRequest(variants="").variants is None


def test_a_rung_that_is_only_shown_never_joins():
    plan = make_plan("cuda", FULL, None, ProbeRecord())
    climb = Climb(plan, baseline_of("cuda"), best_s=100.0)
    assert plan.rungs[-1] == ("evaluate-on-cpu",)
    variant, rung = climb.next_rung(plan.rungs[-1])
    judged = climb.judge(variant, rung, done(1.0))
    assert judged.joined is False
    assert judged.reason == "kept for comparison"
    assert climb.best_s == 100.0
    shown_nowhere_else = make_plan("cuda", QUICK, None, ProbeRecord())
    assert "evaluate-on-cpu" not in {name for group in shown_nowhere_else.rungs for name in group}


def test_what_a_gpu_lacks_leaves_rungs_out_with_the_reason():
    plan = make_plan("cuda", FULL, None, ProbeRecord(lacking={"bf16": "T4 has compute capability 7.5"}))
    assert [left.variant for left in plan.left_out] == ["cuda-bf16", "cuda-bf16-large"]
    assert {left.reason for left in plan.left_out} == {"T4 has compute capability 7.5"}
    assert ("fp16",) in plan.rungs
    assert ("bf16",) not in plan.rungs


def test_the_cuda_ladder_ends_with_what_replaced_the_rest():
    names = {o.name for o in resolve("cuda-optimized").optimizations}
    assert {"resident", "bf16", "graph", "large-batch"} <= names
    assert not names & {"workers", "pinned", "fp16", "evaluate-on-cpu"}
    assert "evaluate-on-cpu" in {o.name for o in resolve("cuda-evaluate-on-cpu").optimizations}


def test_a_gpu_takes_all_images_where_a_cpu_is_given_a_part():
    assert settled_preset(LadderRequest(device="cuda")).limit_train is None
    assert settled_preset(LadderRequest(device="cuda", limit_train=99)).limit_train == 99
    assert settled_preset(LadderRequest(device="cpu")).limit_train == QUICK.limit_train
