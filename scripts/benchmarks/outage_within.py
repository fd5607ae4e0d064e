"""An outage in the middle: within one training the tracking server is stopped for every second epoch, on average."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

import numpy as np
import psutil
from mlflow_server import MlflowServer, a_server
from scipy.stats import t as student

from laptime.launchers.base import PROGRESS, ProgressReader
from laptime.records import read_record

_LOOK_EVERY_S = 0.02
_VARIANT = "cpu-baseline"


def table(command: Sequence[str], pairs: int, folder: Path) -> str:
    """Runs a ladder of one variant and compares its epochs, in Markdown.

    Both epochs of a pair follow each other, in an order drawn by lot, so what drifts is in both.

    Args:
        command: of the ladder, but for its folder, its epochs and its tracking server.
        pairs: epochs with the server there, and as many with it silent: it takes calls and answers none.
        folder: empty, for the ladder and the server.
    """
    draw = random.Random(0)  # noqa: S311 - an order, no secret
    states = [silent for _ in range(pairs) for silent in draw.sample((False, True), 2)]
    (folder / "mlflow").mkdir()
    with a_server(folder / "mlflow") as server:
        ladder = folder / "ladder"
        run = ladder / f"{_VARIANT}-0"
        whole = [*command, "--out", str(ladder), "--epochs", str(len(states)), "--tracking-uri", server.uri]
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(whole, stdout=log, stderr=log)
            try:
                _follow(run / PROGRESS, states, server, lambda: process.poll() is None)
            finally:
                _silence(server, False)
                process.wait()
    record = read_record(run / "record.json")
    if record.status != "done" or len(record.kept) != len(states):
        sys.exit(f"the ladder failed: {record.error}")
    times = {
        silent: [e.epoch_s for e, s in zip(record.epochs, states, strict=True) if s is silent]
        for silent in (False, True)
    }
    return _shown(times[False], times[True])


def _follow(progress: Path, states: Sequence[bool], server: MlflowServer, alive: Callable[[], bool]) -> None:
    """Has the server speak or be silent as each epoch begins."""
    while alive() and not progress.is_file():
        time.sleep(_LOOK_EVERY_S)
    reader, done = ProgressReader(progress), -1
    while alive() and done < len(states):
        ended = sum(event.get("event") == "epoch" for event in reader.events())
        if ended or done < 0:
            done = max(done, 0) + ended
            _silence(server, done < len(states) and states[done])
        time.sleep(_LOOK_EVERY_S)


def _silence(server: MlflowServer, silent: bool) -> None:
    assert server.process is not None
    root = psutil.Process(server.process.pid)
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            (process.suspend if silent else process.resume)()


def _shown(there: Sequence[float], silent: Sequence[float]) -> str:
    """Medians, and the mean ratio of the pairs with Student's interval on the logarithm."""
    logs = np.log(silent) - np.log(there)
    half = student.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    low, ratio, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
    return (
        "| tracking server | epochs | s/epoch, median | mean |\n|---|---:|---:|---:|\n"
        f"| there | {len(there)} | {median(there):.4f} | {fmean(there):.4f} |\n"
        f"| silent | {len(silent)} | {median(silent):.4f} | {fmean(silent):.4f} |\n\n"
        f"Silent over there, in pairs: {ratio:.4f} (95 %: {low:.4f} to {high:.4f}); "
        f"median of the pairs {np.exp(np.median(logs)):.4f}.\n"
    )
