"""What DDP costs one rank and brings two: one rank step by step (see ddp_steps), two by whole processes, in turn.

Exits with 1 where the median step of a world of one is more than 2 % above that without DDP.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from statistics import median

from ddp_steps import BLOCKS, WARM, built, group_of_one, measured, table, verdicts

from laptime.catalogue import DEVICES, find_optimization
from laptime.devices import lock_name
from laptime.engine.build import open_data
from laptime.errors import UsageError
from laptime.ladder.data import fetch_data
from laptime.ladder.request import make_request, make_spec
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.launchers.lock import device_lock
from laptime.places import find_places
from laptime.spec import DataSpec, RunSpec
from laptime.variants import resolve

# What a timing could choose is fixed, so that all sides train the same layers.
_FIXED = "products:layers=none"


def names(device: str) -> tuple[str, str]:
    """The optimized variant of a device, and how those on several of them begin."""
    return ("cpu-optimized", "cpu-ddp") if device == "cpu" else ("cuda-optimized", "ddp")


def one_rank(asked: argparse.Namespace, stored: DataSpec) -> RunSpec:
    """What all sides of the world of one train: DDP's list without the exchange, for as many epochs as turns take.

    On a CPU in fp32: bf16 that is emulated would take most of each step, and hide what DDP takes.
    """
    images = min(asked.images, stored.train_count)
    epochs = math.ceil((WARM + asked.turns) / max(1, images // asked.batch))
    request = make_request(preset="quick", device=asked.device, epochs=epochs, limit_train=images, limit_test=10)
    name = f"{names(asked.device)[1]}-plain+{_FIXED}+large-batch:size={asked.batch}+ddp:ranks=1"
    spec = make_spec(request, resolve(name, ("bf16",) if asked.device == "cpu" else ()), stored, 1)
    kept = tuple(o for o in spec.optimizations if find_optimization(o.name).stage != "parallel")
    return spec.model_copy(update={"optimizations": kept})


def sides(device: str, images: int, epochs: int, data: str) -> list[tuple[str, str, RunSpec]]:
    """Name, launcher and spec of each whole process; one with more ranks than devices is left out, and said to be."""
    best, several = names(device)
    stored = fetch_data("cifar", data, find_places())
    request = make_request(preset="quick", device=device, epochs=epochs, limit_train=images, limit_test=10)
    asked = [("no ddp", "process", best), ("two ranks, tuned", "torchrun", f"{several}-tuned+ddp:ranks=2:tuned=true")]
    # A repeat above 0 leaves out the check, which would only take time here.
    specs = []
    for name, launcher, variant in asked:
        try:
            specs.append((name, launcher, make_spec(request, resolve(f"{variant}+{_FIXED}"), stored, 1)))
        except UsageError as error:
            sys.stderr.write(f"{name}: left out. {error}\n")
    assert all(DEVICES[device] == spec.device for _, _, spec in specs)
    return specs


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def step_by_step(asked: argparse.Namespace) -> bool:
    """Prints what DDP costs one rank; whether it is within what is allowed."""
    spec = one_rank(asked, fetch_data("cifar", asked.data, find_places()))
    with device_lock(lock_name(asked.device), _say), group_of_one(asked.device) as group:
        found = measured(built(spec, open_data(spec), group), asked.turns)
    said, within = verdicts(found)
    how = f"ResNet-18, {spec.data.kind} data, batch {asked.batch}, {asked.turns} turns in {BLOCKS} blocks"
    sys.stdout.write("\n".join([*table(found), "", f"{how}.", *said, ""]) + "\n")
    return within


def by_processes(asked: argparse.Namespace) -> None:
    """Prints what two ranks bring, by whole processes in turn."""
    compared = sides(asked.device, asked.images, asked.epochs, asked.data)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(asked.rounds):
            for name, launcher, spec in compared if number % 2 else reversed(compared):
                record = launch(launcher, spec, Path(scratch) / "run", Hooks())
                if record.status != "done":
                    sys.exit(f"{name}: {record.error}")
                found.setdefault(name, []).append(median(e.epoch_s for e in record.kept))
                sys.stderr.write(f"round {number + 1}, {name}: {found[name][-1]:.3f} s\n")
    sys.stdout.write("| by whole processes | s/epoch | over no ddp, median of rounds |\n| --- | ---: | ---: |\n")
    for name, times in found.items():
        over = median(t / w for t, w in zip(times, found["no ddp"], strict=True))
        sys.stdout.write(f"| {name} | {median(times):.3f} | {over:.3f} |\n")


def main() -> None:
    """Prints both as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--turns", type=int, default=400, help="one step of each side; at least as many as blocks")
    parser.add_argument("--batch", type=int, default=128, help="of one rank, step by step")
    parser.add_argument("--rounds", type=int, default=7, help="of whole processes; 0 for none")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3, help="of whole processes")
    asked = parser.parse_args()
    if asked.turns < BLOCKS:
        parser.error(f"--turns {asked.turns} is too few: give at least {BLOCKS}")
    within = step_by_step(asked)
    if asked.rounds:
        by_processes(asked)
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
