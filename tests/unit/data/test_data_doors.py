"""The child process, what asks it, and the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from data_samples import MakeFolder, left_over, stores, web
from typer.testing import CliRunner

from laptime.cli.data import app
from laptime.errors import DataError, UnreachableError, UsageError
from laptime.ladder.data import fetch_data, in_words, push_data, verify_data
from laptime.places import Places


def test_fetch_and_verify(make_folder: MakeFolder, home: Path) -> None:
    said: list[tuple[str, int, int]] = []
    root, places = str(make_folder()), Places(home)
    data = fetch_data("cifar", root, places, lambda *progress: said.append(progress))
    assert (data.asked, data.kind, data.train_count) == (root, "folder", 12)
    assert said[-1] == ("decoding", 24, 24)
    assert verify_data("cifar", root, places) == data


def test_errors_keep_their_class(home: Path, tmp_path: Path) -> None:
    places = Places(home)
    with pytest.raises(UsageError, match="did you mean cifar"):
        fetch_data("cifr", "auto", places)
    with pytest.raises(DataError, match="does not exist") as caught:
        fetch_data("cifar", str(tmp_path / "nowhere"), places)
    assert type(caught.value) is DataError
    with pytest.raises(UsageError, match="can't be pushed to"):
        push_data("cifar", "synthetic", "http://x/y", places)
    with web(tmp_path, 503) as address, pytest.raises(UnreachableError, match="status 503"):
        fetch_data("cifar", address, places)


def test_a_child_that_dies_is_named(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A broken installation: the child can't even start.
    (tmp_path / "pydantic.py").write_text("raise SystemError('broken pydantic')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(DataError, match=r"ended with exit code 1: SystemError: broken pydantic\."):
        fetch_data("cifar", "auto", Places(home))


def _start(home: Path, tmp_path: Path, through: str) -> subprocess.Popen[str]:
    """Starts a fetch of the stand-in, which takes seconds, and waits until it is at work."""
    request = tmp_path / "request.json"
    asked = {"do": "fetch", "workload": "cifar", "asked": "synthetic", "home": str(home)}
    request.write_text(json.dumps(asked))
    parent = (
        "from pathlib import Path; from laptime.places import Places; from laptime.ladder.data import fetch_data;"
        f"fetch_data('cifar', 'synthetic', Places(Path({str(home)!r})), lambda *p: print(p, flush=True))"
    )
    command = (
        [sys.executable, "-c", parent]
        if through == "parent"
        else [sys.executable, "-m", "laptime.data", str(request), str(tmp_path / "result.json")]
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_child_leaves_nothing(home: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = _start(home, tmp_path, "child")
    assert len(left_over(home)) == 1
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert stores(home) == left_over(home) == []
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_child_outlives_its_parent(home: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = _start(home, tmp_path, "parent")
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    os.kill(process.pid, number)
    assert process.wait(60) != 0
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert process.stdout is not None
    process.stdout.close()
    deadline = time.monotonic() + 60
    while left_over(home) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert stores(home) == left_over(home) == []


def test_progress_in_words() -> None:
    said: list[str] = []
    tell = in_words(said.append, every=0.5)
    for done in range(0, 101, 10):
        tell("decoding", done, 100)
    tell("verifying", 0, 0)
    assert said == [*(f"decoding data: {n} of 100" for n in (0, 50, 100)), "verifying data"]


def test_the_command(make_folder: MakeFolder, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPTIME_HOME", str(home))
    root = make_folder()
    (root / "notes.txt").write_text("x")
    run = CliRunner().invoke(app, ["fetch", "cifar", "--data", str(root)])
    assert run.exit_code == 0
    assert "ready: folder data" in run.stdout
    assert "12 training and 12 test images" in run.stdout
    assert "3 classes: cat, dog, emu" in run.stdout
    assert "NOTICE: 1 file(s)" in run.stderr
    run = CliRunner().invoke(app, ["verify", "cifar", "--data", str(root), "--json"])
    assert json.loads(run.stdout)["train_count"] == 12
    run = CliRunner().invoke(app, ["push", "cifar", "--data", str(root), "--to", "nowhere"])
    assert isinstance(run.exception, UsageError)


def test_a_child_whose_listener_is_gone_ends_as_it_would_have(
    make_folder: MakeFolder, home: Path, tmp_path: Path
) -> None:
    asked, answer = tmp_path / "request.json", tmp_path / "result.json"
    request = {"do": "fetch", "workload": "cifar", "asked": str(make_folder()), "home": str(home)}
    asked.write_text(json.dumps(request), encoding="utf-8")
    command = [sys.executable, "-m", "laptime.data", str(asked), str(answer)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.close()
        _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert "Traceback" not in said
    assert json.loads(answer.read_text(encoding="utf-8"))["data"]["train_count"] == 12
