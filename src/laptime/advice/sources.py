"""Signals out of a run's record, a trace and a probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any, Literal

from laptime.advice.signals import Signals
from laptime.records import ProbeRecord, RunRecord
from laptime.records.breakdown import Breakdown, ProfileRecord, Quartiles, SetupRecord
from laptime.records.trace import OperatorRow, TraceSummary
from laptime.spec import RunSpec

# Quartiles of fewer steps say nothing of how much steps scatter.
_FEWEST_STEPS = 4
# A probe at the large batch is the one that holds from here on; below, the one at the baseline's.
_LARGE = 256
# What stays in memory whatever the batch is.
_FIXED_MEMORY = ("parameters", "gradients", "optimizer", "buffers")


def signals_of(
    record: RunRecord | None = None, trace: TraceSummary | None = None, probe: ProbeRecord | None = None
) -> Signals:
    """Brings everything known onto the scale of the counted steps.

    A trace is of profiled steps, which are slower: its times are scaled by the counted median over its own.
    """
    if record is not None:
        found = _from_record(record)
    else:
        found = Signals(subject=trace.source, device=_device(trace)) if trace is not None else Signals()
    if trace is not None:
        found = _with_trace(found, trace)
    if found.step_ms is not None and not 0 < found.step_ms < math.inf:
        found = replace(found, step_ms=None)  # a record from elsewhere: nothing is a share of such a step
    return _with_probe(found, probe) if probe is not None else found


def _from_record(record: RunRecord) -> Signals:
    spec, setup = record.spec, record.setup or SetupRecord()
    found = Signals(
        **_steps(record),
        **_epoch(record),
        subject=spec.variant if spec else "",
        device=spec.device if spec else "cpu",
        load=record.machine.load_before,
        cores=record.machine.cores or None,
        ranks=record.ranks,
        precision=record.precision,
        passes=tuple((i.batch_size, i.pass_ms.median) for i in record.inference) or None,
        batch_size=setup.batch_size or (spec.batch_size if spec and record.ranks == 1 else None),
        bf16_rates=_bf16_rates(record),
    )
    found = replace(found, **_memory(record, setup), **_roof(record.profile))
    if record.setup is not None:
        found = replace(found, **_setup(record, record.setup))
    return _with_spec(found, spec) if spec is not None else found


def _with_spec(found: Signals, spec: RunSpec) -> Signals:
    test = spec.data.test_count
    options: list[str] = []
    for name, value in (("limit-train", spec.limit_train), ("limit-test", spec.limit_test)):
        options += [f"--{name}", str(value)] if value is not None else []
    if spec.data.asked not in ("", "auto"):
        options += ["--data", spec.data.asked]
    if spec.weights != "none":
        options += ["--weights", spec.weights]
    own = spec.data.own
    return replace(
        found,
        workload=f"{spec.data.path}:{own.attribute}" if own else spec.workload,
        refusals={**found.refusals, **own.refused} if own else found.refusals,
        variant=spec.variant,
        optimizations=spec.optimizations,
        options=tuple(options),
        test_samples=min(test, spec.limit_test or test) or None,
    )


def _steps(record: RunRecord) -> dict[str, Any]:
    """The step and its parts: medians over the kept epochs of each epoch's medians."""
    broken = [e.breakdown for e in record.kept if e.breakdown is not None]
    on_gpu = _on_gpu(record)
    if not broken:
        return _coarse(record, on_gpu)
    epochs = _by_rank(record) if record.ranks > 1 else []
    ranks = [_middle([_compute(epoch[place], on_gpu) for epoch in epochs]) for place in range(record.ranks)]
    return {
        "step_ms": _middle([b.step_ms.median for b in broken]),
        "noise": _middle([_noise(b.step_ms, b.steps) for b in broken]),
        **{f"{name}_ms": _middle([_part(b, part, on_gpu) for b in broken]) for part, name in _PARTS.items()},
        "fetch_cpu_share": _middle([b.fetch_cpu_share for b in broken]),
        "process_cpu_ms": _middle([b.process_cpu_ms for b in broken]),
        "first_batch_s": _middle([b.first_batch_s for b in broken]),
        "worker_start_s": _middle([b.worker_start_s for b in broken]),
        "gc_ms": _middle([b.gc_s * 1e3 / b.steps for b in broken if b.gc_s is not None and b.steps]),
        "rank_compute_ms": None if None in ranks else tuple(r for r in ranks if r is not None),
    }


_PARTS = {
    "data": "wait",
    "copy": "copy",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "read": "read",
}


def _part(broken: Breakdown, part: str, on_gpu: bool) -> float | None:
    """The device's clock is the one that counts on a GPU, but values are read by the host."""
    if part == "data" and on_gpu:
        return _exposed(broken)
    places = [broken.parts_ms] if part == "read" else [broken.device_ms, broken.parts_ms]
    found = next((p[part] for p in places if part in p), None)
    return None if found is None else found.median


def _exposed(broken: Breakdown) -> float | None:
    """A GPU's wait for data: the host fetches while it works, so only what the device stands idle for is exposed."""
    device, host = broken.device_ms.get("data"), broken.parts_ms.get("data")
    if device is None:
        return None
    return device.median if host is None else min(device.median, host.median)


def _by_rank(record: RunRecord) -> list[tuple[Breakdown, ...]]:
    """Of each kept epoch the breakdowns of all ranks, where all are known."""
    whole = [(e.breakdown, *e.ranks_breakdown) for e in record.kept if e.breakdown is not None]
    return [tuple(b for b in ranks if b is not None) for ranks in whole if len(ranks) == record.ranks]


def _compute(broken: Breakdown, on_gpu: bool) -> float | None:
    """What a rank takes before it waits for the others, which happens in the backward pass."""
    clock = broken.device_ms if on_gpu else broken.parts_ms
    parts = [clock[p].median for p in ("data", "copy", "forward") if p in clock]
    return sum(parts) if parts else None


def _coarse(record: RunRecord, on_gpu: bool) -> dict[str, Any]:
    """Records without breakdowns: the epoch's totals by part, over its steps; the noise is not known."""
    kept = [e for e in record.kept if e.steps and e.step_ms_median is not None]
    parts = {
        f"{name}_ms": _middle([e.parts_s[part] * 1e3 / e.steps for e in kept if part in e.parts_s])
        for part, name in _PARTS.items()
        if not (part == "data" and on_gpu)  # the host's, hidden or not
    }
    return {"step_ms": _middle([e.step_ms_median for e in kept]), **parts}


def _epoch(record: RunRecord) -> dict[str, Any]:
    kept = record.kept
    return {
        "epoch_s": _middle([e.epoch_s for e in kept]),
        "steps": int(median([e.steps for e in kept])) or None if kept else None,
        "evaluate_s": _middle([e.evaluate_s for e in kept]),
        "checkpoint_s": _checkpoint_s(record),
        "peak_mib": _middle([e.peak_memory_mib for e in kept]) or record.peak_memory_mib,
    }


def _checkpoint_s(record: RunRecord) -> float | None:
    """Of an epoch on average, since not every one has one; a loop of the user's own doesn't tell of its own."""
    if not record.kept or record.spec is None:
        return None
    if record.spec.checkpoint_share is not None:
        return 0.0  # a ladder writes them for itself, to go on after an interruption
    return mean(e.checkpoint_s or 0.0 for e in record.kept)


def _setup(record: RunRecord, setup: SetupRecord) -> dict[str, Any]:
    whole = record.parameters + record.removed_parameters if record.parameters else None
    dead = setup.dead_parameters
    return {
        "loader": setup.loader or None,
        "workers": setup.workers if setup.loader else None,
        "pinned": setup.pinned,
        "reads": setup.reads,
        "optimizer_kernel": setup.optimizer_kernel or None,
        "parameter_tensors": setup.parameter_tensors or None,
        "channels_last": setup.channels_last,
        "compiled": setup.compiled,
        "graphed": setup.graphed,
        "biased_before_norm": setup.biased_before_norm,
        "train_mib": setup.train_mib or None,
        "dead_share": dead / whole if dead is not None and whole else None,
    }


def _memory(record: RunRecord, setup: SetupRecord) -> dict[str, Any]:
    host = record.machine.memory_gib * 1024.0 or None
    profile = record.profile
    grows = [mib for name, mib in (profile.memory_mib if profile else {}).items() if name not in _FIXED_MEMORY]
    return {
        "memory_mib": setup.device_memory_mib or (None if _on_gpu(record) else host),
        "activations_mib": sum(grows) if grows else None,
    }


def _on_gpu(record: RunRecord) -> bool:
    return record.spec is not None and record.spec.device == "cuda"


def _roof(profile: ProfileRecord | None) -> dict[str, Any]:
    return {"floor_share": profile.floor_share, "layouts": profile.layout} if profile else {}


def _bf16_rates(record: RunRecord) -> float | None:
    short, plain = record.machine.ceilings.best("bf16"), record.machine.ceilings.best("fp32")
    return short / plain if short and plain else None


def _with_trace(found: Signals, trace: TraceSummary) -> Signals:
    """Adds a trace; what the record says already stays, since those steps were not slowed by a profiler."""
    on_device = trace.device == "cuda" and "device" not in trace.missing
    # A GPU's host runs ahead and waits in some step for all of them: one step of it says nothing, their mean does.
    own = trace.step_mean_ms if on_device else trace.step_ms.median
    step = own if found.step_ms is None else found.step_ms
    by = step / own if own > 0 else 1.0
    # A GPU's run of which only the host was recorded: its operators' times are those of launching them.
    blind = found.device == "cuda" and not on_device
    said = {k: v for k, v in vars(found).items() if v is not None}
    whole = replace(found, **{**_of_trace(trace, by), **said, "step_ms": step})
    return replace(
        whole,
        trace_steps=trace.steps or None,
        operators=None if blind else _operators(trace, by),
        kernels=_scaled(trace.kernels, by, "busy_ms", "idle_ms", "unexplained_idle_ms", "layout_ms"),
        copies=tuple(_scaled(r, by, "ms") for r in trace.copies) if on_device else None,
        syncs=tuple(_scaled(r, by, "wait_ms", "idle_after_ms") for r in trace.syncs) if on_device else None,
        collectives=None if blind else tuple(_scaled(r, by, "ms", "exposed_ms") for r in trace.collectives),
        elementwise_calls=None if blind else trace.elementwise_calls,
        elementwise_ms=None if blind else _times(trace.elementwise_ms, by),
        optimizer_calls=None if blind else trace.optimizer_calls,
    )


def _device(trace: TraceSummary) -> Literal["cpu", "cuda"]:
    """A GPU's runtime was called where its kernels are missed."""
    return "cuda" if "device" in trace.missing else trace.device


def _operators(trace: TraceSummary, by: float) -> tuple[OperatorRow, ...] | None:
    return tuple(_scaled(r, by, "self_ms", "total_ms", "device_self_ms") for r in trace.operators) or None


def _of_trace(trace: TraceSummary, by: float) -> dict[str, Any]:
    """What a trace says of the step as a whole; the data wait is the exposed one, where it is attributed."""
    times = {f"{_PARTS[p]}_ms": ms for p, ms in trace.regions_ms.items() if p in _PARTS}
    if _device(trace) == "cuda":
        times.pop("wait_ms", None)  # the host's, hidden or not
    others = {"wait_ms": trace.attribution_ms.get("data_loading"), "optimizer_ms": trace.optimizer_ms}
    times |= {k: v for k, v in {**others, "gc_ms": trace.gc_ms}.items() if v is not None}
    return {"noise": _noise(trace.step_ms, trace.steps), "ranks": trace.world} | {k: v * by for k, v in times.items()}


def _with_probe(found: Signals, probe: ProbeRecord) -> Signals:
    large = (found.batch_size or 0) >= _LARGE
    chosen: dict[str, tuple[float | None, float | None]] = {}
    for name in ("bf16", "compile"):
        keys = [k for k in probe.gains if k.partition("@")[0] == name and ("@" in k) == large]
        key = keys[0] if keys else ""
        chosen[name] = (probe.gains.get(key), probe.costs_s.get(key))
    return replace(
        found,
        bf16_gain=chosen["bf16"][0],
        compile_gain=chosen["compile"][0],
        compile_cost_s=chosen["compile"][1],
        bf16_rates=found.bf16_rates or _bf16_rates(RunRecord(status="done", machine=probe.machine)),
        refusals={**found.refusals, **probe.refusals},
    )


def _scaled(row: Any, by: float, *names: str) -> Any:
    if row is None:
        return None
    return row.model_copy(update={n: getattr(row, n) * by for n in names if getattr(row, n) is not None})


def _times(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _noise(step: Quartiles, steps: int) -> float | None:
    """Quartile range over the median; None where nobody saw single steps (a mean alone has no range)."""
    if steps < _FEWEST_STEPS or step.high <= step.low or step.median <= 0:
        return None
    return (step.high - step.low) / step.median


def _middle(values: Sequence[float | None]) -> float | None:
    found = [v for v in values if v is not None]
    return median(found) if found else None
