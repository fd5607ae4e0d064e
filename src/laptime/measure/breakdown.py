"""From what the marks saw to where the steps went: quartiles and means by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laptime.measure.marks import EpochTimes
from laptime.records import Breakdown, Quartiles

# The parts that come before a step can begin.
_FETCH = ("data", "copy")
# A last wait below this share of the epoch is no more than a few launches: the host's steps are the GPU's too.
_AHEAD = 0.02


@dataclass(frozen=True)
class Ending:
    """How an epoch on a GPU ended.

    Attributes:
        own_s: from its first fetch until the GPU was done.
        drain_s: of this the last wait, after the host's last step.
    """

    own_s: float
    drain_s: float


def break_down(times: EpochTimes, gc_s: float | None = None, ending: Ending | None = None) -> Breakdown | None:
    """The steps of an epoch by part; None without steps.

    The first step, which waits for the first batch, stands apart; an epoch of one step is described by that one.
    Means are taken over the same steps and add up to the host's mean step.

    Args:
        times: what the marks saw.
        gc_s: seconds in Python's garbage collector.
        ending: how the epoch ended on a GPU; None on a CPU.
    """
    if not len(times.ns):
        return None
    steps = times.ns[1:] if len(times.ns) > 1 else times.ns
    later = len(times.ns) - 1
    step_ms, p99_ms = _whole_steps(times, steps.sum(axis=1), ending)
    return Breakdown(
        steps=len(steps),
        step_ms=step_ms,
        step_p99_ms=p99_ms,
        parts_ms={part: Quartiles.of((steps[:, i] / 1e6).tolist()) for i, part in enumerate(times.parts)},
        mean_ms={part: float(steps[:, i].mean()) / 1e6 for i, part in enumerate(times.parts)},
        device_ms={part: Quartiles.of(found) for part, found in times.device_ms.items()},
        drain_s=None if ending is None else ending.drain_s,
        first_batch_s=sum(int(times.ns[0, times.parts.index(p)]) for p in _FETCH if p in times.parts) / 1e9,
        worker_start_s=None if times.worker_start_ns is None else times.worker_start_ns / 1e9,
        fetch_cpu_share=times.fetch_cpu_ns / times.fetch_wall_ns if times.fetch_wall_ns else None,
        process_cpu_ms=times.process_cpu_ns / later / 1e6 if later else None,
        gc_s=gc_s,
    )


def middle_step_ms(times: EpochTimes, found: Breakdown | None) -> float | None:
    """The median step for the epoch's record, in milliseconds: on a GPU that of the breakdown, on its clock.

    Only a GPU's epoch ends with a wait; on a CPU the median is over all steps, the first one with them.
    """
    if found is None or found.drain_s is None:
        return times.step_ms_median()
    return found.step_ms.median


def device_steps_ms(device_ms: Mapping[str, Sequence[float]]) -> list[float]:
    """Milliseconds of each step on the device, from its first border to its last: the sum of its parts."""
    return [sum(parts) for parts in zip(*device_ms.values(), strict=True)]


def _whole_steps(
    times: EpochTimes, host_ns: NDArray[np.int64], ending: Ending | None
) -> tuple[Quartiles, float | None]:
    """Quartiles and 99th percentile of the steps in milliseconds, on the clock that saw them done.

    A host that waits for nothing is through with its steps long before the GPU is.
    """
    if device := device_steps_ms(times.device_ms):
        return Quartiles.of(device), float(np.quantile(device, 0.99))
    if ending is not None and ending.drain_s > _AHEAD * ending.own_s:
        mean = _mean_step_ms(times, ending.own_s)
        return Quartiles(low=mean, median=mean, high=mean), None
    return Quartiles.of((host_ns / 1e6).tolist()), float(np.quantile(host_ns, 0.99)) / 1e6


def _mean_step_ms(times: EpochTimes, own_s: float) -> float:
    """The mean step after the first, which waits for the first batch, by the epoch's seconds."""
    later = len(times.ns) - 1
    first_s = int(times.ns[0].sum()) / 1e9
    return (own_s - first_s) / later * 1e3 if later else own_s * 1e3
