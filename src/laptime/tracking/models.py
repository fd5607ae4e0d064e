"""Logged models need torch, so a process of its own logs them: `python -m laptime.logged_model`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from laptime.errors import TrackingError, shorten
from laptime.processes import child_command, child_environment
from laptime.scratch import scratch

_TIMEOUT_S = 600.0


def log_models_aside(models: Sequence[tuple[str, Path, str]], uri: str) -> Mapping[str, str]:
    """Logs models in one process.

    Args:
        models: key, folder with `model.pt` and `spec.json`, and MLflow's run id of each.
        uri: the tracking URI; it goes by environment, since it may hold credentials.

    Returns:
        Why not, by key, of those that can't be logged.

    Raises:
        TrackingError: the process failed; another try may help.
    """
    with scratch("models") as scratched:
        request, answer = scratched / "request.json", scratched / "answer.json"
        entries = [{"key": key, "folder": str(folder), "run_id": run_id} for key, folder, run_id in models]
        request.write_text(json.dumps({"models": entries, "answer": str(answer)}), encoding="utf-8")
        # No GPU: one that is being timed must not be touched.
        environment = {**child_environment(), "MLFLOW_TRACKING_URI": uri, "CUDA_VISIBLE_DEVICES": ""}
        command = child_command("laptime.logged_model", str(request))
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TrackingError(
                f"logging {len(models)} models took more than {_TIMEOUT_S:g} s: laptime sync tries again."
            ) from error
        if done.returncode or not answer.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise TrackingError(f"the models were not logged ({shorten(last, 200)}): laptime sync tries again.")
        found: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
        return found
