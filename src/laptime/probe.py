"""A few seconds on this machine before a ladder: its ceilings, and whether rungs that can lose would gain.

python -m laptime.probe WORKLOAD DEVICE RESULT.json [--only=NAME,...]         quick probes, of some optimizations alone
python -m laptime.probe WORKLOAD DEVICE RESULT.json RUNG [NUMERIC RUNG...]    one rung whose probe takes long

WORKLOAD is a name in the catalogue, or the DataSpec of a workload of the user's own as JSON.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from laptime import variants
from laptime.catalogue import (
    LADDERS,
    OPTIMIZATIONS,
    combine,
    find_optimization,
    find_workload,
    large_batch_of,
    rung_spec,
)
from laptime.data.own import OwnData
from laptime.data.own_few import few_in_memory
from laptime.devices import EMULATED, hopeless_here
from laptime.engine.build import build, find_device, make_recipe, open_data
from laptime.engine.noise import random_boxes, random_images
from laptime.errors import LaptimeError, shorten
from laptime.measure.ceilings import measure_ceilings
from laptime.measure.compiling import watching
from laptime.measure.machine import machine, with_ceilings
from laptime.optimizations.base import Parts
from laptime.optimizations.data import settle
from laptime.processes import leave
from laptime.records import ProbeRecord, write_json
from laptime.spec import DataSpec, OptimizationSpec, RunSpec

_ROUNDS = 5
# A step at a large batch takes long and varies less.
_LARGE_ROUNDS = 2
# Half the speed or less is no gain that more rounds or a larger batch could show: bf16 without instructions for it
# takes ten times as long, and minutes at a batch of 512.
_HOPELESS = 0.5
# Seconds of rounds that count after which none is begun: of steps of 20 s there would else be 48, 16 minutes.
_ENOUGH_S = 60.0
_SAMPLES = 128
# Seconds of one round after which no further step of it is begun.
_ROUND_S = 10.0
_ONLY = "--only="
_NEEDED_CAPABILITY = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0)}


def probe(workload: str, device: str, wanted: Collection[str] | None = None) -> ProbeRecord:
    """Measures ceilings and the gain of each optimization of the device's ladder that has a quick probe.

    Args:
        workload: which ladder's.
        device: that of the ladder.
        wanted: optimizations whose gain is of interest; None for all.
    """
    begin = time.perf_counter()
    machine()  # notes the load before the probe adds to it
    ceilings = measure_ceilings(find_device(device))
    gains: dict[str, float] = {}
    lacking = lacking_here() if device == "cuda" else emulated_here(device)
    # A GPU's matrix units are known by its generation; on a CPU only a trial tells.
    for rung in LADDERS.get(device, ()) if device == "cpu" else ():
        entry = find_optimization(rung_spec(rung).name)
        if wanted is not None and entry.name not in wanted:
            continue
        if entry.name in {*refused_of(workload), *lacking}:
            continue
        if entry.probe and not entry.probe_limit_s and entry.probe not in gains:
            found, failure = tried(workload, device, rung)
            gains |= found
            if failure and not found:
                lacking = {**lacking, entry.name: failure}
    return ProbeRecord(
        machine=with_ceilings(ceilings),
        gains=gains,
        refusals=lacking,
        seconds=time.perf_counter() - begin,
    )


def tried(workload: str, device: str, rung: str) -> tuple[dict[str, float], str]:
    """The gains of one rung by the batches of `places_of`, and why there are no more where a trial failed.

    A user's own net may hold an operation that has no kernel in bf16, or have no room for the large batch: that says
    something of the rung, and the ladder goes on without it.
    """
    chosen, before = rung_spec(rung), exact_before(workload, device, rung)
    gains: dict[str, float] = {}
    for key, batch in places_of(workload, device, find_optimization(chosen.name).probe or chosen.name):
        try:
            gains[key] = Trial(workload, before, chosen, batch).gain()
        except LaptimeError:
            raise
        except Exception as error:
            text = shorten(" ".join(str(error).split()), 200)
            return gains, f"a probe of it on this machine failed ({type(error).__name__}: {text})"
        if gains[key] <= _HOPELESS:
            break
    return gains, ""


def emulated_here(device: str) -> dict[str, str]:
    """What the current CPU can only emulate, by optimization: a few steps of a large net with it take a minute."""
    return dict.fromkeys(hopeless_here("", [o.name for o in OPTIMIZATIONS], device), EMULATED)


def lacking_here() -> dict[str, str]:
    """What the current GPU lacks, by optimization."""
    return lacks(torch.cuda.get_device_name(), torch.cuda.get_device_capability())


def lacks(name: str, capability: tuple[int, int]) -> dict[str, str]:
    """What a GPU of a compute capability lacks, by optimization (the table of features in NVIDIA's CUDA guide)."""
    return {
        optimization: (
            f"{name} has compute capability {capability[0]}.{capability[1]}, and matrix units for {optimization} "
            f"begin at {needed[0]}.{needed[1]}"
        )
        for optimization, needed in _NEEDED_CAPABILITY.items()
        if capability < needed
    }


def slow_probe(workload: str, device: str, rung: str, with_too: Sequence[str], result: Path) -> None:
    """Measures one rung whose probe takes long; what is known so far is written after each batch.

    Args:
        workload: which ladder's.
        device: that of the ladder.
        rung: one of the ladder's.
        with_too: numeric rungs before it that are to stand on both sides, since they would in the ladder.
        result: file of a ProbeRecord.
    """
    begin, chosen = time.perf_counter(), rung_spec(rung)
    before = combine(exact_before(workload, device, rung), *map(rung_spec, with_too))
    found = ProbeRecord(machine=machine())
    key_of = find_optimization(chosen.name).probe or chosen.name
    for key, batch in places_of(workload, device, key_of):
        with watching(True) as watch:
            gain = Trial(workload, before, chosen, batch).gain()
        assert watch is not None
        update = {"gains": {**found.gains, key: gain}, "costs_s": {**found.costs_s, key: watch.seconds}}
        found = found.model_copy(update={**update, "seconds": time.perf_counter() - begin})
        write_json(result, found)


def places_of(workload: str, device: str, key: str) -> list[tuple[str, int]]:
    """Where a probe measures: at the baseline's batch and at the ladder's large one, with the names of the gains."""
    large = large_batch_of(device)
    own = own_of(workload)
    if own is not None and own.own is not None:
        at_most = min(large, own.train_count) if large else 0
        # Where all samples are one batch, the large one is that again.
        more = [(f"{key}@{large}", at_most)] if at_most > own.own.batch_size else []
        return [(key, own.own.batch_size), *more]
    entry = find_workload(workload)
    larger = large if large and large > entry.batch_size and "large-batch" not in entry.refused else None
    return [(key, entry.probe_batch or entry.batch_size), *([(f"{key}@{larger}", larger)] if larger else [])]


def own_of(workload: str) -> DataSpec | None:
    """The data of a user's own workload; None for one of the catalogue."""
    return DataSpec.model_validate_json(workload) if workload.startswith("{") else None


def refused_of(workload: str) -> Collection[str]:
    """Optimizations that are not for a workload."""
    data = own_of(workload)
    own = data.own if data is not None else None
    refused: Collection[str] = own.refused if own is not None else find_workload(workload).refused
    return {*refused, *(o.name for o in OPTIMIZATIONS if o.workload not in ("", workload))}


def exact_before(workload: str, device: str, rung: str) -> tuple[OptimizationSpec, ...]:
    """What the exact rungs before one in its ladder come to."""
    return variants.exact_before(device, rung, workload, refused_of(workload))


@dataclass(frozen=True)
class Trial:
    """One optimization beside its absence, on the CPU: on a GPU no rung is tried before its ladder."""

    workload: str
    before: tuple[OptimizationSpec, ...]
    added: OptimizationSpec
    batch: int

    def gain(self) -> float:
        """Speed with the optimization over speed without.

        Both sides take steps in turn on random images, or on samples of the user's own; the ratio is that of the
        medians. The first round, with all that is done only once, does not count. One round that counts is enough where
        it shows as little as the first, or steps are long.
        """
        sides = [self._parts(chosen) for chosen in (self.before, combine(self.before, self.added))]
        times: list[list[float]] = [[], []]
        rounds = _ROUNDS if self.batch < _SAMPLES and not self._heavy else _LARGE_ROUNDS
        for _ in range(rounds + 1):
            for parts, seconds in zip(sides, times, strict=True):
                seconds.append(_steps_s(parts))
            hopeless = all(a <= b * _HOPELESS for a, b in zip(*times, strict=True))
            if len(times[0]) > 1 and (hopeless or sum(sum(t[1:]) for t in times) > _ENOUGH_S):
                break
        without, with_it = (median(t[1:]) for t in times)
        return without / with_it

    @property
    def _heavy(self) -> bool:
        """Whether few samples make a long step; of a workload of the user's own nobody knows."""
        return own_of(self.workload) is None and find_workload(self.workload).probe_batch is not None

    def _parts(self, chosen: tuple[OptimizationSpec, ...]) -> Parts:
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
            return build(make_recipe(spec, few, chosen), mark=lambda _: None)
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
        return build(make_recipe(spec, data, chosen), mark=lambda _: None)


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


def main(arguments: list[str]) -> int:
    """The command."""
    workload, device, result, *slow = arguments
    try:
        if slow and slow[0].startswith(_ONLY):
            names = [name for name in slow[0].removeprefix(_ONLY).split(",") if name]
            write_json(Path(result), probe(workload, device, names))
        elif slow:
            slow_probe(workload, device, slow[0], slow[1:], Path(result))
        else:
            write_json(Path(result), probe(workload, device))
    except LaptimeError as error:
        print(f"laptime.probe: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
