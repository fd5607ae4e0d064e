"""Traces that torch's profiler records of a few steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, schedule

from laptime.records import TraceSummary
from laptime.trace import summarize


def recorded_steps(step: Callable[[], object], to: Path, steps: int, **options: bool) -> TraceSummary:
    """What a trace of so many steps says, after one that only warms the profiler up."""
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(to)),
        **options,
    ) as profiler:
        for _ in range(steps + 1):
            step()
            profiler.step()
    return summarize(to)
