"""Whether counted epochs begin as the warm-up did, by the loss of the first batch; and the lap of a warm-up epoch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from laptime.data.own.opened import OwnData
from laptime.engine.kept import Kept
from laptime.engine.reset import copy_known, tensors
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.data import settle
from laptime.values.draws import draw_apart, seed_all
from laptime.values.tallies import put_back_numbers
from laptime.workloads.base import Counts

# By how much two losses of the same numbers differ at most: kernels of a GPU add up in no certain order.
_ALIKE = {"cpu": 1e-5}
_ALIKE_ELSEWHERE = 1e-3


class Anew:
    """What a user's code keeps beside weights and plain values, from the first step of the warm-up on.

    Queues, teachers and memories are put back where the loss of the first batch is another one with them, and only
    there: with what was computed once it is the same.

    Args:
        parts: the run's.
        recipe: what they were built from.
        saved: the weights and buffers before any step.
    """

    def __init__(self, parts: Parts, recipe: Recipe, saved: dict[str, torch.Tensor]) -> None:
        self.parts, self.recipe, self.saved = parts, recipe, saved
        self.loss: float | None = None
        self.found = math.nan
        # A trainer's own loop takes no passes, and a replayed step runs no Python that could keep anything.
        self.looks = isinstance(recipe.data, OwnData) and parts.driver is None and recipe.warmup_calls == 1
        self.kept = self._now()

    def begin(self) -> None:
        """Draws what the first counted step draws."""
        if self.looks and self.loss is None:
            put_back_numbers(self.parts.numbers)  # passes on shapes alone may have drawn from generators
            seed_all(self.recipe.seed)
            draw_apart(self.recipe.seed, 0, self.recipe.world.rank)

    def step(self, counts: Counts) -> None:
        """Notes the loss of the first step."""
        if self.looks and self.loss is None:
            self.loss = _mean(counts)

    def settled(self) -> tuple[str, ...]:
        """Puts back what has to be; returns what to say of what can't be. Weights, buffers and draws move."""
        if self.loss is None or self._alike(self._again()):
            return ()
        by_now, later = self._now(), self.found
        self.kept.back()
        if self._alike(self._again()):
            self.kept.back()
            return ()
        by_now.back()
        return (
            f"the first step of the warm-up had a loss of {self.loss:.6g}, and with the same weights, batch and random "
            f"numbers it is {later:.6g} behind it: what the steps or the data keep there (a generator, an "
            "array, an iterator) goes on into the counted epochs; docs/own-workload.md says what begins anew.",
        )

    def _now(self) -> Kept:
        data = self.recipe.data
        if not self.looks or not isinstance(data, OwnData):
            return Kept(None)
        read = [data.train.dataset, data.test.dataset, data.train.collate, data.test.collate]
        return Kept(data.workload, self.parts.model, (*read, self.parts.optimizer))

    def _again(self) -> float:
        """The loss of the first batch; nan where the user's code fails, as with what is done once."""
        p = self.parts
        put_back_numbers(p.numbers)
        with torch.no_grad():
            copy_known(tensors(p), self.saved)
        seed_all(self.recipe.seed)
        draw_apart(self.recipe.seed, 0, self.recipe.world.rank)
        try:
            return _mean(p.passes(p, next(iter(p.loader.epoch(0)))).detached())
        except Exception:  # whatever it is, the counted epochs would tell
            return math.nan
        finally:
            p.optimizer.zero_grad()
            settle(p.loader)

    def _alike(self, loss: float) -> bool:
        """Whether it is that of the first step on all ranks."""
        assert self.loss is not None
        self.found = loss
        tolerance = _ALIKE.get(self.parts.device.type, _ALIKE_ELSEWHERE)
        same = math.isclose(loss, self.loss, rel_tol=tolerance, abs_tol=tolerance**2) or math.isnan(self.loss)
        return not any(self.recipe.world.gathered(float(not same)))


class WarmUp:
    """The lap of a warm-up epoch: progress, and what the first step has come to."""

    def __init__(self, progress: Callable[[int, int, int], None], steps: int, anew: Anew) -> None:
        self.progress, self.steps, self.anew, self.done = progress, steps, anew, 0

    def begin(self) -> None:
        """See `Lap`."""
        self.anew.begin()

    def step(self, counts: Counts) -> None:
        """See `Lap`."""
        self.anew.step(counts)
        self.done += 1
        self.progress(-1, self.done, self.steps)

    def end(self) -> None:
        """See `Lap`."""


def _mean(counts: Counts) -> float:
    return float(counts.loss_sum) / counts.count
