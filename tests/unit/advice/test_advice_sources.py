"""Signals out of traces, probes and set-ups: scales, noise, memory, batches, and what a probe's ratio is of."""

from __future__ import annotations

import pytest
from advice_examples import CASES, cpu, gpu, specs
from advice_records import probe, quartiles, record, spec, trace

from laptime.advice import advise, signals_of
from laptime.advice.outcome import Abstain, Note
from laptime.advice.rules.batch import batch_size
from laptime.advice.rules.launches import compiling
from laptime.advice.rules.loading import resident_data
from laptime.advice.rules.model import precision
from laptime.advice.rules.parallel import stragglers
from laptime.advice.signals import Signals
from laptime.preflight.probe import exact_before
from laptime.records import ProfileRecord, Quartiles, RunRecord
from laptime.records.run import StartRecord
from laptime.records.trace import OperatorRow
from laptime.spec import OptimizationSpec


def on_ranks(ranks: int, nodes: int = 1, scaling: str = "strong", **setup) -> RunRecord:
    """The recorded run as one rank of several on a CPU."""
    ddp = OptimizationSpec(name="ddp", options={"scaling": scaling})
    plain = record()
    update = {
        "ranks": ranks,
        "spec": spec("cpu-ddp").model_copy(update={"optimizations": (ddp,)}),
        "setup": plain.setup.model_copy(update={"batch_size": 16, **setup}),
        "starts": (StartRecord(epoch=0, ranks=ranks, nodes=nodes, started_at=1.0),),
    }
    return plain.model_copy(update=update)


def profiled(**mib: float) -> RunRecord:
    return record().model_copy(update={"profile": ProfileRecord(schedule="1,2,5,1", memory_mib=mib)})


def test_a_gpus_host_that_runs_ahead_makes_no_noise():
    ahead = trace(step_ms=Quartiles.of([5, 5, 18, 20, 20]), step_mean_ms=13.6)
    assert signals_of(trace=ahead).noise is None
    assert "noisy" not in advise(trace=ahead).verdict
    steady = trace(step_ms=Quartiles.of([11, 12, 13, 12, 12]), step_mean_ms=12.0)
    assert signals_of(trace=steady).noise is None
    assert signals_of(trace=trace(step_ms=quartiles(12.0, 0.2), step_mean_ms=12.1)).noise == pytest.approx(0.2)
    # On a CPU the host's steps are the steps, whatever their mean is.
    clock = Quartiles(low=19.6, median=20, high=20.4)
    told = signals_of(trace=ahead.model_copy(update={"device_step_ms": clock}))
    assert (told.step_ms, told.noise) == (20, pytest.approx(0.04))
    on_cpu = ahead.model_copy(update={"device": "cpu"})
    assert signals_of(trace=on_cpu).noise == pytest.approx(15 / 18)
    counted = record().model_copy(update={"spec": spec().model_copy(update={"device": "cuda"}), "epochs": ()})
    assert signals_of(counted, on_cpu).noise is None


def test_a_trace_with_one_slow_step_is_shared_out_by_its_mean():
    sort = (OperatorRow(name="aten::sort", self_ms=26.0, calls=1),)
    slow = trace(device="cpu", step_ms=Quartiles.of([20, 20, 20, 20, 120]), step_mean_ms=40.0, operators=sort)
    found = signals_of(trace=slow)
    assert (found.step_ms, found.operators[0].self_ms) == (40.0, 26.0)
    scaled = signals_of(record(), slow)
    assert scaled.operators[0].self_ms / scaled.step_ms == pytest.approx(26 / 40)


def test_activations_are_known_only_where_they_were_seen():
    assert signals_of(profiled(parameters=40.0, inputs=0.4)).activations_mib is None
    assert signals_of(profiled(parameters=40.0, inputs=0.4, activations=300.0)).activations_mib == pytest.approx(300.4)
    fires = {**vars(CASES["batch-size"][0][0]), "peak_mib": 2000.0}
    unknown = cpu(**{**fires, "activations_mib": None})
    assert isinstance(batch_size(unknown), Abstain)  # 16 times 2,000 MiB of 24,000


def test_the_memory_is_what_the_run_may_use():
    limited = record().setup.model_copy(update={"device_memory_mib": 2048.0, "train_mib": 600.0})
    found = signals_of(record().model_copy(update={"setup": limited}))
    assert found.memory_mib == 2048.0
    assert "600 MiB of 2,048 MiB" in resident_data(found).reason
    assert signals_of(record()).memory_mib == 24 * 1024  # an older record has the machine's alone


def test_ranks_of_a_host_share_its_memory():
    assert signals_of(on_ranks(4, device_memory_mib=8000.0)).memory_mib == 2000.0
    assert signals_of(on_ranks(4, nodes=2, device_memory_mib=8000.0)).memory_mib == 4000.0
    fits = {"device_memory_mib": 8000.0, "train_mib": 1500.0}
    assert resident_data(signals_of(on_ranks(1, **fits))).remedy == "resident"
    assert isinstance(resident_data(signals_of(on_ranks(2, **fits))), Abstain)
    small = resident_data(signals_of(on_ranks(2, **fits | {"train_mib": 500.0})))
    assert "a rank has 4,000 MiB" in small.evidence[1]
    own_gpu = on_ranks(2, device_memory_mib=8000.0)
    cuda = own_gpu.model_copy(update={"spec": own_gpu.spec.model_copy(update={"device": "cuda"})})
    assert signals_of(cuda).memory_mib == 8000.0


def test_a_larger_batch_is_that_of_all_ranks():
    two = signals_of(on_ranks(2))
    assert (two.batch_size, two.parts, two.whole_batch) == (16, 1, 32)
    assert signals_of(on_ranks(2, passes=3)).parts == 3
    weak = signals_of(on_ranks(2, scaling="weak"))
    assert (weak.batch_size, weak.whole_batch) == (16, 16)
    fixed = {"optimizer_ms": 40.0, "forward_ms": 20.0, "backward_ms": 39.0, "steps": 1000}
    fixed["passes"] = ((16, 23.0), (512, 240.0))
    found = batch_size(cpu(**fixed, ranks=2, batch_size=16, whole_batch=32))
    assert "take 512 samples a step instead of 32" in found.what
    assert found.remedy == "large-batch:size=512"
    alone = batch_size(cpu(**fixed, batch_size=16, whole_batch=16))
    assert found.gain_ms[1] / alone.gain_ms[1] == pytest.approx((1 - 32 / 512) / (1 - 16 / 512))


def test_the_only_ratio_of_a_probe_holds_for_any_batch():
    large = record().model_copy(update={"setup": record().setup.model_copy(update={"batch_size": 1024})})
    assert signals_of(large, probe=probe(bf16=1.4)).bf16_gain == 1.4
    assert signals_of(large, probe=probe(bf16=1.4, bf16_at_512=2.0)).bf16_gain == 2.0
    assert signals_of(record(), probe=probe(bf16=1.4, bf16_at_512=2.0)).bf16_gain == 1.4
    assert signals_of(record(), probe=probe(compile=1.4)).bf16_gain is None


def test_a_ratio_of_other_steps_has_a_wider_range():
    exact = [o.name for o in exact_before("cifar", "cpu", "bf16")]
    same = record().model_copy(update={"spec": spec("cpu-dead-taps", *exact)})
    apart, alike = (signals_of(r, probe=probe(bf16=1.4, compile=1.4)) for r in (record(), same))
    assert apart.bf16_apart == f"with {', '.join(exact)}"
    assert alike.bf16_apart == ""
    assert alike.compile_apart == "with keep-pages, products"
    wide, narrow = precision(apart), precision(alike)
    assert wide.gain_ms[0] < narrow.gain_ms[0] < narrow.gain_ms[1] < wide.gain_ms[1]
    assert wide.evidence[1] == f"the probe's steps were others, with {', '.join(exact)}, so the range is wider"
    assert len(narrow.evidence) == len(wide.evidence) - 1
    assert "the probe's steps were others" in compiling(apart).evidence[1]
    more = record().model_copy(update={"spec": spec("cpu-keep-pages", *exact, "keep-pages")})
    assert signals_of(more, probe=probe(bf16=1.4)).bf16_apart == "without keep-pages"


def test_a_ratio_that_shows_only_beside_another_optimization_holds_for_runs_with_that_one():
    exact = [o.name for o in exact_before("cifar", "cpu", "bf16")]
    found = probe(bf16=1.4).model_copy(update={"beside": {"bf16": "products"}})
    with_it = record().model_copy(update={"spec": spec("cpu-products", *exact, "products")})
    assert signals_of(with_it, probe=found).bf16_gain == 1.4
    assert signals_of(with_it, probe=found).bf16_apart == ""
    assert signals_of(record(), probe=found).bf16_gain is None


def test_a_gpu_without_bf16_is_offered_fp16():
    old = "compute capability 7.5, and matrix units for bf16 begin at 8.0"
    found = precision(gpu(bf16_rates=0.3, refusals={"bf16": old}))
    assert found.remedy == "fp16"
    assert found.confidence < 0.5
    assert any(old in text for text in found.evidence)
    assert precision(gpu(bf16_rates=4.0)).remedy == "bf16"
    assert isinstance(precision(gpu(bf16_rates=0.3, refusals={"bf16": old, "fp16": old})), Abstain)


def test_ranks_that_seem_alike_are_told_what_is_not_seen():
    alike = gpu(ranks=4, rank_compute_ms=(3.0, 3.1, 3.2, 3.0))
    assert "slow in backward, exchange or optimizer is not seen" in stragglers(alike).reason
    assert stragglers(gpu(rank_compute_ms=(3.0,))) is None
    assert not isinstance(stragglers(gpu(ranks=2, optimizations=specs("ddp"), rank_compute_ms=(3.0, 6.0))), Note)


def test_a_rank_that_is_slow_in_backward_is_told_by_the_traces_of_all():
    """As recorded of two gloo ranks, the second of which slept 50 ms in backward, at 1.25 times the counted step."""

    def of(*own_ms: float, ratio: float | None = 1.25) -> Signals:
        profile = ProfileRecord(schedule="1,2,5,1", ratio=ratio, ranks_own_ms=own_ms or None)
        return signals_of(record().model_copy(update={"ranks": 2, "profile": profile}))

    assert of(5.0, 55.0).rank_own_ms == pytest.approx((4.0, 44.0))
    slow = stragglers(of(5.0, 55.0))
    assert slow.what.startswith("Rank 1 is late")
    assert slow.gain_ms == pytest.approx((20.0, 40.0))
    assert stragglers(of(54.0, 55.0)) is None
    for unknown in (of(), of(5.0), of(5.0, 55.0, ratio=None)):
        assert unknown.rank_own_ms is None


def test_many_steps_of_several_epochs_tell_more_than_their_scatter():
    """Half of the steps spread over a quarter of the middle one, and yet the middles of four epochs agree."""

    def noise(*factors: float, steps: int = 60) -> float:
        (epoch,) = record(noise=0.25).epochs
        assert epoch.breakdown is not None
        whole = epoch.breakdown.step_ms
        epochs = []
        for index, by in enumerate(factors):
            step = Quartiles(low=by * whole.low, median=by * whole.median, high=by * whole.high)
            broken = epoch.breakdown.model_copy(update={"step_ms": step, "steps": steps})
            epochs.append(epoch.model_copy(update={"index": index, "breakdown": broken}))
        return signals_of(record().model_copy(update={"epochs": tuple(epochs)})).noise or 0.0

    assert noise(1.0) == pytest.approx(0.25)  # one epoch tells nothing of the machine's drift
    assert noise(1.0, 1.0, 1.0, 1.0) == pytest.approx(1.858 * 0.25 / 240**0.5, rel=0.01)
    assert noise(1.0, 1.1, 1.0, 1.1) == pytest.approx(2 * 0.05774 / 4**0.5 / 1.05, rel=0.01)  # but they drift
    assert noise(1.0, 2.0) == pytest.approx(0.25)
    assert noise(1.0, 1.0, steps=4) == pytest.approx(1.858 * 0.25 / 8**0.5, rel=0.01)


def test_ranks_without_their_breakdowns_take_no_time_each():
    many = record().model_copy(update={"ranks": 10**12})
    assert signals_of(many).rank_compute_ms is None
