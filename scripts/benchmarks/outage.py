"""What a tracking server that is away, or never answers, costs an epoch: ladders with it and without it, in turn."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

import psutil
from goals import shown
from mlflow_server import MlflowServer
from outage_within import table

from laptime.compare.statistics import Bootstrap, Laps, epoch_seconds
from laptime.records import RunRecord, read_record

_HERE = "there"
_LOOK_EVERY_S = 0.5
_ALLOWED = 0.005


@dataclass(frozen=True)
class Used:
    """CPU seconds: of the ladder's parent, of all but the training, and taken by the machine's host."""

    parent: float
    others: float
    stolen: float


Samples = list[tuple[float, Used]]


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, str]]:
    """A tracking URI for each state: one that answers, one where nobody listens, one that takes calls and is silent."""
    with ExitStack() as held:
        folder.mkdir()
        mlflow = MlflowServer(folder)
        held.callback(mlflow.kill)
        mlflow.start()
        silent = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        yield {
            _HERE: mlflow.uri,
            "away": f"http://127.0.0.1:{nobody}",
            "silent": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }


def ladder_command(asked: argparse.Namespace) -> list[str]:
    """A ladder of the baseline alone, but for its folder, its epochs and its tracking server."""
    command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--data", asked.data, "--repeats", "1"]
    command += ["--variants", "cpu-baseline", "--profile", "none", "--limit-test", "100"]
    return [*command, "--limit-train", str(asked.images)]


def ladder(asked: argparse.Namespace, uri: str, folder: Path) -> tuple[RunRecord, Samples]:
    """Runs a ladder of one variant; its record, and what CPU its parent had used at which moment, both in seconds."""
    command = [*ladder_command(asked), "--out", str(folder), "--epochs", str(asked.epochs), "--tracking-uri", uri]
    samples: Samples = []
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None:
            samples.append((time.time(), used(process.pid)))
            time.sleep(_LOOK_EVERY_S)
    record = read_record(folder / "cpu-baseline-0" / "record.json")
    if record.status != "done":
        sys.exit(f"the ladder in {folder} failed: {record.error}")
    return record, samples


def used(pid: int) -> Used:
    """What has been used by now; the training is the parent's children, whatever they do."""
    parent, machine = psutil.Process(pid), psutil.cpu_times()
    training = 0.0
    for child in parent.children(recursive=True):
        try:
            training += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq
    return Used(sum(parent.cpu_times()[:2]), busy - training, machine.steal)


def shares(record: RunRecord, samples: Samples) -> Used:
    """What was used within the counted epochs and their evaluations, as shares of one core."""
    first, last = record.epochs[0], record.epochs[-1]
    assert first.ended_at is not None
    assert last.ended_at is not None
    begin, end = first.ended_at - first.epoch_s - (first.evaluate_s or 0.0), last.ended_at
    moments = [at for at, _ in samples]
    inside = samples[bisect(moments, begin) : bisect(moments, end)]
    if len(inside) < 2:
        sys.exit("the epochs were over before the parent's CPU was looked at twice: give more --images or --epochs.")
    (began, before), (ended, after) = inside[0], inside[-1]
    return Used(*((b - a) / (ended - began) for a, b in zip(astuple(before), astuple(after), strict=True)))


def shares_shown(values: list[float]) -> str:
    """Median and most."""
    return f"{median(values):.2%} ({max(values):.2%})"


Found = dict[str, list[tuple[tuple[float, ...], Used]]]


def laps(found: Found, state: str) -> Laps:
    """The epochs of a state, by round."""
    return Laps(state, tuple(range(len(found[state]))), tuple(times for times, _ in found[state]))


def main() -> None:
    """Prints medians, ratios and what they show as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--within", type=int, metavar="TURNS", help="three epochs of one training each instead")
    asked = parser.parse_args()
    if asked.within:
        with tempfile.TemporaryDirectory() as name:
            os.environ["LAPTIME_HOME"] = str(Path(name) / "home")
            sys.stdout.write(table(ladder_command(asked), asked.within, Path(name)))
        return
    found: Found = {}
    with tempfile.TemporaryDirectory() as name, servers(Path(name) / "mlflow") as uris:
        os.environ["LAPTIME_HOME"] = str(Path(name) / "home")
        for number in range(asked.rounds):
            turns = list(uris.items())
            for state, uri in turns[number % 3 :] + turns[: number % 3]:
                record, samples = ladder(asked, uri, Path(name) / f"{number}-{state}")
                times, share = tuple(e.epoch_s for e in record.kept), shares(record, samples)
                found.setdefault(state, []).append((times, share))
                sys.stderr.write(
                    f"round {number + 1}, {state}: {median(times):.3f} s, parent {share.parent:.2%}, "
                    f"all but the training {share.others:.2%}, stolen {share.stolen:.2%}\n"
                )
    draw, there = Bootstrap(), laps(found, _HERE)
    sys.stdout.write(
        "CPU is that of the counted epochs, in shares of one core: medians over rounds, the most in parentheses.\n\n"
    )
    sys.stdout.write(
        "| tracking server | s/epoch | over one with it there (95 %) | CPU of the parent | of all but the training "
        "| stolen |\n"
    )
    sys.stdout.write("|---|---:|---:|---:|---:|---:|\n")
    for state in uris:
        ratio = "1" if state == _HERE else shown(draw.ratio(laps(found, state), there))
        cells = (shares_shown([getattr(u, of) for _, u in found[state]]) for of in ("parent", "others", "stolen"))
        seconds = epoch_seconds(laps(found, state))
        sys.stdout.write(f"| {state} | {seconds:.3f} | {ratio} | {' | '.join(cells)} |\n")
    sys.stdout.write(f"\nAllowed: {_ALLOWED:.1%}. {asked.rounds} rounds, {asked.epochs} epochs each.\n")


if __name__ == "__main__":
    main()
