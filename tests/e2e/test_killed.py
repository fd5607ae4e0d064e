"""A ladder whose process is killed leaves no training behind, and goes on without repeating what had ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.commands import laptime
from tests.e2e.stored import statuses
from tests.e2e.test_interrupt import workers
from tests.samples import write_folder

_PATIENCE_S = 120
# Promised are 5 s; a busy machine of two cores may leave a process for seconds without a turn. Once 10 s were too few.
_NAP_S, _NAPS = 0.05, 600


def epochs_of(path) -> int:
    return path.read_text().count('"event": "epoch"') if path.exists() else 0


def started(home, *arguments, module="laptime") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, "LAPTIME_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def servers_of(home) -> list[int]:
    """Prefect's temporary servers of a home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("LAPTIME_HOME") == str(home) and "uvicorn" in process.cmdline():
                found.append(process.pid)
    return found


def none_left(folder) -> bool:
    # By naps, not by the clock: a virtual machine that stood still lets it jump, and nobody has run meanwhile.
    for _ in range(_NAPS):
        if not workers(folder):
            break
        time.sleep(_NAP_S)
    left = workers(folder)
    for process in left:  # pytest shows it where that fails
        with contextlib.suppress(psutil.Error, OSError):
            sys.stderr.write(f"left below {process.ppid()}: {process.cmdline()}\n")
            sys.stderr.write(Path(f"/proc/{process.pid}/status").read_text())
    return left == []


def kill_after(process, epochs, progress):
    try:
        until = time.monotonic() + _PATIENCE_S
        while epochs_of(progress) < epochs:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_a_killed_ladder_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "1")
    images, home, out = write_folder(tmp_path / "images", train=12, test=4), tmp_path / "home", tmp_path / "ladder"
    options = ["--data", images, "--out", out, "--epochs", "4", "--repeats", "1", "--no-profile"]
    process = started(home, "optimize", "cifar", *options, "--variants", "cpu-resident")
    kill_after(process, 2, out / "cpu-resident-0" / "progress.jsonl")
    assert none_left(tmp_path)
    assert laptime(home, "list", "workloads").returncode == 0
    assert statuses(home) == {"ladder": ["KILLED"], "variant": ["FINISHED"]}
    before = (out / "cpu-baseline-0" / "record.json").read_bytes()
    refused = laptime(home, "optimize", "cifar", "--resume", out, "--epochs", "2")
    assert refused.returncode == 2
    assert "--epochs 2 contradicts" in refused.stderr
    monkeypatch.delenv("MALLOC_PERTURB_")
    refused = laptime(home, "optimize", "cifar", "--resume", out)
    assert refused.returncode == 1
    assert "in another environment (variables MALLOC_PERTURB_=1" in refused.stderr
    monkeypatch.setenv("MALLOC_PERTURB_", "1")
    done = laptime(home, "optimize", "cifar", "--resume", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu-baseline, round 1 of 1: taken from its record." in done.stderr
    assert "MALLOC_PERTURB_=1 is set in the environment" in done.stdout
    assert (out / "cpu-baseline-0" / "record.json").read_bytes() == before
    record = json.loads((out / "cpu-resident-0" / "record.json").read_text())
    assert [e["index"] for e in record["epochs"]] == [0, 1, 2, 3]
    assert [s["epoch"] for s in record["starts"]][:1] == [0]
    assert record["starts"][1]["epoch"] >= 1
    assert sum(e["resumed"] for e in record["epochs"]) == sum(e["interrupted"] for e in record["epochs"]) == 1
    assert not list(out.rglob("checkpoints"))
    assert statuses(home) == {"ladder": ["FINISHED"], "variant": ["FINISHED", "FINISHED"]}
    again = laptime(home, "optimize", "cifar", "--resume", json.loads((out / "ladder.json").read_text())["id"])
    assert again.returncode == 0
    assert "is done, nothing was run" in again.stderr
    assert "cpu-resident" in again.stdout


@pytest.mark.long
def test_a_killed_flow_leaves_no_training_and_no_run(tmp_path):
    images, home, out = write_folder(tmp_path / "images", train=12, test=4), tmp_path / "home", tmp_path / "ladder"
    options = ["--data", images, "--out", out, "--epochs", "400", "--repeats", "1", "--profile", "none"]
    process = started(home, *options, "--variants", "cpu-baseline", module="flows.optimize")
    kill_after(process, 1, out / "cpu-baseline-0" / "progress.jsonl")
    assert none_left(tmp_path)
    assert laptime(home, "list", "workloads").returncode == 0
    assert statuses(home) == {"ladder": ["KILLED"]}
    assert servers_of(home) == []


@pytest.mark.parametrize("seen", ["laptime.host.forkserver", "laptime.preflight.inspecting"])
def test_a_look_into_a_user_s_file_ends_with_a_command_that_is_killed_while_it_imports(tmp_path, seen):
    """Torch, for it and all that is to come, or the user's file."""
    own = tmp_path / "own.py"
    own.write_text("import time\ntime.sleep(300)\n")
    command = started(tmp_path / "home", "optimize", f"{own}:workload")
    looks: list[psutil.Process] = []
    try:
        until = time.monotonic() + _PATIENCE_S
        while not looks and time.monotonic() < until:
            with contextlib.suppress(psutil.NoSuchProcess):
                below = psutil.Process(command.pid).children(recursive=True)
                looks = below if any(seen in child.cmdline() for child in below) else []
        assert looks
        command.kill()
        command.wait()
        # The file would sleep for longer than is waited here.
        assert psutil.wait_procs(looks, timeout=_PATIENCE_S)[1] == []
    finally:
        command.kill()
        for look in looks:
            with contextlib.suppress(psutil.NoSuchProcess):
                look.kill()
