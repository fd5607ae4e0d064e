"""Advice as a whole: recorded loaders, ranking, withholding, limits, history, variants and commands, words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from advice_examples import CASES, cpu, gpu, specs
from advice_nets import ATTENTION, CROSS_ENTROPY, EMBEDDINGS, GELU, HOT, NORMS, WEIGHTS, WRITES
from advice_records import probe, quartiles, record, spec, trace

from laptime.advice import advise, signals_of, to_text
from laptime.advice.judge import ask, confidence, judge
from laptime.advice.rules import RULES
from laptime.records.advice import RuleHistory
from laptime.records.breakdown import ProfileRecord
from laptime.records.trace import OperatorRow, TraceSummary
from laptime.variants import resolve


def of(signals, history=None):
    return judge(ask(RULES, signals), signals, history or {})


def ids(advice):
    return [f.id for f in advice.findings]


def why(advice, name):
    return next(w.reason for w in advice.withheld if w.id == name)


def test_a_loader_that_sleeps_gets_a_worker_and_the_step_is_predicted():
    found = advise(record("sleeps"))
    best = found.findings[0]
    low, high = best.step_ms_expected
    assert best.id == "workers"
    assert low <= 42.9 <= high  # what one worker made of it
    assert (low + high) / 2 == pytest.approx(42.9, rel=0.10)
    assert best.variant == "cpu-baseline+workers:count=1"
    assert best.command == "laptime run cifar --variant cpu-baseline+workers:count=1 --limit-train 1920"
    assert resolve(best.variant).optimizations[0].options == {"count": 1}
    assert best.klass == "exact"


def test_a_loader_that_is_busy_on_a_full_machine_gets_none():
    found = advise(record("busy"))  # with one worker its step went from 57.2 to 65.3 ms
    assert "workers" not in ids(found)
    assert "all 2 cores" in why(found, "workers")


def test_findings_are_ranked_by_gain_times_confidence():
    found = of(cpu(wait_ms=12.0, optimizer_ms=40.0, process_cpu_ms=190.0, passes=None))
    worth = [sum(f.gain) / 2 * f.confidence for f in found.findings]
    assert worth == sorted(worth, reverse=True)
    assert ids(found)[:2] == ["optimizer", "resident-data"]
    assert found.verdict.startswith("Most worth doing: The optimizer")


def test_small_gains_are_withheld_with_the_figure():
    assert "under 3 %" in why(of(cpu(gc_ms=2.0)), "garbage-collection")
    assert "twice the noise of 9.0 %" in why(of(cpu(optimizer_ms=25.0, noise=0.09)), "optimizer")
    unknown = of(cpu(optimizer_ms=15.0, noise=None))
    assert "twice the noise of 5.0 %" in why(unknown, "optimizer")
    assert any("was not recorded" in text for text in unknown.notices)


def test_on_a_noisy_machine_no_numbers_are_given():
    for noisy in (record(noise=0.2), record(load=5.0)):
        found = advise(noisy)
        assert found.findings == ()
        assert found.verdict.startswith("The machine was too")
        assert "noisy" in why(found, "workers")
    sort = {"operators": (OperatorRow(name="aten::sort", self_ms=60.0, calls=1),)}
    assert any("60 %" in text for text in of(cpu(**sort)).notices)
    quiet = of(cpu(**sort, noise=0.2))
    assert quiet.notices == ()
    assert "noisy" in why(quiet, "hot-operator")


def test_near_the_roof_the_advice_is_what_is_left():
    found = of(cpu(floor_share=0.85, optimizer_ms=10.0, wait_ms=1.0, bf16_gain=1.5, passes=None))
    assert found.verdict.startswith("Stop here")
    assert "at most 15 %" in found.verdict
    assert found.findings[0].id == "precision"
    assert found.findings[0].gain[1] > 0.15  # a numeric remedy moves the ceiling
    assert "more than the 2 %" in why(of(cpu(floor_share=0.98, optimizer_ms=10.0, passes=None)), "optimizer")
    capped = of(cpu(floor_share=0.75, optimizer_ms=35.0, noise=0.0, passes=None))
    assert capped.findings[0].gain[1] == pytest.approx(0.25)
    profiled = record().model_copy(update={"profile": ProfileRecord(schedule="1,2,5,1", floor_share=0.9)})
    assert not advise(profiled).verdict.startswith("Stop here")  # it waits for data


def test_the_roof_is_of_the_step_and_of_its_operations():
    near = {"floor_share": 0.95, "passes": None, "noise": 0.0}
    cropped = of(cpu(**near, dead_share=0.6, optimizer_ms=40.0, optimizer_kernel="fused"))
    best = next(f for f in cropped.findings if f.id == "dead-taps")
    assert best.gain == pytest.approx((0.85 * 0.24, 1.2 * 0.24))
    # Operations that nobody needs, which the floor counts.
    for fires in (
        *ATTENTION[0],
        *EMBEDDINGS[0],
        *WRITES[0],
        *WEIGHTS[0],
        *GELU[0],
        *NORMS[0],
        *CROSS_ENTROPY[0],
        HOT[0][0],
    ):
        wasteful = of(cpu(**(near | fires)))
        assert not wasteful.verdict.startswith("Stop here")
        assert wasteful.findings
    assert of(cpu(**near, optimizer_ms=40.0)).verdict.startswith("Stop here")
    beside = next(f for f in of(cpu(**near, evaluate_s=4.0)).findings if f.id == "epoch-overhead")
    assert beside.gain == pytest.approx((4 / 14 / 2, 4 / 14 * 4 / 5))
    assert "too noisy" in why(of(cpu(**near | {"noise": 0.2}, evaluate_s=4.0)), "epoch-overhead")


def test_two_rules_with_one_remedy_make_one_finding():
    dead = CASES["dead-taps"][0][1].operators[0].model_copy(update={"self_ms": 60.0})
    found = of(cpu(operators=(dead,), dead_share=None))
    assert [f.id for f in found.findings if f.variant.endswith("+dead-taps")] == ["dead-taps"]
    assert any(text.startswith("hot-operator/mkldnn_convolution: ") for text in found.findings[0].evidence)


@pytest.mark.parametrize("name", ["attention", "hot-operator"])
def test_what_takes_operations_away_moves_the_ceiling(name):
    (found,) = (f for f in of(replace(CASES[name][0][0 if name == "attention" else 2], floor_share=0.97)).findings)
    assert found.id.partition("/")[0] == name
    assert found.gain[0] > 0.03


def test_what_the_variant_has_or_can_not_have_is_not_proposed():
    has = of(cpu(optimizer_ms=30.0, optimizations=specs("no-reads"), read_ms=10.0, variant="cpu-no-reads"))
    assert "has no-reads already" in why(has, "reads")
    excluded = of(gpu(copies=CASES["pinned-copies"][0][0].copies, optimizations=specs("resident")))
    assert "would take the place of resident" in why(excluded, "pinned-copies")
    refusals = dict.fromkeys(("bf16", "fp16"), "no matrix units for it")
    refused = of(gpu(bf16_rates=4.0, refusals=refusals, operators=(_conv(6.0),)))
    assert why(refused, "precision") == "no matrix units for it"


def _conv(ms):
    return CASES["precision"][0][1].operators[0].model_copy(update={"device_self_ms": ms})


def test_a_rung_whose_list_a_ladder_changed_is_spelled_out():
    named = advise(record().model_copy(update={"spec": spec("cpu-fused-optimizer", "fused-optimizer")}))
    assert named.findings[0].variant == "cpu-baseline+fused-optimizer+workers:count=1"
    own = advise(record().model_copy(update={"spec": spec("cpu-baseline+fused-optimizer", "fused-optimizer")}))
    assert own.findings[0].variant == "cpu-baseline+fused-optimizer+workers:count=1"
    assert (
        resolve(own.findings[0].variant).optimizations
        == specs("fused-optimizer")[:0] + resolve("cpu-baseline+workers:count=1+fused-optimizer").optimizations
    )


def test_a_probe_brings_the_ratio_of_its_batch():
    found = advise(record(), probe=probe(bf16=1.4, bf16_at_512=2.0, compile=0.8))
    both, gain = 36.0, 1 - 1 / 1.4
    best = next(f for f in found.findings if f.id == "precision")
    assert best.gain[1] == pytest.approx(1.3 * both * gain / 59.5)
    assert best.klass == "numeric"
    assert "0.80x" in why(found, "compile")


def test_a_slower_profiled_trace_is_scaled_to_the_counted_step():
    plain = of(gpu(syncs=CASES["synchronisation"][0][0].syncs))
    foreign = advise(trace=trace(step_ms=quartiles(10.0), step_mean_ms=10.0))
    slower = advise(trace=trace(step_ms=quartiles(20.0), step_mean_ms=20.0))
    share = {a.findings[0].gain for a in (plain, foreign)}
    assert len({round(g[1], 9) for g in share}) == 1
    assert slower.findings[0].gain[1] == pytest.approx(foreign.findings[0].gain[1] / 2)
    counted = record().model_copy(update={"spec": spec().model_copy(update={"device": "cuda"})})
    # Profiled steps of twice the time; the host, which runs ahead, was through with most of them in a third of it.
    both = advise(counted, trace(step_ms=quartiles(40.0), step_mean_ms=119.0))
    idle = next(f for f in both.findings + both.withheld if f.id == "synchronisation")
    assert "idle for 0.75 ms" in idle.evidence[0] if hasattr(idle, "evidence") else "0.6 %" in idle.reason


def on_gpu(**changes):
    """The recorded run as if a GPU had run it."""
    plain = record()
    broken = plain.epochs[0].breakdown.model_copy(update=changes)
    epoch = plain.epochs[0].model_copy(update={"breakdown": broken})
    return plain.model_copy(update={"spec": spec().model_copy(update={"device": "cuda"}), "epochs": (epoch,)})


def test_on_a_gpu_the_wait_is_what_the_device_stands_idle_for():
    hidden = signals_of(on_gpu(device_ms={"data": quartiles(0.2), "forward": quartiles(9.0)}))
    assert hidden.wait_ms == pytest.approx(0.2)
    assert signals_of(on_gpu(device_ms={"data": quartiles(99.0)})).wait_ms == pytest.approx(17.9)
    assert signals_of(on_gpu()).wait_ms is None
    traced = trace(regions_ms={"data": 5.0}, step_mean_ms=59.5)
    assert signals_of(on_gpu(), traced).wait_ms == pytest.approx(0.1)
    unattributed = traced.model_copy(update={"attribution_ms": {}})
    assert signals_of(on_gpu(), unattributed).wait_ms is None
    coarse = on_gpu().epochs[0].model_copy(update={"breakdown": None, "step_ms_median": 59.5, "parts_s": {"data": 1.0}})
    assert signals_of(on_gpu().model_copy(update={"epochs": (coarse,)})).wait_ms is None


def test_stragglers_are_told_by_the_devices_clocks():
    def ranks(*device_ms):
        own = on_gpu(device_ms=device_ms[0])
        others = tuple(own.epochs[0].breakdown.model_copy(update={"device_ms": d}) for d in device_ms[1:])
        epoch = own.epochs[0].model_copy(update={"ranks_breakdown": others})
        return signals_of(own.model_copy(update={"epochs": (epoch,), "ranks": len(device_ms)})).rank_compute_ms

    def clock(forward):
        return {"data": quartiles(1.0), "copy": quartiles(0.5), "forward": quartiles(forward)}

    assert ranks(clock(3.0), clock(8.0)) == pytest.approx((4.5, 9.5))
    assert ranks(clock(3.0), {}) is None


@pytest.mark.parametrize(("share", "told"), [(None, 0.4), (2.0, 0.0)])
def test_the_checkpoints_that_a_ladder_writes_for_itself_are_nobodys_overhead(share, told):
    own = record()
    first = own.epochs[0]
    saved = own.model_copy(
        update={
            "spec": own.spec.model_copy(update={"checkpoints": "here", "checkpoint_share": share}),
            # Not each epoch writes one.
            "epochs": tuple(first.model_copy(update={"index": i, "checkpoint_s": (0.8, None)[i]}) for i in range(2)),
        }
    )
    assert signals_of(saved).checkpoint_s == pytest.approx(told)


def test_few_steps_say_nothing_of_noise():
    assert signals_of(on_gpu(steps=3)).noise is None
    assert signals_of(on_gpu(steps=4)).noise == pytest.approx(0.02)
    assert signals_of(trace=trace(steps=1, step_ms=quartiles(12.0, 0.0))).noise is None
    assert any("was not recorded" in text for text in advise(trace=trace(steps=3)).notices)


def test_of_a_gpus_run_the_hosts_operators_are_not_judged():
    host = (OperatorRow(name="aten::cudnn_convolution", self_ms=9.0, calls=20),)
    seen = {"operators": host, "elementwise_calls": 90.0, "elementwise_ms": 5.0, "optimizer_calls": 100.0}
    blind = trace(device="cpu", missing=("device",), kernels=None, copies=(), syncs=(), **seen)
    for found in (signals_of(trace=blind), signals_of(on_gpu(), blind)):
        assert found.device == "cuda"
        assert [getattr(found, name) for name in seen] == [None] * 4
    on_cpu = blind.model_copy(update={"missing": ()})
    assert signals_of(trace=on_cpu).operators == host


def test_the_command_repeats_the_weights():
    own = record()
    first = advise(own.model_copy(update={"spec": own.spec.model_copy(update={"weights": "imagenet"})})).findings[0]
    assert first.command.endswith("--limit-train 1920 --weights imagenet")


def test_somebody_elses_trace_gets_lines_to_write_and_no_variant():
    found = advise(trace=trace())
    assert ids(found) == ["synchronisation", "pinned-copies"]
    assert all(f.variant == "" for f in found.findings)
    assert found.findings[0].lines == ("train.py:40",)
    assert "pin_memory=True" in found.findings[1].command
    assert "write: " in to_text(found)
    on_cpu = advise(trace=trace(device="cpu", copies=(), syncs=(), kernels=None, attribution_ms={"data_loading": 6.0}))
    assert "whether fetching waits or computes" in why(on_cpu, "workers")


def test_confidence_follows_the_record_of_the_rule():
    assert confidence(0.8, RuleHistory()) == pytest.approx(0.8)
    assert confidence(0.8, RuleHistory(tried=1, faster=0)) == pytest.approx(0.64)
    assert confidence(0.8, RuleHistory(tried=20, faster=20)) > 0.95
    assert confidence(0.8, RuleHistory(tried=20, faster=2)) < 0.25
    s = cpu(wait_ms=12.0, optimizer_ms=40.0, process_cpu_ms=190.0, passes=None)
    found = of(s, {"optimizer": RuleHistory(tried=20, faster=0, error=0.2)})
    assert ids(found)[0] == "resident-data"
    assert "right 0 of 20 times, with a median error of 20 % of the step" in to_text(found)


def test_a_trace_without_shapes_is_not_said_to_hold_nothing():
    told = TraceSummary(step_ms=quartiles(10.0), step_mean_ms=10.0, steps=5)
    assert advise(trace=told).findings == ()
    assert advise(trace=told).verdict.endswith("Record it with record_shapes=True.")
    assert advise(trace=told.model_copy(update={"precision": "fp32"})).verdict.endswith("under Withheld.")


def test_nothing_to_say_is_said():
    assert of(cpu()).verdict.startswith("Nothing worth proposing")
    assert advise(record().model_copy(update={"epochs": ()})).verdict.startswith("Nothing to advise on")
    assert "a run" in to_text(advise())


def test_rules_that_lack_the_same_signal_share_a_sentence():
    said = to_text(advise(record()))
    line = next(text for text in said.splitlines() if "the operators of a trace" in text)
    assert "zero-grad" in line
    assert "hot-operator" in line
