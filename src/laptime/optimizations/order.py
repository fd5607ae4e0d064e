"""The order of the samples in an epoch: one for all loaders, so that all variants of a seed see the same batches."""

from __future__ import annotations

import torch
from torch import Tensor

from laptime.data.own.opened import OwnData
from laptime.errors import UsageError
from laptime.optimizations.base import AnyData, permutation


def weights_of(data: AnyData) -> Tensor | None:
    """The weights by which training samples are drawn [n]; None where each is drawn once an epoch."""
    return data.train.weights if isinstance(data, OwnData) else None


def epoch_order(count: int, seed: int, epoch: int, weights: Tensor | None) -> Tensor:
    """The samples of an epoch, made on the CPU, whatever the loader: each once, or by weights as many as there are.

    Returns:
        Indices [count], int64.

    Raises:
        UsageError: a limit keeps none that is ever drawn.
    """
    if weights is None:
        return permutation(count, seed, epoch)
    if not weights.any():
        raise UsageError(
            f"all {count} training samples that --limit-train keeps have the weight 0: give a larger limit, or leave "
            "it out for all."
        )
    return draws(weights, seed, epoch)


def draws(weights: Tensor, seed: int, epoch: int) -> Tensor:
    """As many samples as there are weights [n], drawn by them with replacement: WeightedRandomSampler's of an epoch.

    They follow from seed and epoch alone.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**64)
    return torch.multinomial(weights, len(weights), replacement=True, generator=generator)
