"""Several ranks on this machine, each a process of a test's own, as torch's launcher would start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.ports import free_port

_PYTHON_PATH = os.pathsep.join(str(Path(__file__).parents[1] / part) for part in ("src", "."))
_RANKS = 2


def run_two_ranks(script: Path, *arguments: str, **environment: str) -> None:
    """Runs a script as both of two ranks, which meet over gloo; fails with what they said where one does.

    Args:
        script: what each rank runs.
        arguments: the script's.
        environment: variables beside those of the launcher.
    """
    shared = {
        "PYTHONPATH": _PYTHON_PATH,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_RUN_ID": "test",
        "WORLD_SIZE": str(_RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        **environment,
    }
    started = [
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(_RANKS)
    ]
    try:
        said = [process.communicate(timeout=200)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [p.returncode for p in started] == [0] * _RANKS, "\n".join(said)
