"""An outage in the middle: within one training the tracking server is there, away or silent, drawn anew by epoch.

A shared machine's epochs scatter by ten per cent and more, so their times alone can't tell half a per cent. What could
make them longer can be told: a process that trains speaks to no server, so an outage can only take its cores. Hence
the CPU time of all else on the machine, by state.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
from mlflow_server import a_server
from proxy import Proxy, a_proxy
from scipy.stats import bootstrap, trim_mean

from laptime.launchers.base import PROGRESS, ProgressReader
from laptime.records import read_record

_LOOK_EVERY_S = 0.02
_VARIANT = "cpu-baseline"
_STATES = ("there", "away", "silent")
# A quarter of each end is left out: now and then a shared machine's host takes a whole epoch's time.
_CUT = 0.25


def table(command: Sequence[str], turns: int, folder: Path) -> str:
    """Runs a ladder of one variant and compares its epochs, in Markdown.

    The epochs of a turn follow each other, in an order drawn by lot, so what drifts is in all of them.

    Args:
        command: of the ladder, but for its folder, its epochs and its tracking server.
        turns: epochs with the server there, as many with it away (calls are refused), and as many with it silent (calls
            are taken and never answered).
        folder: empty, for the ladder and the server.
    """
    draw = random.Random(0)  # noqa: S311 - an order, no secret
    states = [state for _ in range(turns) for state in draw.sample(_STATES, len(_STATES))]
    (folder / "mlflow").mkdir()
    with a_server(folder / "mlflow") as server, a_proxy(server.uri) as (line, uri):
        ladder = folder / "ladder"
        run = ladder / f"{_VARIANT}-0"
        whole = [*command, "--out", str(ladder), "--epochs", str(len(states)), "--tracking-uri", uri]
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(whole, stdout=log, stderr=log)
            try:
                calls, shares = _follow(run / PROGRESS, states, line, process)
            finally:
                line.reset()
                process.wait()
    if not shares:
        sys.exit(f"the ladder ended before it trained: {(folder / 'log.txt').read_text(encoding='utf-8')[-2000:]}")
    record = read_record(run / "record.json")
    if record.status != "done" or len(record.kept) != len(states):
        sys.exit(f"the ladder failed: {record.error}")
    text = _shown(states, [e.epoch_s for e in record.epochs], shares)
    return f"{text}\nConnections made to the server meanwhile: {calls}.\n"


def _follow(
    progress: Path, states: Sequence[str], line: Proxy, process: subprocess.Popen[bytes]
) -> tuple[int, list[float]]:
    """Has the server there, away or silent as each epoch begins.

    Returns:
        How often the server was called meanwhile, and what all but the training took in each epoch, of one core.
    """
    while process.poll() is None and not progress.is_file():
        time.sleep(_LOOK_EVERY_S)
    if process.poll() is not None:
        return 0, []
    called, reader = line.calls, ProgressReader(progress)
    before, shares = (time.monotonic(), beside(process.pid)), list[float]()
    _turn(line, states[0])
    while process.poll() is None and len(shares) < len(states):
        time.sleep(_LOOK_EVERY_S)
        if ended := sum(event.get("event") == "epoch" for event in reader.events()):
            now = time.monotonic(), beside(process.pid)
            # Epochs that ended between two looks share what was taken.
            shares += [(now[1] - before[1]) / (now[0] - before[0])] * ended
            before = now
            _turn(line, states[len(shares)] if len(shares) < len(states) else "there")
    return line.calls - called, shares


def beside(pid: int) -> float:
    """CPU seconds of the machine by now but for those of this ladder's training, which its children do."""
    machine, training = psutil.cpu_times(), 0.0
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            training += sum(child.cpu_times()[:2])
    return machine.user + machine.nice + machine.system + machine.irq + machine.softirq - training


def _turn(line: Proxy, state: str) -> None:
    line.reset()
    line.away = state == "away"
    line.hold_up = 0 if state == "silent" else None


def _shown(states: Sequence[str], seconds: Sequence[float], shares: Sequence[float]) -> str:
    """By state: seconds and their ratio within turns, CPU of all else and its difference within turns."""
    times, cpu = (
        {n: np.array([v for v, s in zip(values, states, strict=True) if s == n]) for n in _STATES}
        for values in (seconds, shares)
    )
    text = "| tracking server | epochs | s/epoch, median | over there (95 %) | all but the training, of one core | "
    text += "more than there (95 %) |\n|---|---:|---:|---:|---:|---:|\n"
    for state in _STATES:
        ratio = more = ""
        if state != "there":
            ratio = "{:.4f} ({:.4f} to {:.4f})".format(
                *np.exp(_middle_with_interval(np.log(times[state] / times["there"])))
            )
            more = "{:+.2%} ({:+.2%} to {:+.2%})".format(*_middle_with_interval(cpu[state] - cpu["there"]))
        text += f"| {state} | {len(times[state])} | {np.median(times[state]):.4f} | {ratio} | "
        text += f"{trim_mean(cpu[state], _CUT):.2%} | {more} |\n"
    return text


def _middle_with_interval(values: np.ndarray) -> tuple[float, float, float]:
    """The mean of the middle half, with a bootstrap interval of 95 %."""
    found = bootstrap((values,), _middle, rng=np.random.default_rng(0), batch=500)
    return (float(_middle(values)), *map(float, found.confidence_interval))


def _middle(values: np.ndarray, axis: int = -1) -> np.ndarray:
    return trim_mean(values, _CUT, axis=axis)
