"""What to say of a training whose loss is no finite number: since which step, and what helps against it there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from laptime.catalogue import class_of
from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.finite import Unfinite, unfinite
from laptime.data.own.opened import OwnData
from laptime.optimizations.base import Recipe, shares
from laptime.optimizations.order import epoch_order
from laptime.records import DIVERGED
from laptime.workloads.base import Counts
from laptime.workloads.own_checked import AT_ZERO, loss_line


def diverged(loss: float, epoch: int, counts: Sequence[Counts], recipe: Recipe) -> str:
    """One sentence: the loss, the step, what is known of its batch, and what helps.

    Args:
        loss: of the epoch, of all ranks.
        epoch: its number.
        counts: of this rank's steps.
        recipe: what trained.
    """
    said = f"{DIVERGED} {loss} in epoch {epoch}"
    others = [chosen.name for chosen in recipe.applied if class_of(chosen) != "exact"]
    leave = f"leave out {' and '.join(others)}" if others else ""
    data = recipe.data
    if not isinstance(data, OwnData):
        weights = "begin with pretrained weights where the workload has some (--weights)"
        return f"{said}: {', or '.join(filter(None, (weights, leave)))}."
    losses = torch.stack([torch.as_tensor(c.loss_sum / c.count, dtype=torch.float64) for c in counts]).tolist()
    at = next((step for step, one in enumerate(losses) if not math.isfinite(one)), None)
    if at is None:  # another rank's
        return f"{said}: {_remedies(recipe, data, leave)}."
    before = f" (it was {losses[at - 1]:.4g} in the step before)" if at else ""
    said += f" at step {at + 1} of {len(losses)}{before}"
    step, held = _blamed(recipe, data, epoch, at)
    if held.values:
        whose = "whose batch" if step == at else "and the batch of the step before"
        return f"{said}, {whose} holds {held.told} of the training data: {held.remedy(data)}."
    return f"{said}: {_remedies(recipe, data, leave)}."


def _blamed(recipe: Recipe, data: OwnData, epoch: int, at: int) -> tuple[int, Unfinite]:
    """The step whose batch holds what is no number, that of the loss or the one before, which has moved the weights."""
    order = epoch_order(len(data.train), recipe.seed, epoch, data.train.weights)
    parts = shares(order, recipe.batch_size, recipe.world)
    looked = ((step, unfinite(data.train, parts[step].indices.tolist())) for step in (at, at - 1) if step >= 0)
    return next((found for found in looked if found[1].values), (at, Unfinite()))


def _remedies(recipe: Recipe, data: OwnData, leave: str) -> str:
    lightning = isinstance(data.workload, LightningWorkload)
    rate = "lower its learning rate" if lightning else f"lower learning_rate ({recipe.learning_rate:g})"
    bound = "" if recipe.clip_norm else "bound the gradient (clip_norm)"
    look = f"look for {AT_ZERO} in {loss_line(data)}"
    *first, last = filter(None, (rate, bound, leave or look))
    helps = f"{', '.join(first)}, or {last}"
    return helps if recipe.applied else f"this is the training as you wrote it, so {helps}"
