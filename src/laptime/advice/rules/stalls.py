"""What stops a step now and then: the compiler, and the driver that is asked for memory."""

from __future__ import annotations

from laptime.advice.figures import ms
from laptime.advice.outcome import Note, Outcome, known
from laptime.advice.signals import Signals

_LEAST_SHARE = 0.03
# One step that asks for memory is a larger batch, or the first.
_TWICE = 2


def recompiled(s: Signals) -> Outcome:
    """The compiler ran in recorded steps: in the first of them, or again for other shapes."""
    use = s.compiler
    if use is None or not use.steps:
        return None
    took = f"{use.ms:,.0f} ms" if use.steps == 1 else f"{use.ms:,.0f} ms each in the mean"
    counted = "all numbers hold them" if use.counted else "no number holds them"
    if use.steps == 1 and use.first:
        return Note(
            f"The first recorded step compiled for {took} ({counted}): let the profiler's schedule skip it (wait and "
            "warmup)."
        )
    return Note(
        f"{use.steps} of {use.of} recorded steps compiled anew for {took} ({counted}): shapes or Python values that a "
        "compiled function is given change. Give batches one size (drop_last=True), pad to a few lengths, or write "
        "torch.compile(..., dynamic=True); TORCH_LOGS=recompiles tells what changed."
    )


def driver_memory(s: Signals) -> Outcome:
    """The GPU's driver is asked for memory in the steps, which the cache of memory is there to spare."""
    found = s.allocations
    if found is None:
        return None
    step, steps = known(s.step_ms, "the step's time"), known(s.trace_steps, "how many steps the trace has")
    if found.steps < _TWICE or found.ms < _LEAST_SHARE * step:
        return None
    waits = f", {found.frees:.1f} of them to give it back, which waits for the GPU," if found.frees else ""
    where = f"in {found.steps} of {steps} recorded steps ({ms(found.ms)} of {ms(step)} ms)"
    return Note(
        f"The GPU's driver is called {found.calls:.1f} times a step for memory{waits} {where}: torch keeps memory for "
        "later steps unless sizes change from step to step, the GPU is nearly full or torch.cuda.empty_cache() is "
        "called. Give batches one size or few lengths, take smaller ones, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        timed=True,
    )
