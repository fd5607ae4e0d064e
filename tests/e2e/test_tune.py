"""A search with real processes that is killed in the middle goes on to its end."""

from __future__ import annotations

import json
import signal
import time

import pytest
from tests.e2e.test_killed import laptime, none_left, started, statuses
from tests.samples import write_folder

_PATIENCE_S = 180


@pytest.mark.timeout(600)  # a search of 200 seconds, twice begun
def test_a_killed_search_goes_on_and_tells_what_it_tried(tmp_path):
    images, home, out = write_folder(tmp_path / "images", train=24, test=8), tmp_path / "home", tmp_path / "search"
    # Time for one pair of processes, also where all is four times as slow; a fast machine fills it with more.
    options = ["--data", images, "--out", out, "--epochs", "1", "--repeats", "1", "--budget", "200s"]
    process = started(home, "tune", "cifar", *options, "--no-profile")
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
    done = laptime(home, "tune", "cifar", "--resume", out, patience_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("taken from its record") == before
    assert "What the search tried" in done.stdout
    search = json.loads((out / "comparison.json").read_text())["search"]
    assert search["budget_s"] == 200
    assert search["start"] in ("cpu-baseline", "cpu-optimized", "cpu-optimized-without-large-batch")
    assert search["moves"]
    assert search["ended"]
    first = json.loads(next(out.glob("search/*/record.json")).read_text())
    assert first["status"] == "done", first["error"]
    assert len(first["epochs"]) > 2, "epochs of milliseconds are counted until they tell something"
    assert set(statuses(home)["ladder"]) == {"FINISHED"}
