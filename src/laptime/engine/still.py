"""What is random in a net stands still while a variant's step is compared with the baseline's.

A mask for part of a batch, of another precision, memory layout or by a compiler is not the baseline's mask, whatever
the seed. Modules that draw are set to evaluation; torch's functions that draw (`F.dropout` in a forward, the dropout of
attention) let everything through. What a net draws in ways of its own is the same on both sides (see `same_draws`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode
from torchvision.ops import StochasticDepth

from laptime.engine.same_draws import Draws

ALIKE = Draws()
# What draws masks in training; of those with a number of their own, recurrent nets and attention, that is set to 0.
_RANDOM = (_DropoutNd, StochasticDepth, nn.RReLU)
_WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)
_DROPOUTS = (
    *(
        (F, name)
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    ),
    *((torch, name) for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")),
    *((torch, name) for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_")),
)
# Attention has its dropout within, by the position of `dropout_p` among the arguments.
_ATTENTION = (("scaled_dot_product_attention", 4), ("multi_head_attention_forward", 10))


def silence(model: nn.Module, frozen: bool) -> None:
    """Stills a net's modules, and with `frozen` BatchNorm's statistics too."""
    still = (*_RANDOM, _BatchNorm) if frozen else _RANDOM
    for module in model.modules():
        if isinstance(module, still):
            module.eval()
        if isinstance(module, _WITH_DROPOUT):
            module.dropout = 0.0


@contextmanager
def still(draws: Draws = ALIKE) -> Iterator[None]:
    """Within it torch's functions that drop values at random drop none, and others draw as `draws` says.

    They are replaced by name, which holds where a gradient's pass computes a part again and in DataParallel's threads,
    and by a mode for those that a file has imported, which holds in the calling thread alone.
    """
    named = [(module, name, getattr(module, name), _passed) for module, name in _DROPOUTS]
    named += [(F, name, getattr(F, name), _without_dropout(getattr(F, name), place)) for name, place in _ATTENTION]
    drawing = draws.replaced()
    passing = {before: instead for _, _, before, instead in (*named, *drawing)}
    named += [(owner, name, before, _unless_by_mode(before, instead)) for owner, name, before, instead in drawing]
    with ExitStack() as held:
        for module, name, before, instead in named:
            own = name in vars(module)  # a method of tensors is inherited
            held.callback(setattr, module, name, before) if own else held.callback(delattr, module, name)
            setattr(module, name, instead)
        held.enter_context(_Still(passing))
        yield


def _unless_by_mode(before: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """What stands under a function's name: the mode, where it holds, sees the function itself and replaces it once."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return (before if torch._C._len_torch_function_stack() else instead)(*args, **kwargs)

    return called


def _passed(input: Tensor, *_: Any, **__: Any) -> Tensor:  # noqa: A002 - torch's own name
    return input


def _without_dropout(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], 0.0, *args[place + 1 :])
        else:
            kwargs["dropout_p"] = 0.0
        return function(*args, **kwargs)

    return called


class _Still(TorchFunctionMode):
    def __init__(self, passing: dict[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self.passing = passing

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.passing.get(func, func)(*args, **(kwargs or {}))
