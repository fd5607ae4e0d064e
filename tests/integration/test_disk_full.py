"""A disk without room: one sentence that names the place, and what was written can still be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_disk import SmallDisk

from laptime.errors import LaptimeError
from laptime.launchers.base import ProgressReader
from laptime.records import read_record, write_json
from laptime.spec import read_spec
from own_files import TUPLE, write


def test_a_run_stops_with_one_sentence_and_leaves_what_it_wrote(small_disk: SmallDisk, tmp_path: Path) -> None:
    out = small_disk.folder / "run"
    workload = write(tmp_path / "train.py", TUPLE)
    more = ["--epochs", "3000", "--no-profile", "--out", str(out), "--checkpoints", str(out / "checkpoints")]
    environment = {**os.environ, "LAPTIME_HOME": str(small_disk.folder / "home")}
    process = subprocess.Popen(
        [sys.executable, "-m", "laptime", "run", workload, "--variant", "cpu-baseline", *more],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for_an_epoch(process, out / "progress.jsonl")
        small_disk.fill()
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, output
    assert "Traceback" not in output
    assert str(out) in output, output
    assert "room" in output.strip().splitlines()[-1]
    read_spec(out / "spec.json")
    assert [e for e in ProgressReader(out / "progress.jsonl").events() if e["event"] == "epoch"]
    for path in out.rglob("*.json"):
        json.loads(path.read_text())
    if (out / "record.json").is_file():
        assert read_record(out / "record.json").status == "failed"


def wait_for_an_epoch(process: subprocess.Popen[str], progress: Path) -> None:
    until = time.monotonic() + 120
    while not progress.is_file() or '"epoch"' not in progress.read_text():
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_file_that_finds_no_room_is_named_and_the_one_before_it_stays(small_disk: SmallDisk) -> None:
    path = small_disk.folder / "ladder.json"
    write_json(path, {"a": 1})
    small_disk.fill()
    with pytest.raises(OSError, match="No space left") as refused:
        write_json(path, {"a": "2" * 100_000})
    assert refused.value.filename == str(path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert sorted(p.name for p in small_disk.folder.iterdir()) == ["filler", "ladder.json"]


def test_weights_that_find_no_room_are_told_in_the_same_sentence(small_disk: SmallDisk) -> None:
    import torch
    from torch import nn

    from laptime.artifacts import write_model
    from laptime.data.disk import no_room

    small_disk.fill()
    with pytest.raises((RuntimeError, OSError)) as refused:
        write_model(nn.Linear(300, 300), small_disk.folder / "model.pt")
    assert [p.name for p in small_disk.folder.iterdir()] == ["filler"], "nothing half written takes room"
    sentence = no_room(refused.value, small_disk.folder)
    assert sentence is not None
    assert f"the disk of {small_disk.folder} is full" in sentence
    assert no_room(torch.OutOfMemoryError("no memory"), small_disk.folder) is None
    assert not issubclass(type(refused.value), LaptimeError)
