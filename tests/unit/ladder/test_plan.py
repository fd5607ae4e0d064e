"""Which variants a ladder tries, what joins and what is left out."""

from contextlib import nullcontext

import pytest

from laptime.catalogue import STATISTICAL, find_preset, find_workload
from laptime.catalogue.own import own_entry
from laptime.errors import UsageError
from laptime.ladder.opening import require_contender
from laptime.ladder.plan import hopeless, make_plan, refusal, untried
from laptime.ladder.request import LadderRequest, make_request, settled_preset
from laptime.records import Machine, ProbeRecord
from laptime.variants import resolve

FULL = find_preset(find_workload("cifar"), "full")
QUICK = find_preset(find_workload("cifar"), "quick")
GOOD = ProbeRecord(gains={"bf16": 1.5})


def with_gains(**gains: float) -> ProbeRecord:
    return ProbeRecord(gains={name.replace("_at_", "@"): gain for name, gain in gains.items()})


def test_a_probe_without_gain_leaves_a_rung_out_with_its_figure():
    plan = make_plan("cpu", FULL, None, ProbeRecord(gains={"bf16": 0.62}))
    assert ("bf16",) not in plan.rungs
    assert ("products",) in plan.rungs
    left = next(entry for entry in plan.left_out if entry.variant == "cpu-bf16")
    assert "0.62x" in left.reason
    assert "bf16" not in untried(plan)


def test_a_gain_at_either_batch_is_enough_to_enter():
    assert refusal("bf16", with_gains(bf16=0.8, bf16_at_512=1.4)) is None
    assert refusal("bf16", with_gains(bf16=1.4, bf16_at_512=0.8)) is None
    reason = refusal("bf16", with_gains(bf16=0.8, bf16_at_512=0.7))
    assert "0.80x at the baseline's batch" in reason
    assert "0.70x at a batch of 512" in reason


def test_what_loses_beside_another_says_so_and_joins_none():
    probe = ProbeRecord(gains={"bf16": 0.75, "bf16@512": 0.8}, beside={"bf16": "products"})
    assert "0.75x beside products at the baseline's batch and 0.80x at a batch of 512" in refusal("bf16", probe)
    late = probe.model_copy(update={"gains": {"bf16": 0.75, "bf16@512": 1.3}})
    rungs = make_plan("cpu", FULL, None, late).rungs
    assert ("bf16",) in rungs
    assert ("products",) in rungs


@pytest.mark.parametrize(("gain", "shown"), [(1.0496, "1.04x"), (0.29, "0.29x"), (1.0, "1.00x")])
def test_a_gain_that_is_just_too_small_is_not_called_less_than_itself(gain, shown):
    plan = make_plan("cpu", FULL, None, with_gains(bf16=gain))
    (reason,) = [left.reason for left in plan.left_out if left.variant == "cpu-bf16"]
    assert f"showed {shown}, less than the 1.05x" in reason


def test_what_gains_only_beside_another_enters_with_it():
    probe = ProbeRecord(gains={"bf16": 1.3}, beside={"bf16": "products"})
    assert [g for g in make_plan("cpu", FULL, None, probe).rungs if {"bf16", "products"} & set(g)] == [
        ("bf16", "products")
    ]
    short = make_plan("cpu", find_preset(own_entry("my.py:workload"), "quick"), None, probe).rungs
    assert [g[-2:] for g in short if {"bf16", "products"} & set(g)] == [("bf16", "products")]
    bare = make_plan("cpu", find_preset(find_workload("eurosat"), "quick"), None, probe)
    assert {"bf16", "products"} <= set(untried(bare))


def test_what_gains_only_beside_another_at_the_large_batch_takes_it_behind_that():
    probe = ProbeRecord(gains={"bf16": 0.8, "bf16@512": 1.3}, beside={"bf16@512": "products"})
    rungs = make_plan("cpu", FULL, None, probe).rungs
    assert rungs[rungs.index(("large-batch",)) + 1] == ("bf16", "products")
    assert ("products",) not in rungs


@pytest.mark.parametrize(("load", "cores", "told"), [(6.57, 2, True), (2.5, 2, False), (None, 2, False)])
def test_a_probe_beside_other_work_says_so(load, cores, told):
    given = with_gains(bf16=0.13)
    reason = refusal("bf16", given.model_copy(update={"machine": Machine(cores=cores, load_before=load)}))
    assert reason.startswith("a probe on this machine showed 0.13x")
    assert ("(a load of 6.6 on 2 cores), so run it again" in reason) is told


def test_a_rung_that_gains_only_at_the_large_batch_comes_behind_it():
    plan = make_plan("cpu", FULL, None, with_gains(bf16=0.8, bf16_at_512=1.4))
    order = [group[-1] for group in plan.rungs]
    assert order.index("bf16") == order.index("large-batch") + 1
    order = [group[-1] for group in make_plan("cpu", FULL, None, GOOD).rungs]
    assert order.index("bf16") < order.index("large-batch")


def test_a_rung_that_loses_at_the_batch_of_the_best_so_far_is_not_worth_a_process():
    probe = with_gains(compile=1.3, compile_at_512=0.1)
    assert refusal("compile", probe) is None
    assert hopeless("compile", None, probe) is None
    assert "0.10x at a batch of 512" in hopeless("compile", 512, probe)
    assert hopeless("compile", 256, probe) is None


def test_a_probe_that_came_to_no_end_leaves_a_rung_out_with_its_reason():
    plan = make_plan("cpu", FULL, None, ProbeRecord(refusals={"compile": "it can't run here: no compiler"}))
    assert [(left.variant, left.reason) for left in plan.left_out] == [
        ("cpu-compile", "it can't run here: no compiler")
    ]


def test_a_short_ladder_does_not_pay_for_what_must_first_earn_its_place():
    plan = make_plan("cpu", QUICK, None, GOOD)
    assert [left.variant for left in plan.left_out] == [
        f"cpu-{name}" for name in ("decoded", "workers", "whole-batch", *STATISTICAL, "compile", "lightning")
    ]
    assert "it joins only where a ladder has measured it" in plan.left_out[0].reason
    assert "for comparison" in plan.left_out[-1].reason
    assert all("--preset full" in left.reason for left in plan.left_out)
    assert "compile" not in {name for group in plan.rungs for name in group} | set(untried(plan))
    assert ("compile",) in make_plan("cpu", FULL, None, GOOD).rungs


def test_a_preset_without_rungs_still_has_what_joins_at_the_end():
    plan = make_plan("cpu", find_preset(find_workload("eurosat"), "quick"), None, GOOD)
    assert plan.rungs == ()
    assert plan.adaptive
    assert {"resident", "products", "bf16"} <= set(untried(plan))


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
        ({"limit_train": 0}, "--limit-train"),
        ({"timeout": 0}, "timeout"),
        ({"preset": "huge"}, "huge"),
        ({"launcher": "ssh"}, "ssh"),
        ({"seed": -1}, "seed"),
        ({"profile": "all"}, "all"),
        ({"profile_schedule": "1,2,5"}, "1,2,5"),
        ({"profile_schedule": "1,-2,5,1"}, "integers"),
        ({"profile_schedule": "1,2,0,1"}, "active"),
        ({"profile_schedule": "0,0,201,1"}, "200 steps"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_nonsense_request_is_one_sentence(options, named):
    with pytest.raises(UsageError) as error:
        make_request(**options)
    assert named in str(error.value)
    assert "\n" not in str(error.value)
    assert "value error" not in str(error.value).lower()


def test_a_request_overrides_its_preset():
    preset = settled_preset(LadderRequest(epochs=7, warmup_epochs=0, limit_train=99))
    assert (preset.epochs, preset.warmup_epochs, preset.limit_train) == (7, 0, 99)
    assert preset.repeats == QUICK.repeats


def test_variants_come_as_text_or_list():
    assert LadderRequest(variants="a, b,").variants == ("a", "b")
    assert LadderRequest(variants=["a"]).variants == ("a",)
    assert LadderRequest(variants="").variants is None


def test_rungs_that_are_only_shown_stay_out_of_a_short_ladder():
    assert make_plan("cuda", FULL, None, ProbeRecord()).rungs[-1] == ("evaluate-on-cpu",)
    short = make_plan("cuda", QUICK, None, ProbeRecord())
    assert "evaluate-on-cpu" not in {name for group in short.rungs for name in group}


def test_what_a_named_variant_lacks_here_is_told_and_only_that():
    probe = ProbeRecord(refusals={"bf16": "it is slower", "dead-taps": "no convolutions", "crop": "no images"})
    for named, told in {"cpu-optimized": {"cpu-bf16", "cpu-dead-taps"}, "cpu-resident+bf16": set()}.items():
        assert {left.variant for left in make_plan("cpu", QUICK, [named], probe).left_out} == told


def test_a_ladder_of_named_variants_none_of_which_can_run_is_refused_with_the_reasons():
    probe = ProbeRecord(refusals={"bf16": "it has no instructions for it"})
    for named, alone in ((("cpu-bf16",), True), (("cpu-bf16", "cpu-resident"), False), (("cpu-baseline",), False)):
        plan, request = make_plan("cpu", QUICK, named, probe), LadderRequest(variants=named)
        with pytest.raises(UsageError, match="cpu-bf16: it has no instr") if alone else nullcontext():
            require_contender(request, plan)


def test_what_a_gpu_lacks_leaves_rungs_out_with_the_reason():
    plan = make_plan("cuda", FULL, None, ProbeRecord(refusals={"bf16": "T4 has compute capability 7.5"}))
    assert [left.variant for left in plan.left_out] == ["cuda-bf16", "cuda-bf16-large"]
    assert {left.reason for left in plan.left_out} == {"T4 has compute capability 7.5"}
    assert ("fp16",) in plan.rungs
    assert ("bf16",) not in plan.rungs


def test_the_cuda_ladder_ends_with_what_replaced_the_rest():
    names = {o.name for o in resolve("cuda-optimized").optimizations}
    assert {"resident", "bf16", "graph", "large-batch"} <= names
    assert not names & {"workers", "pinned", "fp16", "evaluate-on-cpu", "compile"}
    assert "evaluate-on-cpu" in {o.name for o in resolve("cuda-evaluate-on-cpu").optimizations}


def test_compiled_graphs_take_the_place_of_the_whole_steps():
    names = {o.name for o in resolve("cuda-compile-reduce-overhead").optimizations}
    assert "compile-graphed" in names
    assert not names & {"compile", "graph"}


def test_a_gpu_takes_all_images_where_a_cpu_is_given_a_part():
    assert settled_preset(LadderRequest(device="cuda")).limit_train is None
    assert settled_preset(LadderRequest(device="cuda", limit_train=99)).limit_train == 99
    assert settled_preset(LadderRequest(device="cpu")).limit_train == QUICK.limit_train
