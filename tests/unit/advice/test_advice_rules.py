"""Every rule fires on what it is for, keeps quiet on what is close to it, and abstains where a signal is missing."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, replace

import pytest
from advice_examples import CASES, CONV_DEAD, CONV_LARGE, cpu, gpu

import laptime.advice.rules
from laptime.advice.judge import ask
from laptime.advice.outcome import Limit, MissingSignalError, Note, Proposal
from laptime.advice.rules import RULES
from laptime.advice.rules.operators import dead_parameters, dead_taps_of, map_and_kernel
from laptime.advice.signals import Signals
from laptime.catalogue import parse_optimization
from laptime.records.trace import OperatorRow

_RULES = dict(RULES)
_FIRED = (Proposal, Note, Limit)
# What a rule reads only to be kinder or more exact: without it, it may well still fire.
_HELPFUL = {
    "copy_ms", "activations_mib", "optimizations", "precision", "channels_last", "compiled",
    "graphed", "pinned", "noise", "load", "cores", "wait_ms", "process_cpu_ms", "dead_share", "compile_gain",
    "compile_cost_s", "bf16_gain", "optimizer_ms", "parameter_tensors", "workers", "kernels", "batch_size",
    "optimizer_kernel", "bf16_rates", "train_mib", "operators", "layouts", "updates", "trained",
    "shorter", "slices",
}  # fmt: skip


def answer(name: str, s: Signals):
    try:
        return _RULES[name](s)
    except MissingSignalError:
        return None


def cases(place: int):
    return [pytest.param(name, s, id=f"{name}-{n}") for name, c in CASES.items() for n, s in enumerate(c[place])]


def test_every_rule_that_a_module_defines_is_listed():
    listed = {rule for _, rule in RULES}
    for module in pkgutil.iter_modules(laptime.advice.rules.__path__):
        found = importlib.import_module(f"laptime.advice.rules.{module.name}")
        for name, member in vars(found).items():
            hints = getattr(member, "__annotations__", {})
            public = not name.startswith("_") and getattr(member, "__module__", "").endswith(module.name)
            if public and set(hints) == {"s", "return"}:
                assert member in listed, f"{name} is not in RULES"


def test_every_rule_has_cases():
    assert [name for name, _ in RULES] == list(CASES)
    assert len({rule for _, rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("name", "s"), cases(0))
def test_it_fires(name: str, s: Signals):
    found = answer(name, s)
    assert isinstance(found, _FIRED)
    if isinstance(found, Proposal):
        assert found.id.partition("/")[0] == name
        assert any(c.isdigit() for text in found.evidence for c in text), "evidence has numbers"
        low, high = found.gain_ms
        assert 0 <= low <= high <= (found.base_ms or s.step_ms)
        assert 0 < found.confidence < 1
        assert found.remedy or found.code
        if found.remedy:
            parse_optimization(found.remedy)


@pytest.mark.parametrize(("name", "s"), cases(1))
def test_it_does_not_fire(name: str, s: Signals):
    assert not isinstance(answer(name, s), _FIRED)


@pytest.mark.parametrize("missing", [f.name for f in fields(Signals) if f.default is None])
def test_a_missing_signal_makes_no_rule_fire(missing: str):
    for plain in (cpu(), gpu()):
        before = {name for name in _RULES if isinstance(answer(name, plain), _FIRED)}
        without = replace(plain, **{missing: None})
        assert {name for name in _RULES if isinstance(answer(name, without), _FIRED)} <= before
    for name, (fires, quiet) in CASES.items():
        for s in fires:
            ask(RULES, replace(s, **{missing: None}))  # nothing raises
        # A signal that only holds a rule back (already done, too large) may be missed; one that speaks for it may not.
        for s in quiet if missing not in _HELPFUL else ():
            assert not isinstance(answer(name, replace(s, **{missing: None})), _FIRED), (name, missing)


def test_with_no_signals_every_rule_abstains_or_has_nothing_to_say():
    found = ask(RULES, Signals())
    assert found.proposals == []
    assert found.notes == []
    assert found.limits == []
    assert len(found.withheld) > len(RULES) // 2


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("workers", "fetch_cpu_share"),
        ("workers", "wait_ms"),
        ("resident-data", "train_mib"),
        ("worker-start", "worker_start_s"),
        ("worker-start", "loader"),
        ("first-batch", "worker_start_s"),
        ("workers", "process_cpu_ms"),
        ("dead-taps", "operators"),
        ("first-batch", "first_batch_s"),
        ("first-batch", "workers"),
        ("first-batch", "wait_ms"),
        ("pinned-copies", "copies"),
        ("synchronisation", "syncs"),
        ("created-on-cpu", "copies"),
        ("launch-bound", "kernels"),
        ("batch-size", "passes"),
        ("batch-size", "memory_mib"),
        ("precision", "precision"),
        ("channels-last", "kernels"),
        ("mixed-formats", "mixed_ms"),
        ("dead-taps", "optimizer_ms"),
        ("optimizer", "optimizer_ms"),
        ("optimizer", "optimizer_kernel"),
        ("zero-grad", "operators"),
        ("bias-before-norm", "biased_before_norm"),
        ("kept-gradients", "unused_graph"),
        ("evaluation", "passes"),
        ("reads", "read_ms"),
        ("compile", "forward_ms"),
        ("epoch-overhead", "evaluate_s"),
        ("epoch-overhead", "checkpoint_s"),
        ("memory", "memory_mib"),
        ("communication", "collectives"),
        ("stragglers", "rank_compute_ms"),
        ("garbage-collection", "gc_ms"),
        ("hot-operator", "operators"),
        ("near-the-roof", "floor_share"),
    ],
)
def test_what_a_rule_needs_makes_it_abstain(name: str, signal: str):
    first = CASES[name][0][0]
    assert isinstance(answer(name, first), _FIRED)
    with pytest.raises(MissingSignalError):
        _RULES[name](replace(first, **{signal: None}))


def test_workers_hide_what_waits_and_no_more_than_free_cores_can_compute():
    sleeping = answer("workers", cpu(wait_ms=30.0, fetch_cpu_share=0.0, process_cpu_ms=140.0))
    assert sleeping.gain_ms[1] == pytest.approx(30.0)
    assert sleeping.remedy == "workers:count=1"
    computing = answer("workers", cpu(wait_ms=30.0, fetch_cpu_share=1.0, process_cpu_ms=30.0 + 118.0))
    # 2 cores x 70 ms less 118 leaves 22 ms: 8 ms of the fetch take the training's own time, one and a half times over.
    assert computing.gain_ms[0] == pytest.approx(30.0 - 1.5 * 8.0 - 3.0)
    slow = answer("workers", cpu(wait_ms=75.0, fetch_cpu_share=0.0, process_cpu_ms=50.0))
    assert slow.remedy == "workers:count=3"
    assert slow.gain_ms[1] == pytest.approx(75.0)


def test_the_fit_over_two_batch_sizes():
    # 16 ms of a pass at batch 32 do not depend on the batch: 30 = 16 + 14, 240 = 16 + 224.
    s = cpu(optimizer_ms=40.0, forward_ms=20.0, backward_ms=39.0, passes=((32, 30.0), (512, 240.0)))
    found = answer("batch-size", s)
    low, high = 16 / 30, 1 - (14 / 30) ** 2  # of forward and backward
    assert found.remedy == "large-batch:size=512"
    assert found.gain_ms == pytest.approx(tuple((1 - 32 / 512) * (40.0 + share * 59.0) for share in (low, high)))
    assert answer("batch-size", replace(s, steps=40)).remedy == "large-batch:size=256"
    assert answer("batch-size", replace(s, parts=1)) == found
    assert answer("batch-size", replace(s, parts=2)).reason.startswith("a step goes through the net in 2 parts")


def test_shapes_say_which_taps_are_dead():
    row = OperatorRow(name="aten::convolution_backward", shapes=f"[[32, 512, 1, 1], {CONV_DEAD[1:]}")
    assert map_and_kernel(row) == ((1, 1), (3, 3))
    assert dead_taps_of(row) == pytest.approx(8 / 9)
    assert dead_taps_of(OperatorRow(name="aten::conv2d", shapes="[[8, 4, 2, 2], [4, 4, 5, 5]]")) == pytest.approx(
        16 / 25
    )
    assert dead_taps_of(OperatorRow(name="aten::conv2d", shapes=CONV_LARGE)) == 0
    assert dead_taps_of(OperatorRow(name="aten::conv2d")) == 0
    rows = (
        OperatorRow(name="aten::conv2d", shapes=CONV_DEAD, calls=1, self_ms=0.1),
        OperatorRow(name="aten::mkldnn_convolution", shapes=CONV_DEAD, calls=1, self_ms=9.0),
        OperatorRow(name="aten::addmm", shapes="[[512], [32, 512], [512, 4608]]", calls=1, self_ms=1.0),
    )
    assert dead_parameters(rows) == pytest.approx(4 / 9)
    assert dead_parameters(()) is None


def test_a_hot_operator_comes_with_what_has_helped():
    hot = (OperatorRow(name="aten::mkldnn_convolution", self_ms=40.0, calls=20, shapes=CONV_DEAD),)
    found = answer("hot-operator", cpu(operators=hot, bf16_gain=1.3))
    said = " ".join(found.evidence)
    assert found.remedy == "dead-taps"
    assert all(word in said for word in ("taps", "products", "bf16", "three quarters", "half as many", "ten times"))
    assert answer("hot-operator", cpu(operators=(OperatorRow(name="c10d::allreduce_", self_ms=60.0),))) is None
    other = answer("hot-operator", cpu(operators=(OperatorRow(name="aten::sort", self_ms=60.0, calls=1),)))
    assert isinstance(other, Note)
    assert "bf16" not in other.text
    assert "half as many operations (channels, layers, a cheaper kind): 18.0 to 30.0 ms less" in other.text


def test_a_hot_operator_is_offered_only_what_can_be_had():
    small = "[[32, 64, 4, 4], [64, 64, 3, 3]]"
    hot = (OperatorRow(name="aten::mkldnn_convolution", self_ms=40.0, calls=20, shapes=small),)
    refusals = {"products": "no layer was faster"}
    found = answer("hot-operator", cpu(operators=hot, bf16_gain=1.3, refusals=refusals))
    assert found.remedy == "bf16"
    assert "products" not in " ".join(found.evidence)
    assert isinstance(answer("hot-operator", cpu(operators=hot, refusals=refusals)), Note)


def test_a_hot_roi_align_is_offered_sums_of_rows():
    rows = (
        OperatorRow(name="torchvision::_roi_align_backward", self_ms=40.0, calls=4),
        OperatorRow(name="GeneratedBackwardFor_torchvision_roi_align", self_ms=6.0, calls=4),
        OperatorRow(name="aten::mm", self_ms=9.0, calls=4),
    )
    found = answer("hot-operator", cpu(operators=rows, workload="detection"))
    assert found.remedy == "gathered-rois"
    assert found.gain_ms == pytest.approx((0.75 * 46, 0.9 * 46))
    has = cpu(operators=rows, workload="detection", optimizations=(parse_optimization("gathered-rois"),))
    assert isinstance(answer("hot-operator", has), Note)
    # `laptime run` would refuse it elsewhere.
    assert isinstance(answer("hot-operator", cpu(operators=rows, workload="train.py:workload")), Note)


def test_a_hot_operator_of_a_gpu_in_fp32_is_offered_bf16_by_the_rates_of_this_machine():
    hot = (OperatorRow(name="aten::cudnn_convolution", device_self_ms=6.0, calls=20),)
    found = answer("hot-operator", gpu(operators=hot, bf16_rates=4.0))
    assert found.remedy == "bf16"
    assert found.gain_ms == pytest.approx((6.0 * (1 - 1 / 2.5), 6.0 * 0.75))
    assert "ten times" not in " ".join(found.evidence)
    for none in (gpu(operators=hot), gpu(operators=hot, bf16_rates=4.0, precision="tf32")):
        assert isinstance(answer("hot-operator", none), Note)
    probed = answer("hot-operator", gpu(operators=hot, bf16_rates=4.0, bf16_gain=1.5))
    assert probed.gain_ms == pytest.approx((0.75 * 2.0, 1.3 * 2.0))


def test_a_copy_of_which_a_trace_does_not_say_the_memory_is_not_judged():
    rows = CASES["pinned-copies"][0][0].copies
    unknown = tuple(r.model_copy(update={"pageable": None}) for r in rows)
    with pytest.raises(MissingSignalError, match="pageable"):
        _RULES["pinned-copies"](gpu(copies=unknown))
    assert _RULES["pinned-copies"](gpu(copies=tuple(r.model_copy(update={"ms": 0.1}) for r in unknown))) is None
    assert "(5.2 GB/s)" in answer("pinned-copies", gpu(copies=rows)).evidence[0]  # 6 MiB in 1.2 ms


def test_a_copy_that_is_waited_for_could_run_beside_the_step():
    (case,) = [s for s in CASES["pinned-copies"][0] if not s.copies[0].pageable]
    found = answer("pinned-copies", case)
    assert found.gain_ms == pytest.approx((0.5 * 2.7, 2.7))  # the copy's 1.2 ms, and 1.5 ms idle after it
    assert found.remedy == "pinned"
    assert "non_blocking=True" in found.code
    assert answer("pinned-copies", replace(case, step_ms=2.0)).gain_ms[1] == 2.0
    with pytest.raises(MissingSignalError, match="waits"):
        _RULES["pinned-copies"](replace(case, syncs=None))


def test_no_variant_is_proposed_for_reads_that_the_step_has_not():
    rows = CASES["synchronisation"][0][0].syncs
    assert answer("synchronisation", gpu(syncs=rows)).remedy == "no-reads"
    for reads in (False, None):
        found = answer("synchronisation", gpu(syncs=rows, reads=reads))
        assert found.remedy == ""
        assert found.lines == ("train.py:40",)


def test_a_step_without_reads_lacks_no_time_of_them():
    assert answer("reads", cpu(reads=False, read_ms=None)) is None


def test_what_withholds_the_compiler_names_the_ladder_that_probes_it():
    assert "--preset full" in answer("compile", cpu(compile_gain=None)).reason


def test_the_compiler_is_expected_to_help_forward_and_backward_alone():
    found = answer("compile", cpu(compile_gain=1.25, forward_ms=20.0, backward_ms=40.0, optimizer_ms=40.0))
    assert found.gain_ms == pytest.approx((0.7 * 12.0, 1.15 * 12.0))


def test_ranks_share_the_cores():
    alone = answer("workers", cpu(workers=1, wait_ms=30.0, process_cpu_ms=100.0, cores=8))
    four = answer("workers", cpu(workers=1, wait_ms=30.0, process_cpu_ms=100.0, cores=32, ranks=4))
    assert alone.remedy == four.remedy == "workers:count=2"
    assert four.evidence[1] == alone.evidence[1]


def test_the_first_batch_is_judged_by_what_an_ordinary_one_does_not_take():
    s = cpu(workers=2, first_batch_s=1.0, worker_start_s=0.2, wait_ms=60.0, copy_ms=40.0)
    assert answer("first-batch", s).gain_ms == pytest.approx((0.7 * 7.0, 7.0))  # 0.7 s over 100 steps
