"""What DDP costs one rank and brings two: the same list without it, on one rank and on two, in turn."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from laptime.catalogue import DEVICES
from laptime.errors import UsageError
from laptime.ladder.data import fetch_data
from laptime.ladder.request import make_request, make_spec
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.places import find_places
from laptime.spec import RunSpec
from laptime.variants import resolve

_MOST_OF_ONE = 1.02


def sides(device: str, images: int, epochs: int, data: str) -> list[tuple[str, str, RunSpec]]:
    """Name, launcher and spec of each side; one whose ranks this machine does not hold is left out, and said to be."""
    best, several = ("cpu-optimized", "cpu-ddp") if device == "cpu" else ("cuda-optimized", "ddp")
    stored = fetch_data("cifar", data, find_places())
    request = make_request(preset="quick", device=device, epochs=epochs, limit_train=images, limit_test=10)
    # One rank under torch's launcher has a process group and a wrapper; under `process` it would have neither.
    asked = [
        ("no ddp", "process", best),
        ("one rank, plain", "torchrun", f"{several}-plain+ddp:ranks=1"),
        ("one rank, tuned", "torchrun", f"{several}-tuned+ddp:ranks=1:tuned=true"),
        ("two ranks, tuned", "torchrun", f"{several}-tuned+ddp:ranks=2:tuned=true"),
    ]
    # A repeat above 0 leaves out the check, which would only take time here. What a timing could choose is fixed, so
    # that all sides train the same layers.
    specs = []
    for name, launcher, variant in asked:
        try:
            specs.append((name, launcher, make_spec(request, resolve(f"{variant}+products:layers=none"), stored, 1)))
        except UsageError as error:
            sys.stderr.write(f"{name}: left out. {error}\n")
    assert all(DEVICES[device] == spec.device for _, _, spec in specs)
    return specs


def main() -> None:
    """Prints medians and ratios as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        compared = sides(asked.device, asked.images, asked.epochs, asked.data)
        for number in range(asked.rounds):
            for name, launcher, spec in compared if number % 2 else reversed(compared):
                record = launch(launcher, spec, Path(scratch) / "run", Hooks())
                if record.status != "done":
                    sys.exit(f"{name}: {record.error}")
                found.setdefault(name, []).append(median(e.epoch_s for e in record.kept))
                sys.stderr.write(f"round {number + 1}, {name}: {found[name][-1]:.3f} s\n")
    without = found["no ddp"]
    sys.stdout.write("| side | s/epoch | over no ddp, median of rounds |\n| --- | ---: | ---: |\n")
    for name, times in found.items():
        ratio = median(t / w for t, w in zip(times, without, strict=True))
        sys.stdout.write(f"| {name} | {median(times):.3f} | {ratio:.3f} |\n")
    for name in (n for n in found if n.startswith("one")):
        cost = median(t / w for t, w in zip(found[name], without, strict=True))
        verdict = "within" if cost <= _MOST_OF_ONE else "above"
        sys.stdout.write(f"\n{name}: {cost - 1:+.1%}, {verdict} the {_MOST_OF_ONE - 1:.0%} that are allowed.\n")


if __name__ == "__main__":
    main()
