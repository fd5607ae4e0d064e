"""What is random in a net stands still while a variant's step is compared with the baseline's.

A mask for part of a batch, of another precision, memory layout or by a compiler is not the baseline's mask, whatever
the seed. Modules that draw are set to evaluation; functions that draw (`F.dropout` in a forward, the dropout of
attention) let everything through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode
from torchvision.ops import StochasticDepth

# What draws masks in training; of those with a number of their own, recurrent nets and attention, that is set to 0.
_RANDOM = (_DropoutNd, StochasticDepth)
_WITH_DROPOUT = (nn.MultiheadAttention, nn.RNNBase)
_DROPOUTS = frozenset(
    {
        *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
        *(torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_),
        *(torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout, torch.feature_alpha_dropout_),
    }
)
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def silence(model: nn.Module, frozen: bool) -> None:
    """Stills a net's modules, and with `frozen` BatchNorm's statistics too."""
    still = (*_RANDOM, _BatchNorm) if frozen else _RANDOM
    for module in model.modules():
        if isinstance(module, still):
            module.eval()
        if isinstance(module, _WITH_DROPOUT):
            module.dropout = 0.0


class Still(TorchFunctionMode):
    """Within it, functions that drop values at random drop none."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            given = dict(zip(_ATTENTION, args, strict=False)) | kwargs
            return func(**{**given, "dropout_p": 0.0})
        return func(*args, **kwargs)
