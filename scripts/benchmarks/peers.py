"""Epoch times of the plain script, laptime, Lightning and Accelerate at the same settings, interleaved in one go.

python scripts/benchmarks/peers.py --data DIR [--rounds 6] [--images 1000] [--epochs 2]

All sides train the same images in the same order from the same weights; where their losses part, the run ends. Each
warms up in another way, so all train one epoch more, and the first is left out. Writes docs/benchmarks/<date>-peers.md.
Needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from peer_runs import PEERS, peer_epochs

from laptime.compare.statistics import Bootstrap, Estimate, Laps, epoch_seconds
from laptime.data.order import limited
from laptime.devices import lock_name
from laptime.ladder.data import fetch_data
from laptime.ladder.request import make_request, make_spec
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.launchers.lock import device_lock
from laptime.places import find_places
from laptime.records import EpochRecord, Machine
from laptime.spec import DataSpec, RunSpec
from laptime.variants import resolve

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
_WARMING = 1  # epochs at the beginning of each process that are left out
_TEST_IMAGES = 10  # evaluation is outside of the time on all sides, and no part of this
# Freed memory stays with the process. What glibc does by itself depends on what a process freed before (docs/log.md).
KEPT = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"}
SETTINGS: dict[str, dict[str, str]] = {"equal malloc settings": KEPT, "as users run them": {}}
SIDES = ("plain script", "laptime", "Lightning", "Accelerate")
SCRIPTS = {"plain script": "tutorial", "Lightning": "lightning_script", "Accelerate": "accelerate_script"}
ALIKE = 1e-5
_TITLES = "| side | s an epoch | over the plain script | over laptime | loss at the end |"


@dataclass
class Bench:
    """What all sides train, and what they took: (setting, side) to the kept epochs of each round."""

    spec: RunSpec
    store: Path
    scratch: Path
    found: dict[tuple[str, str], list[tuple[EpochRecord, ...]]] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)

    def round(self, number: int) -> None:
        """Each side once under each setting; every other round in the opposite order."""
        turns = [(setting, side) for setting in SETTINGS for side in SIDES]
        for setting, side in reversed(turns) if number % 2 else turns:
            with environment(SETTINGS[setting]):
                epochs = self._laptime() if side == "laptime" else self._script(SCRIPTS[side])
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
        options = ["--device", self.spec.device, "--epochs", str(self.spec.epochs), "--seed", str(self.spec.seed)]
        with device_lock(lock_name(self.spec.device), lambda _: None):
            try:
                return peer_epochs([sys.executable, str(PEERS / f"{name}.py"), str(self.store), *options])
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name} ended with {error.returncode}: {error.stderr[-2000:]}")

    def check_losses(self) -> None:
        """Ends the bench where a side's losses are not those of the plain script."""
        for (setting, side), rounds in self.found.items():
            losses = [e.train_loss or math.nan for e in rounds[-1]]
            plain = [e.train_loss or math.nan for e in self.found[setting, SIDES[0]][-1]]
            if not np.allclose(losses, plain, rtol=ALIKE):
                sys.exit(f"{side} trained to losses {losses}, the plain script to {plain}: they are not alike.")

    def laps(self, setting: str, side: str) -> Laps:
        """A side's times as the comparison takes them."""
        rounds = self.found[setting, side]
        return Laps(side, tuple(range(len(rounds))), tuple(tuple(e.epoch_s for e in epochs) for epochs in rounds))


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


def cut_store(data: DataSpec, images: int, folder: Path) -> Path:
    """A store of the images that laptime keeps under such a limit, for scripts that take what is there."""
    source = Path(data.path)
    folder.mkdir()
    shutil.copy(source / "meta.json", folder)
    for split, count in (("train", images), ("test", _TEST_IMAGES)):
        labels = np.load(source / f"{split}_labels.npy")
        chosen = limited(labels, count) if count < len(labels) else slice(None)  # a limit of all is none
        np.save(folder / f"{split}_labels.npy", labels[chosen])
        np.save(folder / f"{split}_images.npy", np.load(source / f"{split}_images.npy", mmap_mode="r")[chosen])
    return folder


def page(bench: Bench, asked: argparse.Namespace) -> str:
    """The page in Markdown."""
    spec = bench.spec
    lines = [
        *heading("Beside the plain script, Lightning and Accelerate", bench.machine),
        f"`cifar` ({bench.spec.data.kind} data), ResNet-18, batch {spec.batch_size}, Adam, {asked.images} images, "
        f"{asked.epochs} epochs in each process after one that is left out, {asked.rounds} rounds in which all sides "
        "take turns. The same images in the same order from the same weights on all sides; no side is compiled or "
        "resident, none evaluates or writes a log within its epochs. Loss and hits are read in each step; Lightning's "
        "are handed to `self.log_dict` there and read when the epoch ends. Medians with 95 % intervals, ratios paired "
        "by round.",
    ]
    for setting in SETTINGS:
        lines += ["", f"## With {setting}" if setting != "as users run them" else "## As users run them", ""]
        lines += [_TITLES, "|---|---:|---:|---:|---:|", *_rows(bench, setting), "", *_goals(bench, setting)]
    lines += ["", f"Made by `scripts/bench peers --data DIR {_options(asked)}`."]
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
    draw = Bootstrap()
    laps = {side: bench.laps(setting, side) for side in SIDES}
    rows = []
    for side in SIDES:
        over = [shown(draw.ratio(laps[side], laps[other])) if side != other else "" for other in SIDES[:2]]
        loss = bench.found[setting, side][-1][-1].train_loss
        rows.append(f"| {side} | {epoch_seconds(laps[side]):.3f} | {over[0]} | {over[1]} | {loss:.6f} |")
    return rows


def _goals(bench: Bench, setting: str) -> list[str]:
    """What was promised, and whether the interval holds it, breaks it or leaves it open."""
    draw, laps = Bootstrap(), {side: bench.laps(setting, side) for side in SIDES}
    goals = (
        ("not above the plain script by more than 1 %", "laptime", "plain script", 1.01),
        ("faster than Lightning", "laptime", "Lightning", 1.0),
        ("not slower than Accelerate", "laptime", "Accelerate", 1.0),
    )
    return [f"- laptime is {name}: {_verdict(draw.ratio(laps[a], laps[b]), most)}" for name, a, b, most in goals]


def _verdict(found: Estimate, most: float) -> str:
    said = f"{shown(found)} of its time, {most:.2f} allowed"
    if found.low is None or found.high is None:
        return f"{said}; one round shows nothing."
    if found.high <= most:
        return f"yes ({said})."
    if found.low > most:
        return f"no ({said})."
    return f"{'likely' if found.point <= most else 'unlikely'}, the interval holds both ({said})."


def shown(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.point:.4f}"
    return f"{found.point:.4f} ({found.low:.4f} to {found.high:.4f})"


def _options(asked: argparse.Namespace) -> str:
    return f"--rounds {asked.rounds} --images {asked.images} --epochs {asked.epochs}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the page; default docs/benchmarks/<date>-peers.md")
    return parser.parse_args(arguments)


def main() -> None:
    """Measures and writes the page, and what it was made of beside the runs."""
    asked = parse()
    data = fetch_data("cifar", asked.data, find_places())
    request = make_request(
        preset="quick",
        device=asked.device,
        epochs=asked.epochs + _WARMING,
        limit_train=asked.images,
        limit_test=_TEST_IMAGES,
    )
    spec = make_spec(request, resolve(f"{asked.device}-baseline"), data, 1)  # only repeat 0 is checked and saved
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(spec, cut_store(data, asked.images, Path(scratch) / "store"), Path(scratch))
        for number in range(asked.rounds):
            bench.round(number)
            bench.check_losses()
    out = asked.out or DOCS / f"{time.strftime('%Y-%m-%d')}-peers.md"
    text = page(bench, asked)
    out.write_text(text, encoding="utf-8")
    times = {f"{a}, {b}": [[e.epoch_s for e in es] for es in rounds] for (a, b), rounds in bench.found.items()}
    sys.stdout.write(f"{text}\n{json.dumps(times)}\n")


if __name__ == "__main__":
    main()
