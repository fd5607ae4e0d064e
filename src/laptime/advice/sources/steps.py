"""Where a run's counted steps went: medians over its kept epochs, in which a wait for data is a mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import mean, median, stdev
from typing import Any

from laptime.records import RunRecord
from laptime.records.breakdown import Breakdown, Quartiles
from laptime.records.rates import middle

# Quartiles of fewer steps say nothing of how much steps scatter.
_FEWEST_STEPS = 4
# The standard error of a median of n normal values is 1.253 deviations over the root of n, and a quartile range is
# 1.349 deviations; two standard errors are 95 %.
_TWO_ERRORS = 2 * 1.253 / 1.349
# What signals call the parts of a step.
PARTS = {
    "data": "wait",
    "copy": "copy",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "read": "read",
}


def steps_of(record: RunRecord) -> dict[str, Any]:
    """The step and its parts.

    Loader workers deliver in bursts, so the middle step may wait for nothing where every fourth waits for four. The
    wait is therefore a mean, the step that mean and the middle of what steps take beside it, and the noise is of the
    latter alone. All other parts are medians.
    """
    broken = [e.breakdown for e in record.kept if e.breakdown is not None]
    on_gpu = runs_on_gpu(record)
    if not broken:
        return _coarse(record, on_gpu)
    epochs = _by_rank(record) if record.ranks > 1 else []
    places = range(record.ranks if epochs else 0)
    ranks = [middle([_compute(epoch[place], on_gpu) for epoch in epochs]) for place in places]
    return {
        "step_ms": middle([_step(b) for b in broken]),
        "noise": _noise(broken),
        "wait_quartiles_ms": _wait_quartiles(broken),
        **{f"{name}_ms": middle([_part(b, part, on_gpu) for b in broken]) for part, name in PARTS.items()},
        "fetch_cpu_share": middle([b.fetch_cpu_share for b in broken]),
        "process_cpu_ms": middle([b.process_cpu_ms for b in broken]),
        "workers_cpu_ms": middle([b.workers_cpu_ms for b in broken]),
        "system_cpu_ms": middle([b.system_cpu_ms for b in broken]),
        "page_faults": middle([b.page_faults for b in broken]),
        "first_batch_s": middle([b.first_batch_s for b in broken]),
        "worker_start_s": middle([b.worker_start_s for b in broken]),
        "gc_ms": middle([b.gc_s * 1e3 / b.steps for b in broken if b.gc_s is not None and b.steps]),
        "rank_compute_ms": None if not ranks or None in ranks else tuple(r for r in ranks if r is not None),
    }


def _noise(broken: Sequence[Breakdown]) -> float | None:
    """How far off the middle step may be (95 %), over it.

    Of one epoch that is its quartile range: how the machine drifts shows between epochs alone. Of several it is what
    their middles scatter by, at least what the steps within them allow, and never more than the quartile range.
    """
    beside = [b.compute_ms or b.step_ms for b in broken]
    spread = middle([noise_of(step, b.steps) for step, b in zip(beside, broken, strict=True)])
    if spread is None or len(broken) < 2:
        return spread
    middles = [step.median for step in beside]
    between = 2 * stdev(middles) / sqrt(len(middles)) / mean(middles)
    within = _TWO_ERRORS * spread / sqrt(sum(b.steps for b in broken))
    return min(spread, max(between, within))


def _step(broken: Breakdown) -> float:
    """What a step takes beside its wait for data in the middle, and the mean of that wait, on one clock."""
    wait = (broken.device_mean_ms or broken.mean_ms).get("data")
    if broken.compute_ms is None or wait is None:
        return broken.step_ms.median
    return broken.compute_ms.median + wait


def _wait_quartiles(broken: Sequence[Breakdown]) -> tuple[float, float, float] | None:
    """Low, median and high of the wait that the step counts with its mean."""
    clocks = [b.device_ms or b.parts_ms for b in broken if b.compute_ms is not None]
    waits = [clock["data"] for clock in clocks if "data" in clock]
    if not waits:
        return None
    return median([w.low for w in waits]), median([w.median for w in waits]), median([w.high for w in waits])


def _part(broken: Breakdown, part: str, on_gpu: bool) -> float | None:
    """The device's clock is the one that counts on a GPU, but values are read by the host."""
    if part == "data":
        return _exposed(broken) if on_gpu else _wait(broken, False)
    places = [broken.parts_ms] if part == "read" else [broken.device_ms, broken.parts_ms]
    found = next((p[part] for p in places if part in p), None)
    return None if found is None else found.median


def _exposed(broken: Breakdown) -> float | None:
    """A GPU's wait for data: the host fetches while it works, so only what the device stands idle for is exposed."""
    device, host = _wait(broken, True), _wait(broken, False)
    if device is None:
        return None
    return device if host is None else min(device, host)


def _wait(broken: Breakdown, on_gpu: bool) -> float | None:
    """The mean wait for data on a clock; the middle one of records whose step is the middle one, too."""
    means, clock = (broken.device_mean_ms, broken.device_ms) if on_gpu else (broken.mean_ms, broken.parts_ms)
    if broken.compute_ms is not None and "data" in means:
        return means["data"]
    return clock["data"].median if "data" in clock else None


def _by_rank(record: RunRecord) -> list[tuple[Breakdown, ...]]:
    """Of each kept epoch the breakdowns of all ranks, where all are known."""
    whole = [(e.breakdown, *e.ranks_breakdown) for e in record.kept if e.breakdown is not None]
    return [tuple(b for b in ranks if b is not None) for ranks in whole if len(ranks) == record.ranks]


def _compute(broken: Breakdown, on_gpu: bool) -> float | None:
    """What a rank takes before it waits for the others, which happens in the backward pass."""
    clock = broken.device_ms if on_gpu else broken.parts_ms
    parts = [_wait(broken, on_gpu), *(clock[p].median for p in ("copy", "forward") if p in clock)]
    known = [ms for ms in parts if ms is not None]
    return sum(known) if known else None


def _coarse(record: RunRecord, on_gpu: bool) -> dict[str, Any]:
    """Records without breakdowns: the epoch and its totals by part, over its steps; the noise is not known."""
    kept = [e for e in record.kept if e.steps and e.step_ms_median is not None]
    parts = {
        f"{name}_ms": middle([e.parts_s[part] * 1e3 / e.steps for e in kept if part in e.parts_s])
        for part, name in PARTS.items()
        if not (part == "data" and on_gpu)  # the host's, hidden or not
    }
    steps = [e.epoch_s * 1e3 / e.steps if e.parts_s else e.step_ms_median for e in kept]
    return {"step_ms": middle(steps), **parts}


def runs_on_gpu(record: RunRecord) -> bool:
    """Whether a GPU trained."""
    return record.spec is not None and record.spec.device == "cuda"


def noise_of(step: Quartiles, steps: int) -> float | None:
    """Quartile range over the median; None where nobody saw single steps (a mean alone has no range)."""
    if steps < _FEWEST_STEPS or step.high <= step.low or step.median <= 0:
        return None
    return (step.high - step.low) / step.median
