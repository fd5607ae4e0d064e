"""Warm-up epochs, a reset, counted epochs: each timed from its first fetch to the end of its last step."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from laptime.engine.evaluate import evaluate
from laptime.engine.loop import train_epoch
from laptime.engine.reset import reset, snapshot
from laptime.errors import RunError
from laptime.measure.compiling import CompileWatch
from laptime.measure.marks import StepMarks
from laptime.measure.memory import peak_mib, reset_peak
from laptime.optimizations.base import Parts, Recipe, batches
from laptime.records import EpochRecord
from laptime.workloads.base import Batch, Counts

Progress = Callable[[int, int, int], None]
"""Called after each step with epoch (-1 in warm-up), steps done and steps of the epoch."""


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    epochs: int
    warmup_epochs: int
    warmup_steps: int | None


class Session:
    """A built run on its way through its epochs."""

    def __init__(self, parts: Parts, recipe: Recipe, marks: StepMarks, progress: Progress) -> None:
        self.parts, self.recipe, self.marks, self.progress = parts, recipe, marks, progress
        self.train_s = 0.0
        self.watch: CompileWatch | None = None

    def warm_up(self, plan: Plan) -> float:
        """Runs the warm-up epochs and puts all state back; returns their seconds.

        A shortened warm-up still runs the epoch's last, smaller batch, which is a shape of its own.
        """
        saved = snapshot(self.parts)
        begin = time.perf_counter()
        for epoch in range(plan.warmup_epochs):
            whole = len(self.parts.loader)
            steps = min(plan.warmup_steps or whole, whole)
            for done, _ in enumerate(itertools.islice(train_epoch(self.parts, epoch), steps), start=1):
                self.progress(-1, done, steps)
            if steps < whole:
                self._last_shape()
        self._wait()
        seconds = time.perf_counter() - begin
        reset(self.parts, self.recipe, saved)
        return seconds

    def counted(self, plan: Plan) -> Iterator[EpochRecord]:
        """Yields the counted epochs one by one, each evaluated."""
        for index in range(plan.epochs):
            yield self._epoch(index)

    def _epoch(self, index: int) -> EpochRecord:
        parts, steps, counts = self.parts, len(self.parts.loader), []
        compiled = self.watch.events if self.watch else 0
        reset_peak(parts.device)
        self._wait()
        self.marks.start()
        begin = time.perf_counter()
        for done, step in enumerate(train_epoch(parts, index), start=1):
            counts.append(step)
            self.progress(index, done, steps)
            self.marks.end_step()
        self._wait()
        epoch_s = time.perf_counter() - begin
        peak = peak_mib(parts.device)
        self.train_s += epoch_s
        train_loss, train_accuracy, samples = totals(counts)
        if not math.isfinite(train_loss):
            raise RunError(
                f"the training loss became {train_loss} in epoch {index}: lower the learning rate or leave out the "
                "optimization that this variant adds."
            )
        begin = time.perf_counter()
        test_loss, test_accuracy, _ = totals([evaluate(parts, self.recipe, self.recipe.data.test)])
        evaluate_s = time.perf_counter() - begin
        split = self.marks.parts_s()
        late = self.watch.events - compiled if self.watch else 0
        return EpochRecord(
            index=index,
            kept=not late,
            compilations=late,
            epoch_s=epoch_s,
            samples=samples,
            steps=steps,
            samples_per_s=samples / epoch_s,
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            test_loss=test_loss if math.isfinite(test_loss) else None,
            test_accuracy=test_accuracy,
            data_wait_s=split.get("data"),
            evaluate_s=evaluate_s,
            peak_memory_mib=peak,
            step_ms_median=self.marks.step_ms_median(),
            train_s_so_far=self.train_s,
            parts_s=split,
            ended_at=time.time(),
        )

    def _last_shape(self) -> None:
        last = len(batches(torch.arange(len(self.recipe.data.train.labels)), self.recipe.batch_size)[-1])
        first = next(iter(self.parts.loader.epoch(0)))
        whole = Batch(torch.cat([first.inputs, first.inputs[:1]]), torch.cat([first.labels, first.labels[:1]]))
        self.parts.step(self.parts, Batch(whole.inputs[:last], whole.labels[:last]))

    def _wait(self) -> None:
        if self.parts.device.type == "cuda":
            torch.cuda.synchronize(self.parts.device)  # waits for the device


def totals(counts: list[Counts]) -> tuple[float, float, int]:
    """Mean loss, accuracy and samples of several steps; reads the device once."""
    samples = sum(c.count for c in counts)
    loss = torch.stack([torch.as_tensor(c.loss_sum, dtype=torch.float64) for c in counts]).sum()
    correct = torch.stack([torch.as_tensor(c.correct) for c in counts]).sum()
    return float(loss) / samples, float(correct) / samples, samples  # waits for the device
