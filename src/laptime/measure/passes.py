"""Training's own forward and backward passes, timed by themselves on a run whose epochs are counted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from laptime.optimizations.base import Forward, Parts
from laptime.optimizations.data import settle
from laptime.values.trees import cut, leaves, movable, tensors
from laptime.workloads.base import Batch


def wait_for(device: torch.device) -> None:
    """Lets a GPU come to its end, so that a clock says how long it took."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # waits for the device


def batch_of(parts: Parts, epoch: int) -> Batch | None:
    """The first batch of an epoch; None where it does not consist of samples."""
    given = next(iter(parts.loader.epoch(epoch)))
    settle(parts.loader)  # workers would fetch on beside what is timed
    if any(map(movable, leaves(given.content))):
        return None
    return None if any(len(t) != len(given) for t in tensors(given.content) if t.dim()) else given


@dataclass(frozen=True)
class Passes:
    """Forward and backward, timed to their end on the device.

    Attributes:
        parts: of the run.
        given: the batch; samples are repeated where more are asked for.
        clock: seconds.
    """

    parts: Parts
    given: Batch
    clock: Callable[[], float]

    def __call__(self, size: int, forward: Forward | None = None) -> float:
        """Seconds of a pass with so many samples, by the run's forward or another."""
        p = self.parts
        # A copy each time, since a user's loss may write into its batch.
        batch = Batch(*cut(self.given.content, len(self.given), size))
        p.net.zero_grad(set_to_none=True)  # so that backward writes them anew, as in a step
        wait_for(self.parts.device)
        begin = self.clock()
        p.scaler.scale((forward or p.forward)(p.net, batch).loss).backward()
        wait_for(self.parts.device)
        return self.clock() - begin


@contextlib.contextmanager
def put_back(p: Parts) -> Iterator[None]:
    """Leaves buffers (BatchNorm's statistics above all), gradients and random numbers as they were."""
    buffers = {name: value.detach().clone() for name, value in p.net.named_buffers()}
    gradients = [(parameter, parameter.grad) for parameter in p.net.parameters()]
    try:
        with torch.random.fork_rng(devices=[p.device] if p.device.type == "cuda" else []):
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for name, value in p.net.named_buffers():
                value.copy_(buffers[name])
        if p.device.type == "cuda":
            torch.cuda.empty_cache()  # what follows takes other sizes
