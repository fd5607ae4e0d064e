"""Threads that wait for one another more than they share out."""

from __future__ import annotations

from laptime.advice.figures import ms
from laptime.advice.outcome import Outcome, Proposal, known
from laptime.advice.signals import Signals

_LEAST_SHARE = 0.05
# Around the trial's own share, as for the trial of bf16: the step meets other caches and other minutes.
_TRIED = 0.06


def fewer_threads(s: Signals) -> Outcome:
    """By forward and backward on fewer threads, timed by themselves; the optimizer, which was not, may gain as much."""
    if s.device != "cpu" or s.has("threads"):
        return None
    own, other = known(s.fewer_threads, "forward and backward on fewer threads")
    share = 1 - other.pass_ms / own.pass_ms
    if share < _LEAST_SHARE:
        return None
    step = known(s.step_ms, "the step's time")
    both = known(s.forward_ms, "the forward pass") + known(s.backward_ms, "the backward pass")
    updates = known(s.optimizer_ms, "the optimizer's time")
    return Proposal(
        "threads",
        f"The net's operators are too small for {own.count} threads, which wait for one another: compute on "
        f"{other.count}.",
        (
            f"forward and backward take {ms(both)} of {ms(step)} ms a step",
            f"timed by themselves they take {ms(own.pass_ms)} ms on {own.count} threads and {ms(other.pass_ms)} ms on "
            f"{other.count}",
        ),
        (max(0.0, share - _TRIED) * both, min(1.0, share + _TRIED) * (both + updates)),
        0.8,
        remedy=f"threads:count={other.count}",
        code=f"torch.set_num_threads({other.count})",
    )
