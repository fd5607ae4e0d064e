"""A repository to gate, whose trainings write given times, and `laptime gate` over it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.commands import laptime

# Trains nothing: writes a record with the epoch that the file `epoch_s` of its checkout says.
TRAINER = """
import json, os, sys, time
from pathlib import Path
seed = int(os.environ["LAPTIME_SEED"])
if Path("crash").exists():
    sys.exit("a tensor went missing")
time.sleep(float(Path("sleep").read_text()) if Path("sleep").exists() else 0)
epoch_s = float(Path("epoch_s").read_text()) * (1 + 0.002 * (seed % 3))
kept = not Path("unkept").exists()
samples = int(Path("samples").read_text()) if Path("samples").exists() else 100
epochs = [{"index": i, "kept": kept and i > 0, "epoch_s": epoch_s, "samples": samples} for i in range(4)]
text = {"schema": "laptime.record/1", "status": "done", "epochs": epochs}
Path(sys.argv[1]).write_text(json.dumps(text))
"""
# The same by a loop of the user's own, whose clock goes on by what the file says: laptime.epochs writes the record.
LOOP = """
import os
from pathlib import Path
import laptime

now = 0.0
seconds = float(Path("epoch_s").read_text()) * (1 + 0.002 * (int(os.environ["LAPTIME_SEED"]) % 3))
for epoch in laptime.epochs(range(4), samples=100, clock=lambda: now):
    now += seconds if epoch else 9 * seconds
"""
COMMAND = f"{sys.executable} train.py {{record}}"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a change")
    return git(folder, "rev-parse", "HEAD")


def gate(project: Path, *arguments: str, command: str = COMMAND) -> subprocess.CompletedProcess[str]:
    # No device, so no lock: another test's training on this machine is none of these gates' business.
    with_command = ("--command", command, "--device", "none") if command else ()
    told = {"GITHUB_STEP_SUMMARY": str(project.parent / "summary.md")}
    words = ("gate", "tiny", *with_command, "--no-track", *arguments)
    return laptime(project.parent / "home", *words, folder=project, patience_s=120, **told)


def own_laptime(project: Path) -> subprocess.CompletedProcess[str]:
    """A gate whose sides train with their own `laptime run`."""
    words = ("gate", "cifar", "--variant", "cpu-baseline", "--device", "cpu")
    return laptime(project.parent / "home", *words, folder=project, patience_s=120)


def told(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for word in words:
        assert word in done.stdout + done.stderr
