"""What a user's own optimizer is not for: kernels that it has not, and others that step it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from laptime.data.lightning_optimizer import forgotten, has_step_hooks
from laptime.errors import shorten
from laptime.workloads.own import remade


def hooked(optimizer: Optimizer) -> bool:
    """Whether an optimizer's steps do more than those of its class: they have hooks, or a function in their place."""
    return has_step_hooks(optimizer) or "step" in vars(optimizer)


def unfused(made: Optimizer) -> dict[str, str]:
    """What needs the fused kernel of a user's optimizer, where its parameters or options are not for it.

    One that is made anew with that kernel has the options of its groups, and of what its class keeps beside them the
    defaults.

    Args:
        made: before its first step.
    """
    kind, told = type(made).__name__, ""
    if hooked(made):
        told = f"steps of its {kind} have hooks or were replaced, and one made anew with a fused kernel has neither"
        return dict.fromkeys(("fused-optimizer", "fp16", "graph"), told)
    try:
        fused = remade(made, fused=True)
        lost = forgotten(made, fused)
        fused.step()
    except Exception as error:  # whatever torch says of complex weights, sparse gradients, options
        told = f"{kind} has no fused kernel for it ({shorten(' '.join(str(error).split()), 160)})"
    else:
        if lost:
            told = f"its {kind}, made anew with a fused kernel, has another {' and another '.join(lost)}"
    return dict.fromkeys(("fused-optimizer", "fp16", "graph"), told) if told else {}


def stepped_by_others(made: Any, schedule: object) -> dict[str, str]:
    """What hands an optimizer to torch's schedules or to Lightning's Trainer, where they don't take it.

    Its step is taken once more for this: one that wraps another optimizer may take no closure, or not call it.

    Args:
        made: the optimizer, or what has a step as one has.
        schedule: the user's own, which a larger batch goes through; None without one.
    """
    kind, called = type(made).__name__, list[int]()
    refused = {}
    if not isinstance(made, Optimizer):
        steered = ("onecycle", "linear-decay", *(() if schedule else ("large-batch",)))
        refused = dict.fromkeys(steered, f"torch's schedules take no {kind}, which is no torch.optim.Optimizer")

    def closure() -> Tensor:
        called.append(1)
        return torch.zeros(())

    try:
        made.step(closure=closure)
    except Exception as error:  # whatever a user's code raises
        told = type(error).__name__
        refused["lightning"] = f"the step of its {kind} takes no closure as Lightning gives it ({told})"
    else:
        if not called:
            refused["lightning"] = f"the step of its {kind} does not call the closure that Lightning gives it"
    return refused
