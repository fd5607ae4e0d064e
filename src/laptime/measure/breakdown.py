"""From what the marks saw to where the steps went: quartiles and means by part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from laptime.measure.marks import EpochTimes
from laptime.records import Breakdown, Quartiles

# The parts that come before a step can begin.
_FETCH = ("data", "copy")


def break_down(times: EpochTimes, gc_s: float | None = None) -> Breakdown | None:
    """The steps of an epoch by part; None without steps.

    The first step, which waits for the first batch, stands apart; an epoch of one step is described by that one.
    Means are taken over the same steps and add up to the mean step.
    """
    if not len(times.ns):
        return None
    steps = times.ns[1:] if len(times.ns) > 1 else times.ns
    later = len(times.ns) - 1
    return Breakdown(
        steps=len(steps),
        step_ms=quartiles(steps.sum(axis=1) / 1e6),
        step_p99_ms=float(np.quantile(steps.sum(axis=1), 0.99)) / 1e6,
        parts_ms={part: quartiles(steps[:, i] / 1e6) for i, part in enumerate(times.parts)},
        mean_ms={part: float(steps[:, i].mean()) / 1e6 for i, part in enumerate(times.parts)},
        device_ms={part: quartiles(found) for part, found in times.device_ms.items()},
        first_batch_s=sum(int(times.ns[0, times.parts.index(p)]) for p in _FETCH if p in times.parts) / 1e9,
        worker_start_s=None if times.worker_start_ns is None else times.worker_start_ns / 1e9,
        fetch_cpu_share=times.fetch_cpu_ns / times.fetch_wall_ns if times.fetch_wall_ns else None,
        process_cpu_ms=times.process_cpu_ns / later / 1e6 if later else None,
        gc_s=gc_s,
    )


def quartiles(values: ArrayLike | Sequence[float]) -> Quartiles:
    """Quartiles of at least one value, with linear interpolation."""
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return Quartiles(low=float(low), median=float(middle), high=float(high))
