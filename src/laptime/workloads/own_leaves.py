"""Weights behind a user's loss that its net does not hold, so that no optimizer is given them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


def leaves_of(loss: Tensor) -> list[Tensor]:
    """The tensors for which backward through a loss would find gradients, by autograd's graph; nothing is computed."""
    found, seen, ahead = list[Tensor](), set[Any](), [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # of a node that gathers a leaf's gradient
        found += [variable] if isinstance(variable, Tensor) and variable.is_leaf else []
        ahead += [following for following, _ in node.next_functions]
    return found


def untrained(model: nn.Module, first: Sequence[Tensor], second: Sequence[Tensor]) -> int:
    """How many tensors two steps have asked gradients for, the same in both, that are not in the net.

    What is made anew in each step is none: inputs, whose gradients an equation asks for. A buffer is in the net, and
    meant to stay.
    """
    mine, again = {id(t) for t in (*model.parameters(), *model.buffers())}, {id(t) for t in second}
    return len({id(t) for t in first if id(t) in again} - mine)


def left_untrained(count: int, line: str) -> str:
    """What to say of so many tensors, behind the loss of a line; empty where there are none."""
    if not count:
        return ""
    one = count == 1
    return (
        f"{line} goes through {count} tensor{'s' * (not one)} with gradient{'s' * (not one)} that "
        f"{'is' if one else 'are'} not in the net, so {'it is' if one else 'they are'} not trained: let the net of "
        "model() hold what is meant to learn (nn.Parameter), a loss's own weights say, take the model that is given "
        "and none that was kept, and give the rest requires_grad=False."
    )
