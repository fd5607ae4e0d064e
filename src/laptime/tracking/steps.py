"""Metrics of steps and of forward passes, from what the records hold."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from laptime.records import EpochRecord, RunRecord

# Metrics that are medians of a step's part, with its quartiles beside it; nothing hides `data_wait_ms`.
_PARTS = {
    "data_wait_ms": "data",
    "copy_ms": "copy",
    "forward_ms": "forward",
    "backward_ms": "backward",
    "optimizer_ms": "optimizer",
    "read_ms": "read",
    "rest_ms": "rest",
    "graph_ms": "step",
}


def step_metrics(epoch: EpochRecord) -> Mapping[str, float]:
    """Quartiles of a step and of its parts in milliseconds, and what stands apart from them in seconds.

    On a GPU the parts are the host's, and `device_…` the medians of the device's own; of several ranks each has its
    step, wait and epoch. The epoch's first step is in none of the milliseconds. An epoch without a breakdown has the
    median that it knows.
    """
    found: dict[str, float | None] = {"step_ms_median": epoch.step_ms_median, "skew_s": epoch.skew_s}
    if (of := epoch.breakdown) is not None:
        found |= {
            "step_ms_median": of.step_ms.median,
            "step_ms_p25": of.step_ms.low,
            "step_ms_p75": of.step_ms.high,
            "first_batch_s": of.first_batch_s,
            "worker_start_s": of.worker_start_s,
            "gc_s": of.gc_s,
            "system_cpu_ms": of.system_cpu_ms,
            "page_faults": of.page_faults,
            "drain_s": of.drain_s,
        }
        for name, part in _PARTS.items():
            if (ms := of.parts_ms.get(part)) is not None:
                found |= {name: ms.median, f"{name}_p25": ms.low, f"{name}_p75": ms.high}
            if (ms := of.device_ms.get(part)) is not None:
                found[f"device_{name}"] = ms.median
        found |= _by_rank(epoch)
    return {name: value for name, value in found.items() if value is not None}


def _by_rank(epoch: EpochRecord) -> dict[str, float | None]:
    """Of several ranks what each took; the first rank's breakdown is the epoch's own."""
    if not epoch.ranks_breakdown:
        return {}
    found: dict[str, float | None] = {f"epoch_s_rank{rank}": s for rank, s in enumerate(epoch.ranks_s)}
    for rank, of in enumerate((epoch.breakdown, *epoch.ranks_breakdown)):
        if of is not None:
            wait = of.parts_ms["data"].median if "data" in of.parts_ms else None
            found |= {f"step_ms_rank{rank}": of.step_ms.median, f"data_wait_ms_rank{rank}": wait}
    return found


def inference_metrics(done: Iterable[RunRecord]) -> Mapping[str, float]:
    """Milliseconds of a forward pass and samples a second by batch size: medians over a variant's processes."""
    values: dict[str, list[float]] = {}
    for record in done:
        for of in record.inference:
            values.setdefault(f"inference_ms_b{of.batch_size}", []).append(of.pass_ms.median)
            values.setdefault(f"inference_samples_per_s_b{of.batch_size}", []).append(of.samples_per_s)
    return {name: statistics.median(found) for name, found in values.items()}
