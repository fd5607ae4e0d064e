"""Gates made of given times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from laptime.gate.conclude import conclude
from laptime.gate.records import GateRecord, PairRecord, ProcessRecord, SideInfo
from laptime.records import Machine

WORKED = (0.128, 0.097, 0.141, 0.109)


def process(side: str, seed: int, epoch_s: float, **changes) -> ProcessRecord:
    fields = {
        "side": side,
        "seed": seed,
        "epoch_s": (epoch_s * 0.99, epoch_s, epoch_s * 1.3),
        "samples": (2000, 2000, 2000),
        "wall_s": 3 * epoch_s + 4,
        "started_at": 1_700_000_000.0 + 100 * seed,
        "spec": "a" * 16,
        "data": "d" * 16,
        "hardware": "a CPU, 2 cores, 8 GiB",
        "startup_s": 3.0,
        "step_ms": epoch_s * 10,
        "peak_memory_mib": 900.0,
        "test_accuracy": 0.5 + 0.001 * seed,
        "parts_s": {"data": 0.2 * epoch_s, "forward": 0.3 * epoch_s, "backward": 0.5 * epoch_s},
    }
    return ProcessRecord(**{**fields, **changes})


def pairs(log_ratios: Sequence[float], **head) -> tuple[PairRecord, ...]:
    return tuple(
        PairRecord(
            number=i,
            order="AB" if i % 2 else "BA",
            seed=i - 1,
            base=process("base", i - 1, 2.0),
            head=process("head", i - 1, 2.0 * math.exp(d), **head),
        )
        for i, d in enumerate(log_ratios, start=1)
    )


def gate(log_ratios: Sequence[float] = WORKED, noise: float | None = 0.031, **changes) -> GateRecord:
    fields = {
        "id": "20260102-030405-gate-cifar-0a1b",
        "workload": "cifar",
        "variant": "cpu-baseline+resident",
        "base": SideInfo(ref="main", sha="b" * 40, folder="/tmp/base"),
        "head": SideInfo(ref="HEAD", sha="c" * 40, folder="/tmp/head", dirty=True),
        "noise": noise,
        "noise_source": "24 earlier pairs",
        "fingerprint": "f" * 16,
        "machine": Machine(cpu="a CPU", cores=2, memory_gib=8),
        "limit_train": 2000,
        "notices": ("head is gated with changes that are not committed.",),
        "pairs": pairs(log_ratios),
        "started_at": 1_700_000_000.0,
        "ended_at": 1_700_000_300.0,
        "status": "done",
    }
    record = GateRecord(**{**fields, **changes})
    return record.model_copy(update={"outcome": conclude(record)})
