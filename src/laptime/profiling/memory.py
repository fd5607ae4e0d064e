"""What a training step holds in memory, by category."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from laptime.optimizations.base import Parts
from laptime.trace.reader import TraceFile

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
    events = (e for e in TraceFile(trace).read() if e.get("name") == "[memory]" and e["args"].get("Device Type") == 0)
    marks = [(float(e["ts"]), int(e["args"]["Bytes"])) for e in events]
    # Sums of what was taken and given back, in order: what the trace itself calls the total starts with the process.
    held = most = 0
    for _, size in sorted(marks, key=lambda mark: mark[0]):
        held += size
        most = max(most, held)
    return most / _MIB if marks else None


def categories(parts: Parts, peak: float | None, batch: tuple[Tensor, ...]) -> dict[str, float]:
    """Memory by category, MiB; activations are what a step takes at its peak less gradients and batch.

    They are left out where they are not known: without a peak, and where the peak has no room for gradients and batch,
    since a step whose memory is taken once and kept takes nothing that can be seen.

    Args:
        parts: the run's parts.
        peak: the most that a step took beyond what is held between steps; None where it is not known.
        batch: the tensors of a step's batch.
    """
    found = {**held_mib(parts), "inputs": _mib(batch)}
    taken = found["inputs"] + (0.0 if gradients_held(parts) else found["gradients"])
    if peak is not None and peak > taken:
        found["activations"] = peak - taken
    return found


def gradients_held(parts: Parts) -> bool:
    """Whether the gradients' memory outlives a step, so that its peak beyond what is held does not count them."""
    views = (m.gradient_as_bucket_view for m in parts.net.modules() if isinstance(m, DistributedDataParallel))
    return any(views) or any(p.grad is not None for p in parts.model.parameters())
