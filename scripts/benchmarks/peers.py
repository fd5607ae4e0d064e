"""Epoch times of the plain script, laptime, Lightning and Accelerate at the same settings, interleaved in one go.

python scripts/benchmarks/peers.py [--workload cifar|eurosat|detection] [--data DIR] [--rounds 6] [--images 1000]

All sides train the same images in the same order from the same weights; where their losses part, the run ends. Each
warms up in another way, so all train one epoch more, and the first is left out. Without --data they are the stand-in.
Writes docs/benchmarks/<date>[-<workload>]-peers.md. Needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
from goals import LAPTIME, PLAIN, SIDES, goal_lines, shown
from peer_data import SIZES, cut_store, settled, spec_for
from peer_runs import PEERS, peer_epochs

from laptime.catalogue import find_workload
from laptime.compare.statistics import Bootstrap, Estimate, Laps, epoch_seconds, mean_ratio
from laptime.devices import lock_name
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.launchers.lock import device_lock
from laptime.records import EpochRecord, Machine
from laptime.spec import RunSpec

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
_WARMING = 1  # epochs at the beginning of each process that are left out
# Freed memory stays with the process. What glibc does by itself depends on what a process freed before (docs/log.md).
KEPT = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"}
SETTINGS: dict[str, dict[str, str]] = {"equal malloc settings": KEPT, "as users run them": {}}
SCRIPTS = {PLAIN: "tutorial", "Lightning": "lightning_script", "Accelerate": "accelerate_script"}
ALIKE = 1e-5
STAND_IN = "synthetic"
_TITLES = "| side | s an epoch | over the plain script | loss at the end |"


@dataclass
class Bench:
    """What all sides train, and what they took: (setting, side) to the kept epochs of each round."""

    spec: RunSpec
    store: Path
    scratch: Path
    workers: int = 0
    found: dict[tuple[str, str], list[tuple[EpochRecord, ...]]] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)

    def round(self, number: int) -> None:
        """Each side once under each setting; every other round in the opposite order."""
        turns = [(setting, side) for setting in SETTINGS for side in SIDES]
        for setting, side in reversed(turns) if number % 2 else turns:
            with environment(SETTINGS[setting]):
                epochs = self._laptime() if side == LAPTIME else self._script(SCRIPTS[side])
            self.found.setdefault((setting, side), []).append(epochs[_WARMING:])
            times = ", ".join(f"{e.epoch_s:.3f}" for e in epochs)
            sys.stderr.write(f"round {number + 1}, {setting}, {side}: {times} s\n")

    def _laptime(self) -> tuple[EpochRecord, ...]:
        record = launch("process", self.spec, self.scratch / "run", Hooks())
        if record.status != "done":
            sys.exit(f"laptime: {record.error}")
        self.machine = record.machine
        return tuple(record.kept)

    def _script(self, name: str) -> tuple[EpochRecord, ...]:
        options = script_options(self.spec, self.workers)
        with device_lock(lock_name(self.spec.device), lambda _: None):
            try:
                return peer_epochs([sys.executable, str(PEERS / f"{name}.py"), str(self.store), *options])
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name} ended with {error.returncode}: {error.stderr[-2000:]}")

    def check_losses(self) -> None:
        """Ends the bench where a side's losses are not those of the plain script."""
        for (setting, side), rounds in self.found.items():
            losses = [e.train_loss or math.nan for e in rounds[-1]]
            plain = [e.train_loss or math.nan for e in self.found[setting, PLAIN][-1]]
            if not np.allclose(losses, plain, rtol=ALIKE):
                sys.exit(f"{side} trained to losses {losses}, the plain script to {plain}: they are not alike.")

    def laps(self, setting: str, side: str) -> Laps:
        """A side's times as the comparison takes them."""
        rounds = self.found[setting, side]
        return Laps(side, tuple(range(len(rounds))), tuple(tuple(e.epoch_s for e in epochs) for epochs in rounds))

    def over(self, setting: str) -> dict[str, Estimate]:
        """What laptime's epoch takes over each other side's: one ratio for each round, in which they took turns."""
        middle = {side: [median(epochs) for epochs in self.laps(setting, side).epochs] for side in SIDES}
        return {
            side: mean_ratio([ours / theirs for ours, theirs in zip(middle[LAPTIME], middle[side], strict=True)])
            for side in SIDES
            if side != LAPTIME
        }


def script_options(spec: RunSpec, workers: int = 0) -> list[str]:
    """What a script is told, so that it trains as a spec says."""
    options = ["--workload", spec.workload, "--device", spec.device, "--epochs", str(spec.epochs)]
    return [*options, "--seed", str(spec.seed), "--batch", str(spec.batch_size), "--workers", str(workers)]


@contextlib.contextmanager
def environment(added: dict[str, str]) -> Iterator[None]:
    """Variables for the processes that are started within."""
    before = dict(os.environ)
    for name in KEPT:
        os.environ.pop(name, None)
    os.environ.update(added)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def page(bench: Bench, asked: argparse.Namespace) -> str:
    """The page in Markdown."""
    spec, entry = bench.spec, find_workload(bench.spec.workload)
    lines = [
        *heading(f"Beside the plain script, Lightning and Accelerate: {entry.name}", bench.machine),
        f"`{entry.name}` ({spec.data.kind} data), {entry.title}, batch {spec.batch_size}, "
        f"{'SGD' if entry.sgd else 'Adam'}, {asked.workers} loader workers, {asked.images} images, "
        f"{asked.epochs} epochs in each process after one that is left out, {asked.rounds} rounds in which all sides "
        "take turns. The same images in the same order from the same weights on all sides, which trained to the same "
        f"losses (to {ALIKE:g} of them); no side is compiled or resident, none evaluates or writes a log within its "
        "epochs. Loss and hits are read in each step; Lightning's are handed to `self.log_dict` there and read when "
        "the epoch ends. Medians, and ratios of rounds, their mean with Student's 95 % interval.",
    ]
    for setting in SETTINGS:
        lines += ["", f"## With {setting}" if setting != "as users run them" else "## As users run them", ""]
        lines += [_TITLES, "|---|---:|---:|---:|", *_rows(bench, setting), "", *goal_lines(bench.over(setting))]
    lines += ["", f"Made by `scripts/bench peers {made_by(asked)}`."]
    return "\n".join(lines) + "\n"


def heading(title: str, machine: Machine) -> list[str]:
    """The beginning of a page: its title, the machine, versions, day and commit."""
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return [
        f"# {title}",
        "",
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.os}; Python {machine.python}, torch "
        f"{machine.torch}, lightning {version('lightning')}, accelerate {version('accelerate')}; "
        f"{time.strftime('%Y-%m-%d')}; commit {commit.stdout.strip()}.",
        "",
    ]


def _rows(bench: Bench, setting: str) -> list[str]:
    draw, plain = Bootstrap(), bench.laps(setting, PLAIN)
    rows = []
    for side in SIDES:
        laps, loss = bench.laps(setting, side), bench.found[setting, side][-1][-1].train_loss
        over = shown(draw.ratio(laps, plain)) if side != PLAIN else ""
        rows.append(f"| {side} | {epoch_seconds(laps):.3f} | {over} | {loss:.6f} |")
    return rows


def made_by(asked: argparse.Namespace) -> str:
    """The options that make the same again."""
    data = "" if asked.data == STAND_IN else "--data DIR "
    sizes = f"--rounds {asked.rounds} --images {asked.images} --epochs {asked.epochs} --batch {asked.batch}"
    return f"--workload {asked.workload} {data}{sizes} --workers {asked.workers}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=tuple(SIZES), default="cifar")
    parser.add_argument("--data", default=STAND_IN, help="as laptime's; default: the stand-in")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, help="default by workload: 1000, 32 and 4")
    parser.add_argument("--epochs", type=int, help="default: 2")
    parser.add_argument("--batch", type=int, help="default by workload: 32, 16 and 1")
    parser.add_argument("--workers", type=int, default=0, help="loader processes of each side")
    parser.add_argument("--out", type=Path, help="the page; default docs/benchmarks/<date>[-<workload>]-peers.md")
    return settled(parser.parse_args(arguments), parser)


def main() -> None:
    """Measures and writes the page, and what it was made of beside the runs."""
    asked = parse()
    spec = spec_for(asked, asked.epochs + _WARMING)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(spec, cut_store(spec, Path(scratch) / "store"), Path(scratch), asked.workers)
        for number in range(asked.rounds):
            bench.round(number)
            bench.check_losses()
    name = "" if asked.workload == "cifar" else f"-{asked.workload}"
    out = asked.out or DOCS / f"{time.strftime('%Y-%m-%d')}{name}-peers.md"
    text = page(bench, asked)
    out.write_text(text, encoding="utf-8")
    times = {f"{a}, {b}": [[e.epoch_s for e in es] for es in rounds] for (a, b), rounds in bench.found.items()}
    sys.stdout.write(f"{text}\n{json.dumps(times)}\n")


if __name__ == "__main__":
    main()
