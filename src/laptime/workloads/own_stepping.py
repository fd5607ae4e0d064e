"""Optimizers that a user's loss() steps by itself, as a GAN's second one: nothing puts their state back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from laptime.errors import RunError


@contextmanager
def steps_noted() -> Iterator[list[Optimizer]]:
    """Within it, each optimizer of torch's kind that takes a step is noted."""
    found: list[Optimizer] = []

    def note(stepped: Optimizer, *_given: Any) -> None:
        found.append(stepped)

    handle = register_optimizer_step_post_hook(note)
    try:
        yield found
    finally:
        handle.remove()


def refuse_stepped(line: str, first: Sequence[Optimizer], second: Sequence[Optimizer]) -> None:
    """Refuses an optimizer that the losses of two steps have stepped.

    One that a loss makes anew, for an inner loop or the worst inputs say, carries nothing along.

    Args:
        line: what gives the loss, with its line.
        first: optimizers that the first loss has stepped.
        second: the same of the second one.

    Raises:
        RunError: there is one.
    """
    kept = next((o for o in first if any(o is other for other in second)), None)
    if kept is not None:
        raise RunError(
            f"{line} steps an optimizer of its own ({type(kept).__name__}), whose state would go on from the warm-up: "
            "give all weights to optimizer(), and train several nets in one loss (docs/own-workload.md, Several nets)."
        )
