from __future__ import annotations

import json

import pytest

import laptime
from laptime.records import read_record


def test_a_loop_of_the_users_own(tmp_path):
    ticks = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    path = tmp_path / "runs" / "record.json"
    seen = list(laptime.epochs("abc", record=path, samples=7, clock=lambda: next(ticks)))
    record = read_record(path)
    assert seen == ["a", "b", "c"]
    assert [e.epoch_s for e in record.epochs] == [5.0, 2.0, 3.0]
    assert [e.kept for e in record.epochs] == [False, True, True]
    assert {e.samples for e in record.epochs} == {7}
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_a_number_of_epochs_is_told_to_be_a_range(tmp_path):
    with pytest.raises(TypeError, match=r"laptime.epochs\(4\): give what a for loop takes, range\(4\) for"):
        next(laptime.epochs(4, record=tmp_path / "record.json"))


def test_an_epoch_that_is_left_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("LAPTIME_RECORD", str(tmp_path / "mine.json"))
    for epoch in laptime.epochs(range(5), warmup=0):
        if epoch == 2:
            break
    assert [e["index"] for e in json.loads((tmp_path / "mine.json").read_text())["epochs"]] == [0, 1]


def test_a_loop_that_uses_no_gpu_begins_to_use_none(tmp_path, monkeypatch):
    """Counting devices starts CUDA's driver, after which no fork of the process can use it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: pytest.fail("CUDA was asked"))
    assert list(laptime.epochs(range(2), record=tmp_path / "record.json")) == [0, 1]
