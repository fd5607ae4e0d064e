"""A process that runs a flow, in an environment without servers and with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(
    arguments: list[str], home: Path, timeout_s: float = 240.0, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**surroundings(home), **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def surroundings(home: Path) -> dict[str, str]:
    """The environment of such a process."""
    ours = ("PREFECT_", "MLFLOW_", "LAPTIME_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**environment, "LAPTIME_HOME": str(home), "PYTHONWARNINGS": "ignore"}
