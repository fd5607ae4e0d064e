"""Logged models need torch, so processes of their own log them: `python -m laptime.predict.logged_model`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from laptime.errors import TrackingError, shorten
from laptime.host.processes import allowed_cores, end_tree
from laptime.host.scratch import scratch
from laptime.host.starts import Started, start
from laptime.records import write_json
from laptime.tracking.reach import last_cause

_TIMEOUT_S = 600.0
# Each takes up to 2 GiB.
_MOST_AT_ONCE = 4


def log_models_aside(models: Sequence[tuple[str, Path, str]], uri: str) -> Mapping[str, str]:
    """Logs models, some at a time: `torch.export` is Python on one core, 17 s for an EfficientNet-B5.

    Args:
        models: key, folder with `model.pt` and `spec.json`, and MLflow's run id of each.
        uri: the tracking URI; it goes by environment, since it may hold credentials.

    Returns:
        Why not, by key, of those that can't be logged.

    Raises:
        TrackingError: a process failed; another try may help, and keeps what is logged.
    """
    at_once = min(len(models), allowed_cores(), _MOST_AT_ONCE)
    until = time.monotonic() + _TIMEOUT_S
    with scratch("models") as scratched, contextlib.ExitStack() as ends:
        begun = [_begin(scratched / str(i), models[i::at_once], uri, ends) for i in range(at_once)]
        for one in begun:  # all of them, so that what fails in one costs the others nothing
            try:
                one.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise TrackingError(
                    f"logging {len(models)} models took more than {_TIMEOUT_S:g} s: laptime sync tries again."
                ) from error
        refused: dict[str, str] = {}
        for one in begun:
            refused |= one.answer()
        return refused


@dataclass(frozen=True)
class _Begun:
    """A process that logs some models."""

    folder: Path
    process: Started

    def answer(self) -> dict[str, str]:
        """Its answer, once it has ended; raises TrackingError where it has none."""
        answer = self.folder / "answer.json"
        if self.process.returncode or not answer.is_file():
            said = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip()
            last = (said.splitlines() or ["no message"])[-1]
            raise TrackingError(
                f"the models were not logged ({shorten(last_cause(last), 200)}): laptime sync tries again."
            )
        found: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    def end(self) -> None:
        """Ends it where it still runs."""
        if self.process.poll() is None:
            end_tree(self.process.pid)
        self.process.wait()


def _begin(folder: Path, models: Sequence[tuple[str, Path, str]], uri: str, ends: contextlib.ExitStack) -> _Begun:
    folder.mkdir()
    request = folder / "request.json"
    entries = [{"key": key, "folder": str(place), "run_id": run_id} for key, place, run_id in models]
    write_json(request, {"models": entries, "answer": str(folder / "answer.json")})
    # No GPU: one that is being timed must not be touched.
    variables = {"MLFLOW_TRACKING_URI": uri, "CUDA_VISIBLE_DEVICES": ""}
    with (folder / "log.txt").open("wb") as log:
        process = start(["laptime.predict.logged_model", str(request)], (log.fileno(), log.fileno()), variables)
    begun = _Begun(folder, process)
    ends.callback(begun.end)
    return begun
