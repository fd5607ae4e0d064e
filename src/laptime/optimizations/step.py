"""Stage step: one training step, all of it in sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from laptime.optimizations.base import Options, Parts, Recipe
from laptime.workloads.base import Batch, Counts


def tutorial_step(p: Parts, batch: Batch) -> Counts:
    """The step of the tutorials: loss and hits are read each time."""
    output = p.passes(p, batch)
    p.exchange(p.model)
    p.mark("backward")
    p.clip(p)
    p.scaler.step(p.optimizer)
    p.scaler.update()
    p.schedule.step()
    p.optimizer.zero_grad()
    p.mark("optimizer")
    loss = output.told.item()  # waits for the device
    correct = None if output.correct is None else output.correct.item()
    p.mark("read")
    return Counts(loss * output.count / output.weight, correct, output.count)


def plain_step(p: Parts, batch: Batch) -> Counts:
    """The same without reads: loss and hits stay tensors on the device."""
    output = p.passes(p, batch)
    p.exchange(p.model)
    p.mark("backward")
    p.clip(p)
    p.scaler.step(p.optimizer)
    p.scaler.update()
    p.schedule.step()
    p.optimizer.zero_grad()
    p.mark("optimizer")
    return output.detached()


def clipping(norm: float, trained_alone: bool) -> Callable[[Parts], None]:
    """Bounds the whole gradient's norm (L2), of all ranks' mean; does not wait for the device.

    Source: Pascanu et al. 2013 (arXiv:1211.5063).

    Args:
        norm: the largest one.
        trained_alone: whether only what the optimizer steps counts, as under Lightning's Trainer, not all of the net.
    """

    def clip(p: Parts) -> None:
        p.scaler.unscale_(p.optimizer)  # of fp16; elsewhere nothing
        stepped = (parameter for group in p.optimizer.param_groups for parameter in group["params"])
        nn.utils.clip_grad_norm_(stepped if trained_alone else p.model.parameters(), norm)

    return clip


def no_reads(recipe: Recipe, options: Options) -> Recipe:
    """Keeps loss and hits on the device until the epoch ends."""
    return replace(recipe, step=plain_step)
