"""Stage step: one training step, all of it in sight."""

from __future__ import annotations

from dataclasses import replace

from laptime.optimizations.base import Options, Parts, Recipe
from laptime.workloads.base import Batch, Counts


def tutorial_step(p: Parts, batch: Batch) -> Counts:
    """The step of the tutorials: loss and hits are read each time."""
    output = p.forward(p.net, batch)
    p.mark("forward")
    p.scaler.scale(output.loss).backward()
    p.exchange(p.model)
    p.mark("backward")
    p.scaler.step(p.optimizer)
    p.scaler.update()
    p.schedule.step()
    p.optimizer.zero_grad()
    p.mark("optimizer")
    loss = output.loss.item()  # waits for the device
    correct = None if output.correct is None else output.correct.item()
    p.mark("read")
    return Counts(loss * output.count / output.weight, correct, output.count)


def plain_step(p: Parts, batch: Batch) -> Counts:
    """The same without reads: loss and hits stay tensors on the device."""
    output = p.forward(p.net, batch)
    p.mark("forward")
    p.scaler.scale(output.loss).backward()
    p.exchange(p.model)
    p.mark("backward")
    p.scaler.step(p.optimizer)
    p.scaler.update()
    p.schedule.step()
    p.optimizer.zero_grad()
    p.mark("optimizer")
    return output.detached()


def no_reads(recipe: Recipe, options: Options) -> Recipe:
    """Keeps loss and hits on the device until the epoch ends."""
    return replace(recipe, step=plain_step)
