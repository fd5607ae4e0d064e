"""A few seconds on this machine before a ladder: its ceilings, and whether rungs that can lose would gain.

python -m laptime.preflight.probe WORKLOAD DEVICE RESULT.json [--only=NAME,...]  quick probes, of some optimizations
python -m laptime.preflight.probe WORKLOAD DEVICE RESULT.json RUNG [NUMERIC RUNG...]  one rung with a long probe

WORKLOAD is a name in the catalogue, or the DataSpec of a workload of the user's own as JSON. Where the ladder trains on
fewer samples than there are, `--limit=N` stands behind the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from laptime.devices import EMULATED, hopeless_here
from laptime.engine.build import find_device
from laptime.engine.trial import HOPELESS, Trial, own_of
from laptime.errors import LaptimeError
from laptime.host.output import say_error
from laptime.host.processes import leave
from laptime.measure.ceilings import measure_ceilings
from laptime.measure.compiling import watching
from laptime.measure.machine import machine, with_ceilings
from laptime.records import LEAST_GAIN, ProbeRecord, write_json
from laptime.spec import OptimizationSpec

_ONLY, _LIMIT = "--only=", "--limit="
_NEEDED_CAPABILITY = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0)}


def probe(workload: str, device: str, wanted: Collection[str] | None = None, limit: int | None = None) -> ProbeRecord:
    """Measures ceilings and the gain of each optimization of the device's ladder that has a quick probe.

    Args:
        workload: which ladder's.
        device: that of the ladder.
        wanted: optimizations whose gain is of interest; None for all.
        limit: training samples of the ladder; None for all.
    """
    begin = time.perf_counter()
    machine()  # notes the load before the probe adds to it
    ceilings = measure_ceilings(find_device(device))
    found = ProbeRecord()
    lacking = lacking_here() if device == "cuda" else emulated_here(device)
    # A GPU's matrix units are known by its generation; on a CPU only a trial tells.
    for rung in LADDERS.get(device, ()) if device == "cpu" else ():
        entry = find_optimization(rung_spec(rung).name)
        if wanted is not None and entry.name not in wanted:
            continue
        if entry.name in {*refused_of(workload), *lacking}:
            continue
        if entry.probe and not entry.probe_limit_s and entry.probe not in found.gains:
            more, failure = tried(workload, device, rung, limit)
            if failure and not more.gains:
                lacking = {**lacking, entry.name: failure}
            found = found.with_measured(more)
    update = {"machine": with_ceilings(ceilings), "refusals": lacking, "seconds": time.perf_counter() - begin}
    return found.model_copy(update=update)


def tried(workload: str, device: str, rung: str, limit: int | None = None) -> tuple[ProbeRecord, str]:
    """The gains of one rung by the batches of `places_of`, and why there are no more where a trial failed.

    A user's own net may hold an operation that has no kernel in bf16, or have no room for the large batch: that says
    something of the rung, and the ladder goes on without it.
    """
    chosen, before = rung_spec(rung), exact_before(workload, device, rung)
    entry = find_optimization(chosen.name)
    partner = "" if entry.probe_with in refused_of(workload) else entry.probe_with
    found = ProbeRecord()
    for key, batch in places_of(workload, device, entry.probe or chosen.name, limit):
        trial = Trial(workload, before, chosen, batch)
        try:
            gain, stood = _gain(trial, partner)
        except LaptimeError:
            raise
        except (Exception, SystemExit) as error:  # whatever a user's code raises
            failure = f"a probe of it on this machine failed: {trial.told(error)}"
            return found, failure
        more = ProbeRecord(gains={key: gain}, batches={key: batch}, beside={key: stood} if stood else {})
        found = found.with_measured(more)
        if gain <= HOPELESS:
            break
    return found, ""


def _gain(trial: Trial, partner: str) -> tuple[float, str]:
    """The gain that decides, and what stood on both sides where that is not the rung by itself.

    The ladder ends with the partner, so beside it a rung has to gain: bf16 may be faster than convolutions in fp32 and
    slower than the products in fp32 that replace them.
    """
    if not partner:
        return trial.gain(), ""
    beside = replace(trial, before=combine(trial.before, rung_spec(partner))).gain()
    alone = trial.gain() if beside >= LEAST_GAIN else 0.0
    return (alone, "") if alone >= LEAST_GAIN else (beside, partner)


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


def slow_probe(what: tuple[str, str, str], with_too: Sequence[str], result: Path, limit: int | None = None) -> None:
    """Measures one rung whose probe takes long; what is known so far is written after each batch.

    Args:
        what: workload and device of the ladder, and one of its rungs.
        with_too: numeric rungs before it that are to stand on both sides, since they would in the ladder.
        result: file of a ProbeRecord.
        limit: training samples of the ladder; None for all.
    """
    (workload, device, rung), begin = what, time.perf_counter()
    chosen = rung_spec(rung)
    before = combine(exact_before(workload, device, rung), *map(rung_spec, with_too))
    found = ProbeRecord(machine=machine())
    key_of = find_optimization(chosen.name).probe or chosen.name
    for key, batch in places_of(workload, device, key_of, limit):
        with watching(True) as watch:
            assert watch is not None
            gain = Trial(workload, before, chosen, batch).gain(partial(getattr, watch, "events"))
        more = ProbeRecord(gains={key: gain}, batches={key: batch}, costs_s={key: watch.seconds})
        found = found.with_measured(more).model_copy(update={"seconds": time.perf_counter() - begin})
        write_json(result, found)


def places_of(workload: str, device: str, key: str, limit: int | None = None) -> list[tuple[str, int]]:
    """Where a probe measures: at the baseline's batch and at the ladder's large one, with the names of the gains.

    The large one is tried as the ladder can have it: all samples at most. A gain keeps the name of the whole one.
    """
    named, larger = f"{key}@{large_batch_of(device)}", large_batch_of(device, limit) or 0
    own = own_of(workload)
    if own is not None and own.own is not None:
        larger, usual, first = min(larger, own.train_count), own.own.batch_size, own.own.batch_size
    else:
        entry = find_workload(workload)
        usual, first = entry.batch_size, entry.probe_batch or entry.batch_size
        larger = 0 if "large-batch" in entry.refused else larger
    # Where all samples are one batch, the large one is that again.
    return [(key, first), *([(named, larger)] if larger > usual else [])]


def refused_of(workload: str) -> Collection[str]:
    """Optimizations that are not for a workload."""
    data = own_of(workload)
    own = data.own if data is not None else None
    refused: Collection[str] = own.refused if own is not None else find_workload(workload).refused
    return {*refused, *(o.name for o in OPTIMIZATIONS if o.workload not in ("", workload))}


def exact_before(workload: str, device: str, rung: str) -> tuple[OptimizationSpec, ...]:
    """What the exact rungs before one in its ladder come to."""
    return variants.exact_before(device, rung, workload, refused_of(workload))


def main(arguments: list[str]) -> int:
    """The command."""
    workload, device, result, *slow = arguments
    limit = int(slow.pop(0).removeprefix(_LIMIT)) if slow and slow[0].startswith(_LIMIT) else None
    try:
        if slow and slow[0].startswith(_ONLY):
            names = [name for name in slow[0].removeprefix(_ONLY).split(",") if name]
            write_json(Path(result), probe(workload, device, names, limit))
        elif slow:
            slow_probe((workload, device, slow[0]), slow[1:], Path(result), limit)
        else:
            write_json(Path(result), probe(workload, device, limit=limit))
    except LaptimeError as error:
        say_error(f"laptime.preflight.probe: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
