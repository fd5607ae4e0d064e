"""A rank that is slow in backward, where all wait for each other, is told by the traces of both."""

from pathlib import Path

from tests.rank_runs import run_two_ranks

from laptime.records import ProfileRecord


def test_its_own_time_holds_what_it_does_in_backward(tmp_path):
    result, scratch = tmp_path / "result.json", tmp_path / "tmp"
    scratch.mkdir()
    script = Path(__file__).with_name("slow_backward.py")
    run_two_ranks(script, str(result), str(tmp_path / "profile"), TMPDIR=str(scratch))
    found = ProfileRecord.model_validate_json(result.read_text())
    assert found.notes == ()
    first, second = found.ranks_own_ms
    assert second > 250.0
    assert second - first >= 125.0
    assert not list(scratch.glob("laptime-scratch-*"))
