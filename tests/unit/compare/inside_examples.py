"""The inside of steps for the example ladder: breakdowns, inference, profiles, traces and advice."""

from __future__ import annotations

from collections.abc import Sequence

from laptime.records import (
    Advice,
    Breakdown,
    EpochRecord,
    Finding,
    InferenceRecord,
    Measured,
    OperatorRow,
    ProfileRecord,
    Quartiles,
    RuleHistory,
    RunRecord,
    SetupRecord,
    TraceSummary,
    Withheld,
)

SHARES = {"copy": 0.004, "forward": 0.3, "backward": 0.55, "optimizer": 0.12, "read": 0.01, "rest": 0.016}
BATCHES = {"cpu-optimized": 512}


def around(value: float, spread: float = 0.03) -> Quartiles:
    return Quartiles(low=value * (1 - spread), median=value, high=value * (1 + spread))


def breakdown(epoch: EpochRecord, batch: int) -> Breakdown:
    """Splits an epoch's time into steps of a batch; the baseline waits for its data."""
    steps = epoch.samples // batch
    step_ms = 1000 * epoch.epoch_s / (steps + 1)
    wait = 0.24 if epoch.epoch_s > 80 else 0.015
    parts = {"data": wait * step_ms} | {n: s * (1 - wait) * step_ms for n, s in SHARES.items()}
    return Breakdown(
        steps=steps,
        step_ms=around(step_ms),
        parts_ms={n: around(v) for n, v in parts.items()},
        mean_ms=parts,
        first_batch_s=0.021 if wait < 0.1 else 0.35,
        worker_start_s=None if wait < 0.1 else 0.31,
        fetch_cpu_share=0.97,
        process_cpu_ms=1.9 * step_ms,
        gc_s=0.04,
    )


def inside(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records with everything that a run notes of its steps."""
    return [_inside(r) if r.spec is not None and r.status == "done" else r for r in records]


def _inside(record: RunRecord) -> RunRecord:
    assert record.spec is not None
    batch = BATCHES.get(record.spec.variant, 32)
    epochs = tuple(
        e.model_copy(update={"breakdown": breakdown(e, batch), "evaluate_s": 4.1, "checkpoint_s": 0.06, "parts_s": {}})
        for e in record.epochs
    )
    step = epochs[0].breakdown.step_ms.median
    pairs = [(1, 4.1), (32, 0.31 * step)] if batch == 32 else [(1, 3.2), (512, 0.27 * step)]
    return record.model_copy(
        update={
            "epochs": epochs,
            "setup": SetupRecord(batch_size=batch, loader="resident", optimizer="Adam"),
            "inference": tuple(
                InferenceRecord(batch_size=b, pass_ms=around(ms), samples_per_s=1000 * b / ms) for b, ms in pairs
            ),
            "profile": None if record.spec.repeat else profile(record.spec.variant, step),
        }
    )


def profile(variant: str, step_ms: float) -> ProfileRecord:
    fast = variant == "cpu-optimized"
    return ProfileRecord(
        schedule="1,2,5,1",
        steps=5,
        step_ms=step_ms * 1.04,
        ratio=1.04,
        memory_mib={
            "parameters": 42.7,
            "gradients": 42.7,
            "optimizer": 85.4,
            "inputs": 6.0 if fast else 0.4,
            "buffers": 0.1,
            "activations": 412.0 if fast else 31.6,
        },
        floor_ms=step_ms * (0.71 if fast else 0.32),
        floor_share=0.71 if fast else 0.32,
        mfu=1.04 if fast else 0.29,
    )


def with_ranks(record: RunRecord) -> RunRecord:
    """The record as the first of two ranks writes it; the other one is slower and waits for its data."""
    epochs = []
    for epoch in record.epochs:
        own = breakdown(epoch, 32)
        other = own.model_copy(
            update={
                "step_ms": around(own.step_ms.median * 1.08),
                "parts_ms": {"data": around(own.step_ms.median * 0.2)},
            }
        )
        seconds = (epoch.epoch_s / 1.08, epoch.epoch_s)
        more = {"breakdown": own, "ranks_breakdown": (other,), "ranks_s": seconds, "skew_s": seconds[1] - seconds[0]}
        epochs.append(epoch.model_copy(update=more))
    return record.model_copy(update={"epochs": tuple(epochs), "ranks": 2})


def traces() -> dict[str, TraceSummary]:
    plain = trace(
        54.0,
        (
            ("aten::mkldnn_convolution", "[32, 512, 1, 1], [512, 512, 3, 3]", 4, 9.1, "forward", "conv"),
            (
                "aten::convolution_backward",
                "[32, 512, 1, 1], [32, 512, 1, 1], [512, 512, 3, 3]",
                4,
                15.2,
                "backward",
                "",
            ),
            ("aten::_fused_adam_", "", 1, 6.2, "optimizer", ""),
            ("aten::native_batch_norm", "[32, 64, 16, 16], [64], [64]", 20, 2.4, "forward", "norm"),
            ("aten::item", "[]", 2, 0.4, "", ""),
        ),
    )
    quick = trace(
        128.0,
        (
            ("aten::mm", "[512, 512], [512, 512]", 24, 48.0, "backward", ""),
            ("aten::mkldnn_convolution", "[512, 64, 8, 8], [64, 64, 3, 3]", 9, 31.5, "forward", "conv"),
        ),
    )
    middle = trace(44.0, (("aten::mkldnn_convolution", "[32, 64, 8, 8], [64, 64, 3, 3]", 20, 22.0, "forward", "conv"),))
    return {"cpu-baseline": plain, "cpu-optimized": quick, "cpu-resident": middle}


CHAINS = {
    "conv": ("aten::conv2d", "aten::convolution", "aten::_convolution"),
    "norm": ("aten::batch_norm", "aten::_batch_norm_impl_index"),
}


def trace(step_ms: float, operators: Sequence[tuple[str, str, float, float, str, str]]) -> TraceSummary:
    """A trace of named operators, with the wrappers above them and small ones behind."""
    rows = [
        OperatorRow(
            name=name,
            shapes=shapes,
            calls=calls,
            self_ms=ms,
            total_ms=ms,
            region=region,
            chain=CHAINS.get(chain, ()),
            source="train.py:31" if name == "aten::item" else "",
        )
        for name, shapes, calls, ms, region, chain in operators
    ]
    rows += [OperatorRow(name=n, calls=20, self_ms=0.001, total_ms=9.2) for n in CHAINS["conv"]]
    rows += [OperatorRow(name=f"aten::small_{i}", calls=1, self_ms=0.01 * i, total_ms=0.02 * i) for i in range(1, 15)]
    return TraceSummary(
        steps=5,
        step_ms=around(step_ms),
        step_mean_ms=step_ms,
        attribution_ms={"cpu_op": 0.9 * step_ms, "data_loading": 0.06 * step_ms, "other": 0.04 * step_ms},
        operators=tuple(rows),
        missing=("device",),
    )


def advice() -> dict[str, Advice]:
    return {
        "cpu-baseline": Advice(
            subject="cpu-baseline",
            verdict="Most is to be had from the data: keep the images in memory as one tensor.",
            step_ms=54.3,
            noise=0.06,
            findings=(
                Finding(
                    id="resident",
                    what="A quarter of the step waits for single items: keep the images in memory as one tensor.",
                    evidence=("data wait 13.0 ms of 54.3 ms, 24 %", "fetching takes 97 % CPU, so workers can't help"),
                    step_ms_now=54.3,
                    step_ms_expected=(41.2, 43.6),
                    gain=(0.197, 0.241),
                    confidence=0.86,
                    klass="exact",
                    variant="cpu-baseline+resident",
                    command="laptime run cifar --variant cpu-baseline+resident",
                    history=RuleHistory(tried=8, faster=7, error=0.04),
                    measured=Measured(
                        step_ms=43.1,
                        step_ms_before=54.2,
                        gain=0.205,
                        gain_low=0.18,
                        gain_high=0.23,
                        n=3,
                        quality_kept=True,
                    ),
                ),
                Finding(
                    id="synchronisation",
                    what="The step reads the loss each time.",
                    lines=("train.py:31",),
                    step_ms_now=54.3,
                    step_ms_expected=(51.9, 52.6),
                    gain=(0.031, 0.044),
                    confidence=0.5,
                ),
            ),
            withheld=(Withheld(id="precision", reason="bf16 was not probed on this machine."),),
            notices=("One process was looked at.",),
        ),
        "cpu-optimized": Advice(
            subject="cpu-optimized", verdict="Little is left: at most 29 % above the machine's ceiling.", step_ms=126.3
        ),
    }
