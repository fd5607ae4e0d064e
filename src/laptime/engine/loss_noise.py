"""What half precision makes of a loss that is near zero because its terms cancel, as a divergence of two like nets is.

Each term is rounded by its own size, and the sum may be much smaller: a Kullback-Leibler divergence of 0.01 comes out
30 % off in bfloat16 with gradients that are within 3 % (docs/log.md). So the reference itself is asked: its step in
fp32 is taken some times more, and what is computed behind the net's last layer is moved by what rounding may move it.
Which operations round there is seen in plain autocast's step; the values that are judged have no part in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from laptime.catalogue import of_stage
from laptime.engine.distances import loss_error
from laptime.engine.one_step import Side, Specs, Steps

# In step after step results are moved up or down by another bit of their number, so that any two of 32, which may be
# subtracted, are moved apart in one.
_BITS = 5

Seen = Callable[[Any, Tensor], None]
"""Takes an operation and a result of it."""


def loss_noise(steps: Steps, chosen: Specs) -> float:
    """How far rounding may move the loss of the baseline's step, relative; costs six steps.

    Rounding is taken to move all values of a result alike, by half a unit in the last place: what is alike in all
    samples is not averaged out.

    Returns:
        0 of a variant without half precision, and where nothing is rounded behind the last layer.
    """
    plain = of_stage(chosen, "precision")
    halved: dict[Any, torch.dtype] = {}

    def noted(operation: Any, result: Tensor) -> None:
        if result.dtype in (torch.bfloat16, torch.float16):
            halved[operation] = result.dtype

    layers = _Behind(noted, between=halved.clear)
    with layers:
        steps.cut(plain, Side(strict=False), layers)
    if not halved:
        return 0.0
    before = steps.take((), Side()).loss
    return max(loss_error(_moved(steps, halved, layers.called, bit), before) for bit in range(_BITS))


def _moved(steps: Steps, halved: dict[Any, torch.dtype], last: int, bit: int) -> float:
    numbers = itertools.count()

    def shifted(operation: Any, result: Tensor) -> None:
        if result.dtype is torch.float32 and operation in halved and layers.called == last:
            up = next(numbers) >> bit & 1
            result.mul_(1 + (up - 0.5) * torch.finfo(halved[operation]).eps)

    layers = _Behind(shifted)
    with layers:
        return steps.cut((), Side(), layers).loss


class _Behind(TorchDispatchMode):
    """Shows what a step computes forward, and counts the calls of layers that have weights (see `Cutting`).

    Args:
        seen: is shown each result that is no view of another.
        between: is called behind each layer.
    """

    def __init__(self, seen: Seen, between: Callable[[], None] = lambda: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen, self.between, self.called = seen, between, 0

    def attach(self, model: nn.Module, scale: float) -> None:
        """See `laptime.engine.one_step.Cutting`."""
        for layer in model.modules():
            if layer._parameters and not isinstance(layer, torch.jit.ScriptModule):
                layer.register_forward_hook(self._behind)

    def _behind(self, _layer: nn.Module, _given: Any, _output: Any) -> None:
        self.called += 1
        self.between()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled() and not func.is_view:  # no gradients, which come without
            for result in tree_leaves(found):
                if isinstance(result, Tensor):
                    self.seen(func, result)
        return found
