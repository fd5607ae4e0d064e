"""Stage step: the whole loop under Lightning's Trainer, to show what moving there costs or brings."""

from __future__ import annotations

from dataclasses import replace

from laptime.devices import missing_extra
from laptime.errors import UsageError
from laptime.optimizations.base import Options, Parts, Recipe
from laptime.optimizations.driver import Lap
from laptime.workloads.base import Counts


def lightning(recipe: Recipe, options: Options) -> Recipe:
    """Has the Trainer fetch, step and log; net, loader, forward and optimizer are those of the run."""
    missing = missing_extra("lightning")
    if missing:
        raise UsageError(f"optimization 'lightning' can't run here: {missing}.")
    return replace(recipe, driver=LightningDriver())


class LightningDriver:
    """One fit of a fresh Trainer for each epoch, so that evaluation and checkpoints stand outside of it, as elsewhere.

    The lap begins and ends with the Trainer's epoch: setting a fit up and tearing it down is not timed, which is to
    Lightning's advantage. A step ends when the Trainer asks for the next batch, so what it does between two steps is in
    the step's `rest`.
    """

    name = "lightning"

    def drive(self, p: Parts, index: int, lap: Lap, steps: int | None = None) -> None:
        """See `Driver`."""
        from laptime.optimizations.lightning_run import fit

        fit(p, index, lap, limit_train_batches=steps)

    def table(self, p: Parts, index: int, steps: int) -> str:
        """See `Driver`; mean and total seconds of each of the Trainer's actions, by its simple profiler."""
        from lightning.pytorch.profilers import SimpleProfiler

        from laptime.optimizations.lightning_run import fit

        profiler = SimpleProfiler()
        fit(p, index, _Untimed(), limit_train_batches=min(steps, len(p.loader)), profiler=profiler)
        return str(profiler.summary())


class _Untimed:
    def begin(self) -> None: ...

    def step(self, counts: Counts) -> None: ...

    def end(self) -> None: ...
