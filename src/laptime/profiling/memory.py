"""What a training step holds in memory, by category."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from laptime.optimizations.base import Parts

_MIB = 2**20


def held_mib(parts: Parts) -> dict[str, float]:
    """MiB of what outlives a step or lies outside of its forward pass, counted from the tensors themselves.

    torch's profiler does not know what was there before it began. Gradients are taken at their full size, although a
    step drops them at its end.
    """
    parameters = list(parts.model.parameters())
    state = (v for values in parts.optimizer.state.values() for v in values.values() if isinstance(v, Tensor))
    average = [] if parts.average is None else [*parts.average.model.parameters(), *parts.average.model.buffers()]
    return {
        "parameters": _mib(parameters),
        "gradients": _mib(p for p in parameters if p.requires_grad),
        "optimizer": _mib(state),
        "buffers": _mib([*parts.model.buffers(), *average]),
    }


def _mib(tensors: Iterable[Tensor]) -> float:
    return sum(t.numel() * t.element_size() for t in tensors) / _MIB


def traced_peak_mib(trace: Path) -> float | None:
    """The most that was allocated at a time on the CPU within a trace, beyond what was there when it began.

    Args:
        trace: plain JSON, recorded with memory.

    Returns:
        None where it holds no allocation.
    """
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    marks = [e for e in events if e.get("name") == "[memory]" and e["args"].get("Device Type") == 0]
    # Sums of what was taken and given back, in order: what the trace itself calls the total starts with the process.
    held = most = 0
    for mark in sorted(marks, key=lambda e: float(e["ts"])):
        held += int(mark["args"]["Bytes"])
        most = max(most, held)
    return most / _MIB if marks else None


def categories(parts: Parts, peak: float | None, batch: tuple[Tensor, ...]) -> dict[str, float]:
    """Memory by category, MiB; activations are what a step takes at its peak less gradients and batch.

    Args:
        parts: the run's parts.
        peak: the most that a step took beyond what is held between steps; None where it is not known.
        batch: the tensors of a step's batch.
    """
    found = {**held_mib(parts), "inputs": _mib(batch)}
    if peak is not None:
        found["activations"] = max(0.0, peak - found["gradients"] - found["inputs"])
    return found
