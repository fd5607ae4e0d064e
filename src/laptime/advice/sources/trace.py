"""What a trace says, scaled to the counted steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from laptime.advice.signals import Signals
from laptime.advice.sources.steps import PARTS, noise_of
from laptime.records.trace import OperatorRow, SliceRow, TraceSummary

# A GPU's host that runs ahead waits in one step for many: the mean is then far from the median.
_CLOSE = 0.05


def with_trace(found: Signals, trace: TraceSummary) -> Signals:
    """Adds a trace; what the record says already stays, since those steps were not slowed by a profiler."""
    on_device = trace.device == "cuda" and "device" not in trace.missing
    step, by, split = _scale(trace, on_device, found.step_ms)
    # A GPU's run of which only the host was recorded: its operators' times are those of launching them.
    blind = found.device == "cuda" and not on_device
    said = {k: v for k, v in vars(found).items() if v is not None}
    whole = replace(found, **{**_of_trace(trace, found.device, by, blind), **split, **said, "step_ms": step})
    return replace(
        whole,
        trace_steps=trace.steps or None,
        left_out_ms=trace.left_out_ms,
        devices=trace.devices or None,
        operators=None if blind else _operators(trace, by),
        kernels=_scaled(trace.kernels, by, "busy_ms", "idle_ms", "unexplained_idle_ms", "layout_ms"),
        copies=tuple(_scaled(r, by, "ms") for r in trace.copies) if on_device else None,
        syncs=tuple(_scaled(r, by, "wait_ms", "idle_after_ms") for r in trace.syncs) if on_device else None,
        collectives=None if blind else tuple(_scaled(r, by, "ms", "exposed_ms") for r in trace.collectives),
        elementwise_calls=None if blind else trace.elementwise_calls,
        elementwise_ms=None if blind else _times(trace.elementwise_ms, by),
        mixed_ms=None if blind else _times(trace.mixed_ms, by),
        optimizer_calls=None if blind else trace.optimizer_calls,
        slices=None if on_device else _slices(trace, by),
        unused_graph=trace.unused_graph,
        compiler=trace.compiler,
        compiled=found.compiled if trace.compiler is None else True,
        allocations=_scaled(trace.allocations, by, "ms"),
    )


def _scale(trace: TraceSummary, on_device: bool, counted_ms: float | None) -> tuple[float, float, dict[str, Any]]:
    """The step, what a trace's other times are multiplied with, and what it says of the wait for data alone.

    Of a trace alone the step is the middle of what steps take beside that wait, and the mean of it; where it does not
    tell the two apart, its mean. Of a GPU its own clock counts, where it tells: its host may be steps ahead.
    """
    if counted_ms is not None:
        return counted_ms, counted_ms / trace.step_mean_ms if trace.step_mean_ms > 0 else 1.0, {}
    wait, beside, clock = trace.attribution_ms.get("data_loading"), trace.compute_ms, trace.device_step_ms
    unknown = {"data", "device"} & set(trace.missing)
    if unknown or wait is None or beside is None or trace.wait_ms is None:
        step = clock.median if on_device and clock is not None else trace.step_mean_ms
        return step, step / trace.step_mean_ms if trace.step_mean_ms > 0 else 1.0, {}
    mean, quartiles = trace.step_mean_ms - wait, (trace.wait_ms.low, trace.wait_ms.median, trace.wait_ms.high)
    split = {"wait_ms": wait, "wait_quartiles_ms": quartiles, "noise": noise_of(beside, trace.steps)}
    return beside.median + wait, beside.median / mean if mean > 0 else 1.0, split


def device_of(trace: TraceSummary) -> Literal["cpu", "cuda"]:
    """A GPU's runtime was called where its kernels are missed."""
    return "cuda" if "device" in trace.missing else trace.device


def _operators(trace: TraceSummary, by: float) -> tuple[OperatorRow, ...] | None:
    return tuple(_scaled(r, by, "self_ms", "total_ms", "device_self_ms") for r in trace.operators) or None


def _slices(trace: TraceSummary, by: float) -> tuple[SliceRow, ...]:
    rows = (_scaled(row, by, "ms") for row in trace.slices)
    return tuple(r.model_copy(update={"parts_ms": {k: ms * by for k, ms in r.parts_ms.items()}}) for r in rows)


def _of_trace(trace: TraceSummary, device: str, by: float, blind: bool) -> dict[str, Any]:
    """What a trace says of the step as a whole; the data wait is the exposed one, where it is attributed.

    Of a GPU's step the host's regions say nothing, hidden as they may be, and without kernels nothing is exposed.
    """
    times = {f"{PARTS[p]}_ms": ms for p, ms in trace.regions_ms.items() if p in PARTS}
    if device == "cuda":
        times = {k: ms for k, ms in times.items() if k not in ("wait_ms", "optimizer_ms")}
    others = {"gc_ms": trace.gc_ms}
    if not blind:
        fetched = "data" not in trace.missing
        others |= {
            "wait_ms": trace.attribution_ms.get("data_loading") if fetched else None,
            "optimizer_ms": trace.optimizer_ms,
            "exposed_copy_ms": trace.attribution_ms.get("copy") if device == "cuda" else None,
        }
    times |= {k: v for k, v in others.items() if v is not None}
    plain = {"ranks": trace.world, "precision": trace.precision, "compute_major": trace.compute_major}
    return {"noise": _noise(trace, device), **plain} | {k: v * by for k, v in times.items()}


def _noise(trace: TraceSummary, device: str) -> float | None:
    """By a GPU's own clock where it tells; else None where its host runs ahead: its steps are not the GPU's."""
    if device == "cuda" and trace.device_step_ms is not None:
        return noise_of(trace.device_step_ms, trace.steps)
    median = trace.step_ms.median
    if device == "cuda" and abs(trace.step_mean_ms - median) > _CLOSE * median:
        return None
    return noise_of(trace.step_ms, trace.steps)


def _scaled(row: Any, by: float, *names: str) -> Any:
    if row is None:
        return None
    return row.model_copy(update={n: getattr(row, n) * by for n in names if getattr(row, n) is not None})


def _times(value: float | None, by: float) -> float | None:
    return None if value is None else value * by
