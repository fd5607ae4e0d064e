"""A gate that is killed leaves no training, no folder and no checkout; a command that isn't there is told in a line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.e2e.gate_project import gate, git, told

_PATIENCE_S = 60.0
_GONE_S = 10.0
_TRAINING = "import time; time.sleep(600)"
# A script of the user's own: the training is not the gate's child but the shell's, which passes nothing on.
_SCRIPT = f"""#!/bin/sh
{sys.executable} -c '{_TRAINING}' &
wait
"""


def trains(gate_process: subprocess.Popen[bytes]) -> bool:
    """Whether a training has begun, and not only the keeper, whose arguments are the same."""
    for one in psutil.Process(gate_process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # git comes and goes
            if one.cmdline()[1:] == ["-c", _TRAINING]:
                return True
    return False


@pytest.mark.parametrize("where", ["training", "shell"])
def test_a_killed_gate_leaves_nothing(project, tmp_path, monkeypatch, where):
    script = tmp_path / "train.sh"
    script.write_text(_SCRIPT)
    temporary, log = tmp_path / "tmp", tmp_path / "log.txt"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    words = f"{sys.executable} -c '{_TRAINING}'" if where == "training" else f"sh {script}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "laptime", "gate", "tiny", "--device", "none", "--no-track", "--command", words],
            cwd=project,
            env={**os.environ, "LAPTIME_HOME": str(tmp_path / "home")},
            stdout=output,
            stderr=output,
        )
    tree: list[psutil.Process] = []
    try:
        until = time.monotonic() + _PATIENCE_S
        while not trains(process):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        tree = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        _, left = psutil.wait_procs(tree, timeout=_GONE_S)
        assert left == []
    finally:
        process.kill()
        process.wait()
        for one in tree:
            if one.is_running():
                one.kill()
    # Its folder and its checkouts go with the next gate.
    assert [path.name.startswith("laptime-scratch-gate-") for path in temporary.iterdir()] == [True]
    assert git(project, "worktree", "list").count("\n") == 2
    told(gate(project), 0, "not regressed")
    assert list(temporary.iterdir()) == []
    assert git(project, "worktree", "list").count("\n") == 0


def test_a_command_that_is_not_there(project):
    (project / "train.sh").write_text(_SCRIPT)
    told(gate(project, command="no-such-program {record}"), 4, "base's command 'no-such-program' can't be started")
    told(gate(project, command="./train.sh {record}"), 4, "'./train.sh' can't be started", "not executable")
