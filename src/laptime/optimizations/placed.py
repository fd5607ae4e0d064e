"""The order of an epoch on the run's device."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from laptime.optimizations.base import Recipe, Share, shares
from laptime.optimizations.order import epoch_order, weights_of
from laptime.world import World


def placed_shares(recipe: Recipe, epoch: int) -> list[Share]:
    """This rank's parts of an epoch's batches, their indices on the run's device; made once for all who ask.

    A loader asks for the next epoch's after its last batch: a GPU then still runs steps, and would stand idle for it at
    the next epoch's begin.
    """
    of = len(recipe.data.train), recipe.seed, epoch
    return _placed(of, weights_of(recipe.data), recipe.batch_size, recipe.world, recipe.device)


@functools.lru_cache(maxsize=2)
def _placed(
    of: tuple[int, int, int], weights: Tensor | None, size: int, world: World, device: torch.device
) -> list[Share]:
    order = epoch_order(*of, weights)
    if device.type == "cuda":
        # From page-locked memory the host does not wait until what was launched before is done.
        order = order.pin_memory().to(device, non_blocking=True)
    return shares(order, size, world)
