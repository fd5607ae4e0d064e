"""From what the marks saw to where the steps went: quartiles and means by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laptime.measure.marks import EpochTimes
from laptime.measure.pauses import Held
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


def break_down(
    times: EpochTimes, held: Held | None = None, ending: Ending | None = None, workers_cpu_s: float | None = None
) -> Breakdown | None:
    """The steps of an epoch by part; None without steps.

    The first step, which waits for the first batch, stands apart; an epoch of one step is described by that one.
    Means are taken over the same steps and add up to the host's mean step.

    Args:
        times: what the marks saw.
        held: what held the epoch up inside the process.
        ending: how the epoch ended on a GPU; None on a CPU.
        workers_cpu_s: CPU time of worker processes in the whole epoch, in seconds; None where not known.
    """
    if not len(times.ns):
        return None
    steps = times.ns[1:] if len(times.ns) > 1 else times.ns
    later = len(times.ns) - 1
    return Breakdown(
        steps=len(steps),
        **_whole_steps(times, steps, ending),
        parts_ms={part: Quartiles.of((steps[:, i] / 1e6).tolist()) for i, part in enumerate(times.parts)},
        mean_ms={part: float(steps[:, i].mean()) / 1e6 for i, part in enumerate(times.parts)},
        device_ms={part: Quartiles.of(found) for part, found in times.device_ms.items()},
        device_mean_ms={part: float(np.mean(found)) for part, found in times.device_ms.items()},
        drain_s=None if ending is None else ending.drain_s,
        first_batch_s=sum(int(times.ns[0, times.parts.index(p)]) for p in _FETCH if p in times.parts) / 1e9,
        worker_start_s=None if times.worker_start_ns is None else times.worker_start_ns / 1e9,
        fetch_cpu_share=times.fetch_cpu_ns / times.fetch_wall_ns if times.fetch_wall_ns else None,
        process_cpu_ms=times.process_cpu_ns / later / 1e6 if later else None,
        workers_cpu_ms=_workers_ms(times, workers_cpu_s),
        **_held(held, len(times.ns)),
    )


def _held(held: Held | None, steps: int) -> dict[str, float | None]:
    if held is None:
        return {}
    return {
        "gc_s": held.gc_s,
        "system_cpu_ms": None if held.system_s is None else held.system_s * 1e3 / steps,
        "page_faults": None if held.page_faults is None else held.page_faults / steps,
    }


def _workers_ms(times: EpochTimes, cpu_s: float | None) -> float | None:
    """CPU milliseconds of the loader's workers by step: they fetch for all steps, the first one too."""
    if cpu_s is None or times.worker_start_ns is None:
        return None
    return cpu_s * 1e3 / len(times.ns)


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


def _whole_steps(times: EpochTimes, steps: NDArray[np.int64], ending: Ending | None) -> dict[str, Any]:
    """What a breakdown says of the steps as a whole, on the clock that saw them done.

    A host that waits for nothing is through with its steps long before the GPU is.

    Args:
        times: what the marks saw.
        steps: of these the counted steps on the host's clock, nanoseconds [steps, parts].
        ending: how the epoch ended on a GPU.
    """
    if device := device_steps_ms(times.device_ms):
        return _seen(np.array(device), np.array(times.device_ms.get("data", 0.0)))
    if ending is not None and ending.drain_s > _AHEAD * ending.own_s:
        mean = _mean_step_ms(times, ending.own_s)
        return {"step_ms": Quartiles(low=mean, median=mean, high=mean)}
    data = [place for place, part in enumerate(times.parts) if part == "data"]
    return _seen(steps.sum(axis=1) / 1e6, steps[:, data].sum(axis=1) / 1e6)


def _seen(whole_ms: NDArray[np.float64], wait_ms: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "step_ms": Quartiles.of(whole_ms.tolist()),
        "step_p99_ms": float(np.quantile(whole_ms, 0.99)),
        "compute_ms": Quartiles.of((whole_ms - wait_ms).tolist()),
    }


def _mean_step_ms(times: EpochTimes, own_s: float) -> float:
    """The mean step after the first, which waits for the first batch, by the epoch's seconds."""
    later = len(times.ns) - 1
    first_s = int(times.ns[0].sum()) / 1e9
    return (own_s - first_s) / later * 1e3 if later else own_s * 1e3
