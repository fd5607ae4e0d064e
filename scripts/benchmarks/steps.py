"""Step times of the plain script, laptime, Lightning and Accelerate, one step of each in turn.

python scripts/benchmarks/steps.py [--data DIR] [--rounds 6] [--images 2000] [--epochs 3]

What `peers` measures by whole epochs drowns in a shared machine's noise, which changes within seconds. Here all sides
train at once and wait before each step until it is theirs, so that the same tenth of a second hits all. A step runs
from one fetch of a batch to the next. Each round starts new processes; its figure is the median over its steps of one
side's time over the other's in the same turn. Writes docs/benchmarks/<date>-steps.md; exits with 1 where the interval
says that a goal is missed: laptime over the plain script at most 1.01, over Lightning below 1, over Accelerate at most
1. Without --data the images are the stand-in. Needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from goals import LAPTIME, PLAIN, SIDES, goal_lines, missed, shown
from peer_data import cut_store, settled, spec_for
from peer_runs import PEERS
from peers import ALIKE, KEPT, SCRIPTS, STAND_IN, heading, script_options

from laptime.compare.statistics import Estimate, mean_ratio
from laptime.devices import lock_name
from laptime.launchers.lock import device_lock
from laptime.records import Machine, read_record, write_json
from laptime.spec import RunSpec

sys.path.insert(0, str(PEERS))
from turns import ENDS, STEP

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
_LEAST = 20  # turns of a round that all sides have
# Each side over the plain script, and laptime over each.
_PAIRS = tuple(dict.fromkeys((*((side, PLAIN) for side in SIDES), *((LAPTIME, side) for side in SIDES))))


@dataclass
class Peer:
    """A process that waits for its turns.

    Attributes:
        at: the epoch and step that come next; None once it has ended.
    """

    side: str
    process: subprocess.Popen[str]
    go: int
    said: int
    at: tuple[int, int] | None = None

    def hear(self) -> None:
        """Waits until it is before a step, or has ended."""
        message = os.read(self.said, STEP.size)
        self.at = STEP.unpack(message) if message else None

    def step(self) -> float | None:
        """Gives it its turn; seconds of the step, None of one that has more in it than a step (an epoch's last)."""
        before = self.at
        if before is None:
            return None
        begin = time.perf_counter()
        os.write(self.go, b".")
        self.hear()
        seconds = time.perf_counter() - begin
        return seconds if self.at == (before[0], before[1] + 1) else None

    def end(self) -> None:
        """Ends it in every case."""
        for descriptor in (self.go, self.said):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class Bench:
    """What all sides train, and what a step of each took over the plain script's, and laptime's over each, by round."""

    spec: RunSpec
    store: Path
    scratch: Path
    times: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    turns: list[int] = field(default_factory=list)
    machine: Machine = field(default_factory=Machine)

    def round(self, number: int) -> None:
        """New processes of all sides, their steps in turn, in an order drawn for each turn."""
        choice = random.Random(number)  # noqa: S311 - not for secrets
        with ExitStack() as held:
            peers = [held.enter_context(self._started(side)) for side in SIDES]
            for peer in peers:
                peer.hear()
            found = [turn for turn in _turns(peers, choice) if None not in turn.values()]
            codes = {peer.side: peer.process.wait() for peer in peers}
        self._check(codes)
        if len(found) < _LEAST:
            sys.exit(f"round {number + 1} has {len(found)} turns that all sides share: give more --images or --epochs.")
        self.turns.append(len(found))
        for side in SIDES:
            self.times.setdefault(side, []).append(median(turn[side] for turn in found))
        for one, other in _PAIRS:
            self.ratios.setdefault((one, other), []).append(median(turn[one] / turn[other] for turn in found))
        times = ", ".join(f"{side} {1000 * self.times[side][-1]:.1f} ms" for side in SIDES)
        sys.stderr.write(f"round {number + 1}, {len(found)} turns: {times}\n")

    @contextlib.contextmanager
    def _started(self, side: str) -> Iterator[Peer]:
        (read, go), (said, write) = os.pipe(), os.pipe()
        # Threads that spin after their work would take the next side's core.
        added = {ENDS: f"{read},{write}", "OMP_WAIT_POLICY": "passive", **KEPT}
        with self._log(side).open("w") as log:
            process = subprocess.Popen(
                self._command(side),
                stdout=log,
                stderr=log,
                pass_fds=(read, write),
                env={**os.environ, **added},
                text=True,
            )
        os.close(read)
        os.close(write)
        peer = Peer(side, process, go, said)
        try:
            yield peer
        finally:
            peer.end()

    def _command(self, side: str) -> list[str]:
        if side == "laptime":
            folder = self.scratch / "run"
            folder.mkdir(exist_ok=True)
            write_json(folder / "spec.json", self.spec)
            return [sys.executable, str(PEERS / "laptime_steps.py"), str(folder / "spec.json"), str(self._record)]
        return [sys.executable, str(PEERS / f"{SCRIPTS[side]}.py"), str(self.store), *script_options(self.spec)]

    @property
    def _record(self) -> Path:
        return self.scratch / "run" / "record.json"

    def _log(self, side: str) -> Path:
        return self.scratch / f"{side.replace(' ', '-')}.txt"

    def _check(self, codes: dict[str, int]) -> None:
        """Ends the bench where a side failed, or trained to other losses than the plain script."""
        for side, code in codes.items():
            if code:
                sys.exit(f"{side} ended with {code}: {self._log(side).read_text()[-2000:]}")
        record = read_record(self._record)
        self.machine = record.machine
        losses = {"laptime": [e.train_loss or math.nan for e in record.epochs]}
        for side in SCRIPTS:
            lines = [line for line in self._log(side).read_text().splitlines() if line.startswith("{")]
            losses[side] = [json.loads(line)["train_loss"] for line in lines]
        for side, found in losses.items():
            if not np.allclose(found, losses[PLAIN], rtol=ALIKE):
                sys.exit(f"{side} trained to losses {found}, the plain script to {losses[PLAIN]}: not alike.")

    def ratio(self, side: str, other: str) -> Estimate:
        """A side's step over another's, with Student's 95 % interval over the rounds."""
        return mean_ratio(self.ratios[side, other])

    def over(self) -> dict[str, Estimate]:
        """What laptime's step takes over each other side's."""
        return {side: self.ratio(LAPTIME, side) for side in SIDES if side != LAPTIME}


def _turns(peers: list[Peer], choice: random.Random) -> Iterator[dict[str, float | None]]:
    """Gives turns until every process has ended; seconds of each side's step."""
    while any(peer.at for peer in peers):
        order = choice.sample(peers, len(peers))
        yield {peer.side: peer.step() for peer in order}


def page(bench: Bench, asked: argparse.Namespace) -> str:
    """The page in Markdown."""
    lines = heading("Step by step beside the plain script, Lightning and Accelerate", bench.machine)
    lines += [
        f"`cifar` ({bench.spec.data.kind} data), ResNet-18, batch {bench.spec.batch_size}, Adam. Four processes take "
        "one step each in turn, in an order drawn anew for each turn, so that what others do on the machine hits all "
        "alike; the same images in the same order from the same weights, and the same losses at the end. A step runs "
        f"from one fetch to the next. {len(bench.turns)} rounds of new processes, {min(bench.turns)} turns or more in "
        "each; ratios are medians over a round's turns, their mean over rounds with Student's 95 % interval. "
        "Equal malloc settings, threads that sleep when idle.",
        "",
        "| side | ms a step | over the plain script |",
        "|---|---:|---:|",
    ]
    for side in SIDES:
        over = shown(bench.ratio(side, PLAIN)) if side != PLAIN else ""
        lines.append(f"| {side} | {1000 * median(bench.times[side]):.1f} | {over} |")
    data = "" if asked.data == STAND_IN else "--data DIR "
    lines += ["", *goal_lines(bench.over()), "", f"Made by `scripts/bench steps {data}{_options(asked)}`."]
    return "\n".join(lines) + "\n"


def _options(asked: argparse.Namespace) -> str:
    return f"--rounds {asked.rounds} --images {asked.images} --epochs {asked.epochs}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=STAND_IN, help="as laptime's; default: the stand-in")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the page; default docs/benchmarks/<date>-steps.md")
    parser.set_defaults(workload="cifar", device="cpu", batch=None, workers=0)  # what `peers` lets choose
    return settled(parser.parse_args(arguments), parser)


def main() -> int:
    """Measures, writes the page and says which goals are missed; the exit code."""
    asked = parse()
    spec = spec_for(asked, asked.epochs)
    with tempfile.TemporaryDirectory() as name, device_lock(lock_name("cpu"), lambda _: None):
        bench = Bench(spec, cut_store(spec, Path(name) / "store"), Path(name))
        for number in range(asked.rounds):
            bench.round(number)
    text = page(bench, asked)
    (asked.out or DOCS / f"{time.strftime('%Y-%m-%d')}-steps.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    past = missed(bench.over())
    sys.stderr.write("".join(f"{sentence}\n" for sentence in past))
    return 1 if past else 0


if __name__ == "__main__":
    sys.exit(main())
