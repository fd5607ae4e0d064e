"""A pod that can't do its part says why, to its log and to the launcher; a range of nodes that is none is refused."""

import errno
import json
import os
import signal

import pytest
from tests.unit.conftest import make_spec

from laptime import pod
from laptime.nodes import read_range


@pytest.fixture(autouse=True)
def signals_as_they_were():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (None, "holds no spec.json"),
        ("{", "can't be read"),
        (make_spec().model_dump_json(by_alias=True), "data"),
    ],
)
def test_a_pod_that_can_t_begin_says_why(spec, named, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    (tmp_path / "run").mkdir()
    if spec is not None:
        (tmp_path / "run" / "spec.json").write_text(spec)
    assert pod.main([str(tmp_path), "run", "--ranks", "1"]) > 0
    said = capsys.readouterr().err
    assert named in said
    told = json.loads((tmp_path / "run" / "failed-1.json").read_text())
    assert told["error"] in said


def test_the_rank_that_died_and_its_last_words_outlive_the_pod(tmp_path):
    folder, store = tmp_path / "own", tmp_path / "store"
    folder.mkdir()
    (folder / "log.txt").write_text("gloo: connection closed by peer\n")
    (folder / "log-rank-1.txt").write_text("RuntimeError: the GPU has fallen off the bus\n")
    (folder / "ranks.json").write_text('{"rank": 1, "exit_code": 1}')
    (folder / "system.jsonl").write_text("{}")
    one = pod.Pod(str(store), "run", folder)
    assert (
        one.why_failed(7)
        == "rank 1 ended with exit code 1; its last words: RuntimeError: the GPU has fallen off the bus"
    )
    one.fail(one.why_failed(7), 0)
    assert "fallen off" in json.loads((store / "run" / "failed-0.json").read_text())["error"]
    assert "fallen off" in (store / "run" / "log-rank-1.txt").read_text()
    assert "gloo" in (store / "run" / "log-node-0.txt").read_text()
    # These are the first rank's, who writes progress.
    assert not any((store / "run" / name).exists() for name in ("log.txt", "system.jsonl"))
    (folder / "progress.jsonl").touch()
    one.fail("why", 0)
    assert "gloo" in (store / "run" / "log.txt").read_text()
    assert (store / "run" / "system.jsonl").exists(), "the memory before it ran out, for one"
    (folder / "ranks.json").write_text("no JSON")
    assert one.why_failed(7).startswith("rank 0 ended with exit code 7; its last words: gloo")


def test_a_full_disk_is_told_to_the_launcher(tmp_path, capsys, monkeypatch):
    def full(_pod):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/spec.json")

    monkeypatch.setattr(pod.Pod, "bring", full)
    assert pod.main([str(tmp_path), "run", "--ranks", "1"]) == 1
    assert "laptime.pod: /tmp/spec.json: No space left on device" in capsys.readouterr().err
    assert "No space left" in json.loads((tmp_path / "run" / "failed-0.json").read_text())["error"]


@pytest.mark.parametrize("text", ["0:1", "2:1", "a", "", ":2", "1:2:3", "-1"])
def test_a_range_that_is_none(text):
    with pytest.raises(ValueError, match="MIN:MAX"):
        read_range(text)


def test_a_range():
    assert read_range("2") == (2, 2)
    assert read_range("1:4") == (1, 4)
