"""A pod that can't do its part says why, to its log and to the launcher; a range of nodes that is none is refused."""

import json
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


@pytest.mark.parametrize("text", ["0:1", "2:1", "a", "", ":2", "1:2:3", "-1"])
def test_a_range_that_is_none(text):
    with pytest.raises(ValueError, match="MIN:MAX"):
        read_range(text)


def test_a_range():
    assert read_range("2") == (2, 2)
    assert read_range("1:4") == (1, 4)
