"""A few seconds on this machine before a ladder: its ceilings, and whether rungs that can lose would gain.

python -m laptime.probe WORKLOAD DEVICE RESULT.json
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

import torch

from laptime.catalogue import LADDERS, OPTIMIZATIONS, find_optimization, find_workload
from laptime.data.tensors import ImageData, Split
from laptime.engine.build import build, find_device, make_recipe
from laptime.errors import LaptimeError
from laptime.measure.ceilings import measure_ceilings
from laptime.measure.machine import machine, with_ceilings
from laptime.optimizations.base import Parts
from laptime.processes import die_with_parent
from laptime.records import ProbeRecord, write_json
from laptime.spec import DataSpec, OptimizationSpec, RunSpec

_ROUNDS = 5
_SAMPLES = 128
_CLASSES = 10
_NEEDED_CAPABILITY = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0)}


def probe(workload: str, device: str) -> ProbeRecord:
    """Measures ceilings and the gain of each optimization of the device's ladder that has a probe."""
    begin = time.perf_counter()
    machine()  # notes the load before the probe adds to it
    ceilings = measure_ceilings(find_device(device))
    lacking = lacking_here() if device == "cuda" else {}
    # A GPU's matrix units are known by its generation; on a CPU only a trial tells.
    probed = [o.name for o in OPTIMIZATIONS if o.probe and o.name in LADDERS.get(device, ()) and device == "cpu"]
    gains = {name: gain(workload, device, name) for name in probed}
    seconds = time.perf_counter() - begin
    return ProbeRecord(machine=with_ceilings(ceilings), gains=gains, lacking=lacking, seconds=seconds)


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


def gain(workload: str, device: str, name: str) -> float:
    """Speed with an optimization over speed without, on top of the exact rungs before it.

    Both sides take steps in turn on random images; the ratio is that of the medians.
    """
    rungs = LADDERS[device]
    before = tuple(r for r in rungs[: rungs.index(name)] if find_optimization(r).klass == "exact")
    sides = [_parts(workload, chosen) for chosen in (before, (*before, name))]
    times: list[list[float]] = [[], []]
    for _ in range(_ROUNDS + 1):
        for parts, seconds in zip(sides, times, strict=True):
            seconds.append(_steps_s(parts))
    without, with_it = (median(t[1:]) for t in times)
    return without / with_it


def _parts(workload: str, chosen: tuple[str, ...]) -> Parts:
    entry = find_workload(workload)
    data = _random_data(entry.image_size)
    spec = RunSpec(
        workload=workload,
        variant="probe",
        data=DataSpec(
            asked="probe",
            kind="synthetic",
            digest="",
            path="",
            classes=data.classes,
            train_count=_SAMPLES,
            test_count=0,
        ),
        batch_size=entry.batch_size,
        learning_rate=entry.learning_rate,
    )
    recipe = make_recipe(spec, data, tuple(OptimizationSpec(name=n) for n in chosen))
    return build(recipe, mark=lambda _: None)


def _random_data(size: int) -> ImageData:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (_SAMPLES, size, size, 3), dtype=torch.uint8, generator=generator)
    labels = torch.arange(_SAMPLES) % _CLASSES
    split = Split(images, labels)
    names = tuple(str(c) for c in range(_CLASSES))
    return ImageData(train=split, test=split, classes=names, mean=(0.5,) * 3, std=(0.25,) * 3)


def _steps_s(parts: Parts) -> float:
    begin = time.perf_counter()
    for batch in parts.loader.epoch(0):
        parts.step(parts, batch)
    if parts.device.type == "cuda":
        torch.cuda.synchronize(parts.device)  # waits for the device
    return time.perf_counter() - begin


def main(arguments: list[str]) -> int:
    """The command."""
    die_with_parent()
    workload, device, result = arguments
    try:
        write_json(Path(result), probe(workload, device))
    except LaptimeError as error:
        print(f"laptime.probe: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
