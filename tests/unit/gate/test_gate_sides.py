"""Commands of a side that are waited for: none of their processes outlives a time-out."""

from __future__ import annotations

import os
import subprocess
import time

import psutil
import pytest

from laptime.gate import sides


def _sleepers(mark: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[:2] == ["sleep", mark]]


def test_a_command_that_takes_too_long_leaves_nothing_of_its_tree(tmp_path):
    mark = f"600.{os.getpid()}"
    with pytest.raises(subprocess.TimeoutExpired):
        sides._run(["sh", "-c", f"sleep {mark} & wait"], tmp_path, dict(os.environ), 3.0)
    until = time.monotonic() + 10
    while _sleepers(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert _sleepers(mark) == []


def test_what_a_command_says_comes_back(tmp_path):
    done = sides._run(["sh", "-c", "pwd; echo no >&2; exit 3"], tmp_path, dict(os.environ))
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (3, str(tmp_path), "no")
