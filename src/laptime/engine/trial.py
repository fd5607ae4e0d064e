"""An optimization beside its absence on this machine: a few steps of each in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from laptime.catalogue import combine, find_workload
from laptime.data.own.few import few_in_memory
from laptime.data.own.opened import OwnData
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.noise import random_boxes, random_images
from laptime.engine.told import told
from laptime.errors import shorten
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.data import settle
from laptime.records import LEAST_GAIN
from laptime.spec import DataSpec, OptimizationSpec, RunSpec

_ROUNDS = 5
# A step at a large batch takes long and varies less: as many are enough where they agree on whether there is a gain.
_LARGE_ROUNDS = 2
# Half the speed or less is no gain that more rounds or a larger batch could show: bf16 without instructions for it
# takes ten times as long, and minutes at a batch of 512.
HOPELESS = 0.5
# Seconds of rounds that count after which none is begun: of steps of 20 s there would else be 48, 16 minutes.
_ENOUGH_S = 60.0
# Rounds that the compiler may take besides; what it compiles for anew in each one after them is slow for good.
_ANEW = 16
_SAMPLES = 128
# Seconds of one round after which no further step of it is begun.
_ROUND_S = 10.0


def own_of(workload: str) -> DataSpec | None:
    """The data of a user's own workload; None for one of the catalogue."""
    return DataSpec.model_validate_json(workload) if workload.startswith("{") else None


@dataclass(frozen=True)
class Trial:
    """One optimization beside its absence, on the CPU: on a GPU no rung is tried before its ladder."""

    workload: str
    before: tuple[OptimizationSpec, ...]
    added: OptimizationSpec
    batch: int

    def gain(self, compiled: Callable[[], int] = lambda: 0) -> float:
        """Speed with the optimization over speed without.

        Both sides take steps in turn on random images, or on samples of the user's own; the ratio is that of the
        medians. The first round, with all that is done only once, does not count. One round that counts is enough where
        it shows as little as the first, or steps are long; rounds of long steps become more where they disagree.

        Args:
            compiled: how often the compiler has run by now. A round in which it does is none that counts: batches of
                several shapes are compiled for one after another, in as many rounds where one takes long.
        """
        sides = [self._parts(chosen) for chosen in (self.before, combine(self.before, self.added))]
        times: list[list[float]] = [[], []]
        rounds = _ROUNDS if self.batch < _SAMPLES and not self._heavy else _LARGE_ROUNDS
        anew = 0
        while not _enough(times, rounds):
            known = compiled()
            for parts, seconds in zip(sides, times, strict=True):
                seconds.append(_steps_s(parts))
            if len(times[0]) > 1 and compiled() > known and anew < _ANEW:
                anew += 1
                times = [seconds[:-1] for seconds in times]
        without, with_it = (median(t[1:]) for t in times)
        return without / with_it

    @property
    def _heavy(self) -> bool:
        """Whether few samples make a long step; of a workload of the user's own nobody knows."""
        return own_of(self.workload) is None and find_workload(self.workload).probe_batch is not None

    def told(self, error: BaseException) -> str:
        """Why it failed, without a full stop; with the user's own line, where it is a training of theirs."""
        own = own_of(self.workload)
        if own is None:
            return f"{type(error).__name__}: {shorten(' '.join(str(error).split()), 200)}"
        try:
            again = self._recipe(combine(self.before, self.added))
        except (Exception, SystemExit):  # an item that can't be read can't be read again
            again = None
        return told(error, Path(own.path), recipe=again)

    def _parts(self, chosen: tuple[OptimizationSpec, ...]) -> Parts:
        return build(self._recipe(chosen), mark=lambda _: None)

    def _recipe(self, chosen: tuple[OptimizationSpec, ...]) -> Recipe:
        own = own_of(self.workload)
        if own is not None and own.own is not None:
            samples = min(max(_SAMPLES, self.batch), own.train_count)
            spec = RunSpec(
                workload=own.own.name,
                variant="probe",
                data=own,
                batch_size=self.batch,
                learning_rate=own.own.learning_rate,
                limit_train=samples,
            )
            whole = open_data(spec)
            assert isinstance(whole, OwnData)
            few = few_in_memory(whole, self.batch, own.own.batch_size)
            return make_recipe(spec, few, chosen)
        entry = find_workload(self.workload)
        samples = entry.probe_batch or max(_SAMPLES, self.batch)
        data = random_boxes(samples) if entry.boxes else random_images(entry.image_size, samples)
        spec = RunSpec(
            workload=self.workload,
            variant="probe",
            data=DataSpec(
                asked="probe",
                kind="synthetic",
                digest="",
                path="",
                classes=data.classes,
                train_count=samples,
                test_count=0,
            ),
            batch_size=self.batch,
            learning_rate=entry.learning_rate,
        )
        return make_recipe(spec, data, chosen)


def _enough(times: list[list[float]], rounds: int) -> bool:
    """Whether the rounds so far decide: a machine that is shared may slow one side's two long steps alone."""
    ratios = [without / with_it for without, with_it in zip(*times, strict=True)]
    counted = ratios[1:]
    if not counted:
        return False
    if all(ratio <= HOPELESS for ratio in ratios) or sum(sum(t[1:]) for t in times) > _ENOUGH_S:
        return True
    return len(counted) >= _ROUNDS or (len(counted) >= rounds and len({ratio >= LEAST_GAIN for ratio in counted}) == 1)


def _steps_s(parts: Parts) -> float:
    """Seconds of all steps, by as many of them as one round has time for."""
    begin, steps = time.perf_counter(), 0
    for batch in parts.loader.epoch(0):
        parts.step(parts, batch)
        steps += 1
        if time.perf_counter() - begin > _ROUND_S:
            break
    if parts.device.type == "cuda":
        torch.cuda.synchronize(parts.device)  # waits for the device
    seconds = (time.perf_counter() - begin) * len(parts.loader) / steps
    settle(parts.loader)
    return seconds
