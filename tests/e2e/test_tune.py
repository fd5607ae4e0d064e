"""A search with real processes that is killed in the middle goes on to its end."""

from __future__ import annotations

import json
import signal
import time

import pytest
from tests.commands import laptime
from tests.e2e.stored import statuses
from tests.e2e.test_killed import none_left, started
from tests.own_files import TUPLE, write

_PATIENCE_S = 180


@pytest.mark.timeout(400)  # a search of 100 seconds, twice begun
def test_a_killed_search_goes_on_and_tells_what_it_tried(tmp_path):
    workload, home, out = write(tmp_path / "train.py", TUPLE), tmp_path / "home", tmp_path / "search"
    # Time for one pair of processes, also where all is four times as slow; a fast machine fills it with more.
    options = ["--out", out, "--epochs", "1", "--repeats", "1", "--budget", "100s", "--no-profile"]
    process = started(home, "tune", workload, *options)
    until = time.monotonic() + _PATIENCE_S
    while not list(out.glob("search/*/spec.json")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert none_left(tmp_path)
    left = json.loads((out / "ladder.json").read_text())
    # Baseline and optimized, two more trainings of each where one left quality unclear, and the same list without the
    # larger batch where that was refused.
    before = left["turns"]
    assert (left["status"], len(left["turns_s"])) == ("running", before)
    assert 2 <= before <= 7
    done = laptime(home, "tune", workload, "--resume", out, patience_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("taken from its record") == before
    assert "What the search tried" in done.stdout
    search = json.loads((out / "comparison.json").read_text())["search"]
    assert search["budget_s"] == 100
    assert search["start"] in ("cpu-baseline", "cpu-optimized", "cpu-optimized-without-large-batch")
    assert search["moves"]
    assert search["ended"]
    first = json.loads(next(out.glob("search/*/record.json")).read_text())
    assert first["status"] == "done", first["error"]
    assert len(first["epochs"]) > 2, "epochs of milliseconds are counted until they tell something"
    assert set(statuses(home)["ladder"]) == {"FINISHED"}
