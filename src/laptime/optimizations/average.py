"""Stage step: a moving average of the weights, which evaluation and the saved model use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from laptime.optimizations.base import Options, Parts, Recipe
from laptime.values.copies import copy_of
from laptime.values.tallies import plain_values, set_values
from laptime.workloads.base import Batch, Counts

# The average starts with a short memory: until it has seen many steps the initial weights would weigh too much in it.
_RAMP = 10


class Average:
    """An exponential moving average of a model's parameters and buffers.

    BatchNorm's running statistics are averaged like the weights, since those of the averaged net would take a pass over
    the data; what is no floating point number (the count of batches) is copied. torch's AveragedModel reads a counter
    from the device in each update and would wait for it; this one counts on the host.

    Attributes:
        model: a copy of the model with the averaged values.
        decay: what an update keeps of the average.
        every: steps between two updates.
    """

    def __init__(self, model: nn.Module, decay: float, every: int) -> None:
        self.model = copy_of(model).requires_grad_(False)
        self.decay, self.every, self.steps = decay, every, 0
        both = zip(self.model.modules(), model.modules(), strict=True)
        self._counting = [pair for pair in both if not type(pair[1]).__module__.startswith("torch.nn.")]

    @property
    def evaluated(self) -> nn.Module:
        """The averaged model, with what the other's code has in plain attributes by now (a temperature, a phase).

        Buffers that it has made or that are of another size by now (a queue that fills) come as they are.
        """
        for own, found in self._counting:
            set_values(own, {name: value for name, value in plain_values(found).items() if name != "training"})
            for name, buffer in found.named_buffers(recurse=False):
                averaged = own._buffers.get(name)
                if averaged is None or averaged.shape != buffer.shape:
                    own._buffers[name] = buffer.detach().clone()
        return self.model

    def update(self, model: nn.Module) -> None:
        """Takes a step of the model in, every so many steps; does not wait for the device."""
        self.steps += 1
        if self.steps % self.every:
            return
        done = self.steps // self.every
        own, found = _shared(self.model, model, floating=True)
        get_ema_multi_avg_fn(min(self.decay, done / (done + _RAMP)))(own, found, None)
        self._copy(model, floating=False)

    def restart(self, model: nn.Module) -> None:
        """Starts anew from a model, in place."""
        self.steps = 0
        self._copy(model, floating=True)
        self._copy(model, floating=False)

    @torch.no_grad()
    def _copy(self, model: nn.Module, floating: bool) -> None:
        for own, found in zip(*_shared(self.model, model, floating), strict=True):
            own.copy_(found)


def _shared(one: nn.Module, other: nn.Module, floating: bool) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that both have, by name and shape: a net may make or enlarge a mask when it is called.

    Sparse ones are not averaged: a graph's edges don't move.
    """
    there = dict(other.named_parameters()) | dict(other.named_buffers())
    both = (*one.named_parameters(), *one.named_buffers())
    parts = ((n, t, t.is_floating_point() or t.is_complex()) for n, t in both)
    own = [(n, t) for n, t, fine in parts if (fine and t.layout == torch.strided) == floating]
    pairs = [(t.detach(), there[n].detach()) for n, t in own if n in there and there[n].shape == t.shape]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def ema(recipe: Recipe, options: Options) -> Recipe:
    """Averages the weights over the last part of an epoch.

    A memory in epochs, not in steps, means the same at every batch size. Source: Polyak and Juditsky 1992; with a short
    memory in short trainings, Jordan 2024 (arXiv:2404.00498).
    """
    epochs, every = float(options["epochs"]), int(options["every"])

    def make(model: nn.Module, steps: int) -> Average:
        often = max(1, min(every, steps))  # an epoch of fewer steps would leave the average where it began
        return Average(model, math.exp(-often / max(epochs * steps, 1.0)), often)

    return replace(recipe, make_average=make, step=Averaged(recipe.step))


@dataclass(frozen=True)
class Averaged:
    """A step that ends with an update of the average."""

    step: Callable[[Parts, Batch], Counts]

    def __call__(self, p: Parts, batch: Batch) -> Counts:
        """The step, then the update."""
        counts = self.step(p, batch)
        assert p.average is not None
        p.average.update(p.model)
        p.mark("optimizer")
        return counts
