"""Records, traces and probes for the tests of advice."""

from __future__ import annotations

from advice_examples import CASES, specs

from laptime.records import EpochRecord, Machine, ProbeRecord, RunRecord
from laptime.records.breakdown import Breakdown, InferenceRecord, Quartiles, SetupRecord
from laptime.records.trace import KernelStats, OperatorRow, TraceSummary
from laptime.spec import DataSpec, RunSpec


def quartiles(median: float, spread: float = 0.01) -> Quartiles:
    return Quartiles(low=median * (1 - spread / 2), median=median, high=median * (1 + spread / 2))


def _parts(data: float) -> dict[str, float]:
    return {"data": data, "forward": 12.0, "backward": 24.0, "optimizer": 4.0}


def record(kind: str = "sleeps", noise: float = 0.02, load: float = 0.8) -> RunRecord:
    """ResNet-18, batch 32, two cores, 0.5 ms an item, no workers; the loader sleeps or is busy, as recorded."""
    step, data, share = {"sleeps": (59.5, 17.9, 0.06), "busy": (57.2, 16.9, 0.99)}[kind]
    broken = Breakdown(
        steps=60,
        step_ms=quartiles(step, noise),
        parts_ms={n: quartiles(ms) for n, ms in _parts(data).items()},
        fetch_cpu_share=share,
        process_cpu_ms=2 * (step - data) + share * data,  # two threads train
    )
    epoch = EpochRecord(index=0, epoch_s=step * 60 / 1e3, samples=1920, steps=60, evaluate_s=0.05, breakdown=broken)
    return RunRecord(
        status="done",
        spec=spec(),
        machine=Machine(cores=2, load_before=load, memory_gib=24),
        epochs=(epoch,),
        setup=SetupRecord(batch_size=32, loader="items", workers=0, optimizer_kernel="fused", train_mib=50_000.0),
        inference=(InferenceRecord(batch_size=32, pass_ms=quartiles(10.0), samples_per_s=3200.0),),
    )


def spec(variant: str = "cpu-baseline", *names: str) -> RunSpec:
    data = DataSpec(
        asked="auto", kind="official", digest="d", path="", classes=("a", "b"), train_count=50_000, test_count=100
    )
    return RunSpec(workload="cifar", variant=variant, optimizations=specs(*names), data=data, limit_train=1920)


def trace(**changes: object) -> TraceSummary:
    """Somebody's own loop on a GPU: pageable copies and a read in each step of 12 ms."""
    return TraceSummary(
        source="theirs.json.gz",
        device="cuda",
        steps=5,
        step_ms=quartiles(12.0),
        step_mean_ms=12.1,
        attribution_ms={"kernel": 8.0, "copy": 1.2, "data_loading": 0.1},
        operators=(OperatorRow(name="aten::cudnn_convolution", device_self_ms=2.0, calls=20),),
        kernels=KernelStats(calls=300, median_us=25.0, busy_ms=9.0, idle_ms=3.0),
        copies=CASES["pinned-copies"][0][0].copies,
        syncs=CASES["synchronisation"][0][0].syncs,
        optimizer_ms=0.3,
    ).model_copy(update=changes)


def probe(**gains: float) -> ProbeRecord:
    return ProbeRecord(gains={k.replace("_at_", "@"): v for k, v in gains.items()})
