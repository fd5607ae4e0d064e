"""Optimizers that a user's loss() steps by itself, as a GAN's second one: nothing puts their state back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from laptime.data.lightning.module import LightningWorkload
from laptime.errors import RunError
from laptime.values.reached import reached

# Losses that are asked for besides where an optimizer is there that none has stepped as yet: WGAN's authors let a
# critic take five steps for each of the generator's.
_MORE = 14


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


def refuse_seldom_stepped(line: str, user: Any, model: nn.Module, again: Callable[[], object]) -> None:
    """Refuses an optimizer that the loss steps only every few calls; costs nothing where none can be reached.

    Args:
        line: what gives the loss, with its line.
        user: the user's object, in which, or in the globals of whose loss(), an optimizer would live on.
        model: the net, which may hold one, too.
        again: asks for another loss.

    Raises:
        RunError: there is one.
    """
    if isinstance(user, LightningWorkload):  # one that steps by hand is refused by its automatic_optimization
        return
    seen = dict[int, object]()
    roots = (getattr(user, "__dict__", None), model, getattr(inspect.unwrap(user.loss), "__globals__", None))
    kept = [one for root in roots for one in reached(root, seen) if isinstance(one, Optimizer)]
    if not kept:
        return
    with steps_noted() as found, suppress(Exception, SystemExit):  # of a user's code: a run that comes there tells it
        for _ in range(_MORE):
            again()
            if found:
                break
    refuse_stepped(line, kept, found)
