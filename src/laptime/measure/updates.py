"""What the optimizer's update takes as it is and with its fused kernel: both by turns, on copies of the parameters.

How much of a loop over tensors goes with one kernel depends on machine and net, so no constant holds for all.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from laptime.measure.memory import free_bytes
from laptime.measure.passes import wait_for
from laptime.measure.rounds import worth_another
from laptime.optimizations.optimizer import spare_copies
from laptime.records import UpdateRecord

# Of an optimizer with state the first one makes it, and does not count.
_ROUNDS = 5
_BUDGET_S = 1.0
# Of two sides: parameter, gradient and two moments each; what single updates take for themselves comes on top.
_COPIES = 8
_ROOM = 0.5
# Values are no matter, but a denormal number would take longer than any other.
_SLOPE = 1e-3


def measure_updates(
    optimizer: Optimizer,
    device: torch.device,
    clock: Callable[[], float] = perf_counter,
    budget_s: float = _BUDGET_S,
) -> UpdateRecord | None:
    """Times updates with the clearing of gradients that follows them, as in a step; medians of rounds by turns.

    Args:
        optimizer: of the run; neither it nor its parameters are changed.
        device: of the parameters.
        clock: seconds.
        budget_s: after which no further round is begun.

    Returns:
        None where it is fused, is none of torch's that can be, or has no room for copies.

    Raises:
        RuntimeError: its parameters are none that the fused kernel takes.
    """
    needed = _COPIES * sum(p.nbytes for p in _trained(optimizer))
    if not can_be_fused(optimizer) or not 0 < needed <= _ROOM * free_bytes(device):
        return None
    sides = (_copied(optimizer), _copied(optimizer, fused=True, foreach=None))
    spare_copies(sides[1])
    begin, rounds = clock(), list[tuple[float, ...]]()
    while len(rounds) < 2 or worth_another(len(rounds) - 1, _ROUNDS, clock() - begin, budget_s):
        rounds.append(tuple(_update_s(side, device, clock) for side in sides))
    own_s, fused_s = (median(seconds) for seconds in zip(*rounds[1:], strict=True))
    return UpdateRecord(own_ms=1e3 * own_s, fused_ms=1e3 * fused_s)


def can_be_fused(optimizer: Optimizer) -> bool:
    """Whether an optimizer of torch's own has a fused kernel that it does not use; one made from it may do anything."""
    own = type(optimizer).__module__.partition(".")[0] == "torch"
    return own and "fused" in optimizer.defaults and not any(group.get("fused") for group in optimizer.param_groups)


def _trained(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _copied(optimizer: Optimizer, **changed: Any) -> Optimizer:
    """The same optimizer over copies of what it trains, with some options changed; without state and hooks."""
    groups = []
    for group in optimizer.param_groups:
        options = {name: group[name] for name in optimizer.defaults if name in group} | changed
        copies = [p.detach().clone().requires_grad_() for p in group["params"] if p.requires_grad]
        groups.append({**options, "params": copies})
    make: Callable[..., Optimizer] = type(optimizer)
    return make(groups, **changed)


def _update_s(optimizer: Optimizer, device: torch.device, clock: Callable[[], float]) -> float:
    for parameter in _trained(optimizer):
        parameter.grad = torch.full_like(parameter, _SLOPE)  # written just now, as by a backward pass
    wait_for(device)
    begin = clock()
    optimizer.step()
    optimizer.zero_grad()
    wait_for(device)
    return clock() - begin
