"""A ladder as a machine with two cores would produce it, with everything that can happen to a variant."""

from __future__ import annotations

import math

from laptime.compare.comparison import Comparison, compare, ladder_of, with_specs
from laptime.records import (
    Ceilings,
    CheckRecord,
    EpochRecord,
    LadderRecord,
    LeftOut,
    Machine,
    ProbeRecord,
    Rung,
    RunRecord,
    Status,
)
from laptime.spec import DataSpec, OptimizationSpec, RunSpec

STARTED = 1_795_255_200.0
MACHINE = Machine(
    fingerprint="5f1c",
    cpu="AMD EPYC 9575F",
    cores=2,
    torch="2.15.0+cpu",
    ceilings=Ceilings(gemm_fp32_gflops=223.0, gemm_bf16_gflops=1001.0),
)
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def compare_records(records: list[RunRecord]) -> Comparison:
    """Compares records that no ladder holds together, as `laptime compare` does."""
    named = with_specs(records)
    return compare(ladder_of(named), named)


def data(kind: str = "folder", notice: str = "", classes: tuple[str, ...] = CIFAR) -> DataSpec:
    return DataSpec(
        asked="auto",
        kind=kind,
        digest="d1",
        path="cifar",
        classes=classes,
        train_count=50_000,
        test_count=10_000,
        notice=notice,
    )


def spec(variant: str, names: tuple[str, ...] = (), repeat: int = 0, of: DataSpec | None = None) -> RunSpec:
    return RunSpec(
        workload="cifar",
        variant=variant,
        optimizations=tuple(OptimizationSpec(name=n) for n in names),
        data=of or data(),
        epochs=4,
        repeat=repeat,
    )


def check(klass: str = "exact", gradient: float = 4e-6) -> CheckRecord:
    return CheckRecord(
        klass=klass,
        loss_baseline=2.3,
        loss_variant=2.3,
        loss_error=2e-7,
        loss_tolerance=1e-4,
        gradient_error=gradient,
        gradient_tolerance=1e-2,
        passed=gradient < 1e-2,
    )


def epochs(seconds: float, final: float | None, count: int = 4, wobble: float = 0.0) -> tuple[EpochRecord, ...]:
    """Counted epochs whose accuracy rises to its final value and whose times scatter by a fixed pattern."""
    found, so_far = [], 0.0
    for i in range(count):
        epoch_s = seconds * (1 + 0.01 * math.sin(7 * i + 13 * wobble) + 0.02 * math.sin(5 * wobble))
        so_far += epoch_s
        data_s = min(20.0, 0.3 * epoch_s) if seconds > 80 else 0.02 * epoch_s
        rest = epoch_s - data_s
        accuracy = None if final is None else final - 0.22 * math.exp(-1.1 * i) + 0.22 * math.exp(-1.1 * (count - 1))
        found.append(
            EpochRecord(
                index=i,
                epoch_s=epoch_s,
                samples=50_000,
                train_s_so_far=so_far,
                test_accuracy=accuracy,
                test_loss=None if accuracy is None else 2.3 * (1 - accuracy) ** 0.8,
                peak_memory_mib=900 + seconds,
                parts_s={
                    "data": data_s,
                    "forward": 0.3 * rest,
                    "backward": 0.55 * rest,
                    "optimizer": 0.12 * rest,
                    "read": 0.01 * rest,
                },
            )
        )
    return tuple(found)


def record(
    variant: str, seconds: float, final: float | None = 0.66, repeat: int = 0, names: tuple[str, ...] = ()
) -> RunRecord:
    return RunRecord(
        status="done",
        spec=spec(variant, names, repeat),
        machine=MACHINE,
        epochs=epochs(seconds, final, wobble=repeat + len(variant)),
        check=check() if names else None,
        precision="bf16" if "bf16" in names else "fp32",
        flops_per_sample=0.2184e9,
        startup_s=6.1,
        warmup_s=seconds * 0.4,
        commit="b6edec6f00",
    )


def broken(variant: str, status: Status, error: str | None, names: tuple[str, ...] = ()) -> RunRecord:
    found = check("numeric", 0.31) if status == "wrong" else None
    return RunRecord(status=status, error=error, spec=spec(variant, names), machine=MACHINE, check=found)


# variant, seconds, accuracy, what it is built on, its optimizations, whether the last of them stayed
STEPS = (
    ("cpu-baseline", 85.0, 0.660, None, (), None),
    ("cpu-resident", 70.0, 0.662, "cpu-baseline", ("resident",), True),
    ("cpu-threads", 71.2, 0.661, "cpu-resident", ("resident", "threads"), False),
    ("cpu-channels-last", 62.0, 0.659, "cpu-resident", ("resident", "channels-last"), True),
    ("cpu-dead-taps", 40.0, 0.662, "cpu-channels-last", ("resident", "channels-last", "dead-taps"), True),
    ("cpu-bf16", 33.0, 0.657, "cpu-dead-taps", ("resident", "channels-last", "dead-taps", "bf16"), True),
    (
        "cpu-products",
        30.0,
        0.663,
        "cpu-bf16",
        ("resident", "channels-last", "dead-taps", "products", "bf16"),
        True,
    ),
    (
        "cpu-optimized",
        12.5,
        0.740,
        "cpu-products",
        ("resident", "large-batch", "channels-last", "dead-taps", "products", "bf16"),
        None,
    ),
    (
        "cpu-optimized-without-dead-taps",
        19.8,
        0.738,
        None,
        ("resident", "large-batch", "channels-last", "bf16"),
        None,
    ),
)


def ladder(kind: str = "folder", notice: str = "", floor: float = 0.55) -> LadderRecord:
    klass = {"bf16": "numeric", "large-batch": "statistical"}
    rungs = [
        Rung(
            variant=variant,
            optimizations=tuple(OptimizationSpec(name=n) for n in names),
            classes=tuple(dict.fromkeys(sorted(klass.get(n, "exact") for n in names))),
            on=on,
            adds=names[-1] if on and joined is not None else None,
            joined=joined,
            reason={True: "faster and right", False: "not faster"}.get(joined, ""),
        )
        for variant, _, _, on, names, joined in STEPS
    ]
    rungs.append(Rung(variant="cpu-fused-optimizer", on="cpu-channels-last", adds="fused-optimizer"))
    rungs.append(Rung(variant="cpu-no-reads", on="cpu-channels-last", adds="no-reads"))
    return LadderRecord(
        id="20261121-091143-cifar",
        workload="cifar",
        preset="full",
        device="cpu",
        data=data(kind, notice),
        probe=ProbeRecord(gains={"bf16": 1.31, "products": 1.12}),
        rungs=tuple(rungs),
        left_out=(LeftOut(variant="cpu-compile", reason="compile: no GPU, and the probe showed a loss"),),
        epochs=4,
        repeats=3,
        quality_floor=floor,
        commit="b6edec6f00",
        started_at=STARTED,
        status="done",
    )


def records() -> list[RunRecord]:
    found = [
        record(variant, seconds, final + 0.002 * math.sin(9 * r + seconds), r, names)
        for r in range(3)
        for variant, seconds, final, _, names, _ in STEPS
    ]
    failed = "out of memory: tried to allocate 2.1 GiB"
    found.append(broken("cpu-fused-optimizer", "failed", failed, ("fused-optimizer",)))
    return [*found, broken("cpu-no-reads", "wrong", None, ("no-reads",))]
