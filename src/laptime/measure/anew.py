"""Whether counted epochs begin as the warm-up did, by the first batches' losses; and the lap of a warm-up epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import torch

from laptime.data.own.opened import OwnData
from laptime.engine.kept import Kept
from laptime.engine.reset import reset
from laptime.optimizations.base import Parts, Recipe, constant
from laptime.optimizations.data import settle
from laptime.values.draws import draw_apart, seed_all
from laptime.values.tallies import is_users, own_modules, put_back_numbers
from laptime.workloads.base import Counts

# By how much two losses of the same numbers differ at most: kernels of a GPU add up in no certain order.
_ALIKE = {"cpu": 1e-5}
_ALIKE_ELSEWHERE = 1e-3
# Steps of the warm-up whose losses are held.
_LOOKED_AT, _NAMED = 2, ("first", "second")


class Anew:
    """What a user's code keeps beside weights and plain values, from the first step of the warm-up on.

    Queues, teachers and memories are put back where the losses of the first batches are others with them: with what was
    computed once they are the same. What an optimizer keeps, in a global say, the second batch's tells, for which a
    step is taken; where the warm-up has moved nothing that is known here, the first one's must do. Tensors that were
    written to are put back all the same where these losses stay: an average of the weights no loss of training shows.
    So are those that the first steps have made and later ones write to, as one does that begins with the weights.

    Args:
        parts: the run's.
        recipe: what they were built from.
        saved: the weights and buffers before any step.
    """

    def __init__(self, parts: Parts, recipe: Recipe, saved: dict[str, torch.Tensor]) -> None:
        self.parts, self.recipe, self.saved = parts, recipe, saved
        self.losses = list[float]()
        # A trainer's own loop takes no passes, and a replayed step runs no Python that could keep anything.
        self.looks = isinstance(recipe.data, OwnData) and parts.driver is None and recipe.warmup_calls == 1
        self.kept, self.made = self._now(), Kept(None)

    def begin(self) -> None:
        """Draws what the first counted step draws."""
        if self.looks and not self.losses:
            put_back_numbers(self.parts.numbers)  # passes on shapes alone may have drawn from generators
            seed_all(self.recipe.seed)
            draw_apart(self.recipe.seed, 0, self.recipe.world.rank)

    def step(self, counts: Counts) -> None:
        """Notes the losses of the first steps."""
        if self.looks and len(self.losses) < _LOOKED_AT:
            self.losses.append(_mean(counts))
            if len(self.losses) == _LOOKED_AT and self.kept.moved() and not (now := self._now()).graphs():
                self.made = now

    def settled(self) -> tuple[str, ...]:
        """Puts back what has to be; returns what to say of what can't be. Weights, buffers and draws move."""
        if not self.losses:
            return ()
        told = _lost(self.kept.lost())
        # A class of the user's own may keep what it likes where nothing is known.
        deep = self.kept.moved() or is_users(type(self.parts.optimizer))
        if not any(self.recipe.world.gathered(float(deep))):
            del self.losses[1:]
        written = any(self.recipe.world.gathered(float(self.kept.written() or self.made.written())))
        self.made = Kept(None)
        later = self._again()
        alike = self._alike(later)
        if alike and not written:
            return told
        by_now = self._now()
        self.kept.back()
        if self._alike(self._again()):
            self.kept.back()
            return told
        by_now.back()
        if alike:
            return told
        step = next(i for i, pair in enumerate(zip(self.losses, later, strict=False)) if not self._same(*pair))
        return (
            *told,
            f"the {_NAMED[step]} step of the warm-up had a loss of {self.losses[step]:.6g}, and with the same weights, "
            f"batch and random numbers it is {later[step]:.6g} behind it: what the steps or the data keep there (an "
            "iterator, a generator, what was made once) goes on into the counted epochs; docs/own-workload.md says "
            "what begins anew.",
        )

    def _now(self) -> Kept:
        data, p = self.recipe.data, self.parts
        if not self.looks or not isinstance(data, OwnData):
            return Kept(None)
        read = [data.train.dataset, data.test.dataset, data.train.collate, data.test.collate]
        modules = own_modules([data.workload, *p.model.modules(), p.optimizer])
        made = () if is_users(type(p.optimizer)) else (p.optimizer,)
        return Kept(data.workload, p.model, (*read, *made), modules)

    def _again(self) -> list[float]:
        """The losses of the first batches; nan where the user's code fails, as with what is done once."""
        p, found = self.parts, list[float]()
        reset(p, replace(self.recipe, make_schedule=constant), self.saved)  # the rates of the warm-up, which has none
        draw_apart(self.recipe.seed, 0, self.recipe.world.rank)
        try:
            for batch in islice(p.loader.epoch(0), len(self.losses)):
                last = len(found) + 1 == len(self.losses)
                found.append(_mean(p.passes(p, batch).detached() if last else p.step(p, batch)))
            return found
        except Exception:  # whatever it is, the counted epochs would tell
            return [*found, math.nan]
        finally:
            p.optimizer.zero_grad()
            settle(p.loader)

    def _alike(self, losses: list[float]) -> bool:
        """Whether they are those of the first steps on all ranks."""
        same = all(self._same(*pair) for pair in zip(self.losses, losses, strict=False))
        return not any(self.recipe.world.gathered(float(not same)))

    def _same(self, loss: float, other: float) -> bool:
        tolerance = _ALIKE.get(self.parts.device.type, _ALIKE_ELSEWHERE)
        return math.isclose(other, loss, rel_tol=tolerance, abs_tol=tolerance**2) or math.isnan(loss)


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


def _lost(names: tuple[str, ...]) -> tuple[str, ...]:
    """What to say of what the warm-up has written to and of which no copy was taken."""
    if not names:
        return ()
    return (
        f"the warm-up has written to {', '.join(names)}, too large to be put back beside what else is held (256 MiB in "
        "all), so the counted epochs go on with it: let the net of model() hold it, as buffers.",
    )
