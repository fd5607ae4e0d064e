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
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "LAPTIME_"))}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**environment, "LAPTIME_HOME": str(home), "PYTHONWARNINGS": "ignore", **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
