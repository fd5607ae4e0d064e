"""Stage schedule: batch size and learning rate. Statistical: another trajectory, judged by the quality it reaches."""

from __future__ import annotations

import math
from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from laptime.catalogue import LARGE_BATCHES, LINEAR_WARMUP
from laptime.optimizations.base import MakeSchedule, Options, Recipe, Schedule, constant


def large_batch(recipe: Recipe, options: Options) -> Recipe:
    """Takes larger steps, with the learning rate scaled by the root of the batch (the rule for Adam) and a schedule.

    A schedule of the user's own stays, over fewer steps.

    Sources: square-root scaling for adaptive optimizers, Malladi et al. 2022 (arXiv:2205.10287); OneCycle, Smith and
    Topin 2018 (arXiv:1708.07120).
    """
    size = int(options["size"]) or max(LARGE_BATCHES[recipe.device.type], recipe.batch_size // recipe.copies)
    settled: dict[str, Options] = {**recipe.settled, "large-batch": {"size": size}}
    size = min(size * recipe.copies, len(recipe.data.train))
    peak = float(options["max_lr"]) or recipe.learning_rate * math.sqrt(size / recipe.batch_size)
    kinds: dict[str, MakeSchedule] = {"onecycle": one_cycle, "linear": linear(LINEAR_WARMUP), "constant": constant}
    if recipe.make_schedule is constant:
        recipe = replace(recipe, make_schedule=kinds[str(options["schedule"])])
    else:
        recipe = replace(recipe, notes=(*recipe.notes, "the larger batch trains by the workload's own schedule"))
    return replace(recipe, batch_size=size, learning_rate=peak, settled=settled)


def onecycle(recipe: Recipe, options: Options) -> Recipe:
    """The OneCycle schedule at the batch and optimizer that the recipe has."""
    factor = float(options["factor"])
    return replace(recipe, learning_rate=factor * recipe.learning_rate, make_schedule=one_cycle)


def one_cycle(optimizer: Optimizer, steps: int) -> Schedule:
    """Each group rises to the rate that it was made with over the first 30 % of the counted steps, then to nearly 0."""
    peaks = [float(group["lr"]) for group in optimizer.param_groups]
    # One step more than is taken: the last call of step() only prepares a rate that is not used.
    return OneCycleLR(optimizer, max_lr=peaks, total_steps=steps + 1, cycle_momentum=False)


def linear_decay(recipe: Recipe, options: Options) -> Recipe:
    """The linear schedule at the batch and optimizer that the recipe has.

    Source: Defazio et al. 2023 (arXiv:2310.07831), whose theory asks for it in the worst case, and who find it as good
    as any other in practice.
    """
    factor, warmup = float(options["factor"]), float(options["warmup"])
    return replace(recipe, learning_rate=factor * recipe.learning_rate, make_schedule=linear(warmup))


def linear(warmup: float) -> MakeSchedule:
    """Each group rises to the rate that it was made with over a share of the counted steps, then falls to nearly 0."""

    def make(optimizer: Optimizer, steps: int) -> Schedule:
        return LambdaLR(optimizer, lambda step: share_of_peak(step, steps, warmup))

    return make


def share_of_peak(step: int, steps: int, warmup: float) -> float:
    """What a step, counted from 0, takes of the peak: up to it over `warmup` of the steps, then down, in two lines.

    Neither line comes to zero within the steps, so that each of them moves the weights.
    """
    rising = int(warmup * steps)
    return (step + 1) / (rising + 1) if step < rising else max(0, steps - step) / (steps - rising)
