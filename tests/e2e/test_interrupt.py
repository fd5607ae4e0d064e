"""An interrupted ladder ends at once, leaves no process and marks its runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.e2e.stored import statuses
from tests.samples import write_folder

_PATIENCE_S = 120
# Promised are 5 s; a busy machine of two cores may leave a process for seconds without a turn.
_GONE_S = 10.0
# `laptime` with one finding made by hand, so that something is verified however noisy the machine is.
_ADVISED = """
from laptime.cli import main
from laptime.ladder import advising
from laptime.records import Advice, Finding

def advise(record, trace, history, probe):
    name = record.spec.variant
    finding = Finding(id="resident", what="Images come one by one.", variant=f"{name}+resident", klass="exact",
                      step_ms_now=100, step_ms_expected=(50, 90), gain=(0.1, 0.5))
    return Advice(subject=name, findings=(finding,))

advising.the_rules = lambda: advising.Rules(advise, lambda advice: advice.verdict)
main()
"""


def started(folder, *arguments) -> subprocess.Popen[str]:
    """Python in a process group of its own, with its home in the test's folder."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "LAPTIME_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def workers(home):
    """Processes of this test's home that train or probe."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "laptime." in line and str(home) in line:
            found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_ladder(tmp_path, number):
    images = write_folder(tmp_path / "images", train=24, test=8)
    out = tmp_path / "ladder"
    more = ["--epochs", "500", "--repeats", "1", "--no-profile", "--variants", "cpu-resident"]
    process = started(tmp_path, "-m", "laptime", "optimize", "cifar", "--data", images, "--out", out, *more)
    try:
        output = interrupted(process, number, tmp_path, lambda: [out / "cpu-baseline-0" / "progress.jsonl"])
    finally:
        process.kill()  # its children go with it
        process.wait()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "Interrupted" in output
    assert workers(tmp_path) == []
    assert json.loads((out / "ladder.json").read_text())["status"] == "interrupted"
    assert statuses(tmp_path / "home") == {"ladder": ["KILLED"], "variant": ["KILLED"]}


@pytest.mark.long
def test_an_interrupted_verification(tmp_path):
    images = write_folder(tmp_path / "images", train=24, test=8)
    out = tmp_path / "ladder"
    options = ["--data", images, "--out", out, "--epochs", "2", "--repeats", "1", "--no-profile"]
    more = ["--variants", "cpu-baseline", "--verify-advice"]
    process = started(tmp_path, "-c", _ADVISED, "optimize", "cifar", *options, *more)
    try:
        # The pairs of two rounds (folders 2 and 3) are whole by then, that of the third is cut off.
        output = interrupted(process, signal.SIGINT, tmp_path, lambda: sorted(out.glob("verify/*-4/progress.jsonl")))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert workers(tmp_path) == []
    assert json.loads((out / "ladder.json").read_text())["status"] == "interrupted"
    (finding,) = json.loads((out / "advice.json").read_text())["findings"]
    assert finding["measured"]["n"] == 2
    assert '<div class="measured">' in (out / "comparison.html").read_text()
    assert statuses(tmp_path / "home")["advice"] == ["FINISHED"]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_an_interrupted_main_job(tmp_path, number):
    """The whole group is told, as a terminal and `timeout` do it: Prefect's temporary server ends, too."""
    images = write_folder(tmp_path / "images", train=24, test=8)
    out = tmp_path / "ladder"
    more = ["--epochs", "500", "--repeats", "1", "--profile", "none", "--variants", "cpu-baseline"]
    process = started(tmp_path, "-m", "flows.optimize", "--data", images, "--out", out, *more)
    try:
        output = interrupted(process, number, tmp_path, lambda: [out / "cpu-baseline-0" / "progress.jsonl"], True)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert "interrupted; the run is marked, what was measured is kept, and --resume goes on" in output
    assert json.loads((out / "ladder.json").read_text())["status"] == "interrupted"


def interrupted(process, number, folder, progress, group=False) -> str:
    """Sends a signal once an epoch stands in a file of progress; what the command printed. Training ends at once."""
    until = time.monotonic() + _PATIENCE_S
    while not any(path.exists() and "epoch" in path.read_text() for path in progress()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < until
        time.sleep(0.1)
    if group or number == signal.SIGINT:
        os.killpg(process.pid, number)  # what a terminal does
    else:
        process.send_signal(number)
    told = time.monotonic()
    while left := [found for found in workers(folder) if found.pid != process.pid]:
        assert time.monotonic() < told + _GONE_S, left
        time.sleep(0.05)
    output, _ = process.communicate(timeout=60)
    return output
