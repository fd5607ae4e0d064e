"""Graphs that autograd records for nobody."""

from __future__ import annotations

from laptime.advice.figures import percent
from laptime.advice.outcome import Note, Outcome, known
from laptime.advice.signals import Signals

# Below these a metric or an unused output is all that there is: a net has several layers.
_LEAST_SHARE = 0.10
_LEAST_LAYERS = 2
# What comes neither twice nor in every second recorded step is none of the step's own.
_OFTEN, _TWICE = 0.5, 2


def kept_gradients(s: Signals) -> Outcome:
    """Forward passes with gradients on whose graphs no backward goes through: evaluation, an unfrozen teacher."""
    found = known(s.unused_graph, "which operators autograd recorded, and a backward")
    often = found.steps >= min(_TWICE, _OFTEN * known(s.trace_steps, "how many steps the trace has"))
    if not found.steps or not often or found.share < _LEAST_SHARE or found.matrix_work < _LEAST_LAYERS:
        return None
    where = f" at {', '.join(found.sources)}" if found.sources else ""
    where += "" if where or not found.regions else f" (in {', '.join(found.regions)})"
    hint = "" if found.sources else "; record with with_stack=True to see the line"
    return Note(
        f"{found.operators:.0f} operators a step ({percent(found.share)} of those that autograd recorded, "
        f"{found.matrix_work:.0f} of them convolutions or matrix products){where} keep a graph and its tensors that no "
        "backward uses: write `with torch.inference_mode():` or `with torch.no_grad():` around that forward pass, or "
        f"`net.requires_grad_(False)` for a net that is not trained{hint}."
    )
