"""`laptime clean` deletes what is done and published, and nothing that can be gone on with."""

import json

from tests.unit.conftest import make_data_spec, make_ladder_record

from laptime.cli.clean import clean
from laptime.records import write_json


def test_what_can_be_gone_on_with_is_kept_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path))
    for name, status, request in (
        ("finished", "done", {}),
        ("broken-off", "interrupted", {}),
        ("failed", "failed", {}),
        ("old", "running", None),
    ):
        ladder = make_ladder_record(id=name, status=status, request=request)
        write_json(tmp_path / "runs" / name / "ladder.json", ladder)
        journal = tmp_path / "journal" / f"{name}.jsonl"
        write_json(journal, {})
        write_json(journal.with_suffix(".state.json"), {"size": journal.stat().st_size})
    clean("runs")
    said = capsys.readouterr().out
    assert f"{tmp_path}/runs/failed: not done, so it can be gone on with" in said
    clean("runs", yes=True, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [path.rpartition("/")[2] for path in found["kept"]] == ["broken-off", "failed"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["broken-off", "failed"]


def test_data_that_a_run_still_needs_is_kept(tmp_path, monkeypatch):
    """What can be gone on with trains on it; what waits to be sent logs its models with its mean."""
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path))
    digests = {name: name[0] * 64 for name in ("going", "unsent", "published", "nobody")}
    for name, status in (("going", "interrupted"), ("unsent", "done"), ("published", "done")):
        data = make_data_spec().model_copy(update={"digest": digests[name]})
        ladder = make_ladder_record(id=name, status=status, data=data, request={})
        write_json(tmp_path / "runs" / name / "ladder.json", ladder)
        journal = tmp_path / "journal" / f"{name}.jsonl"
        write_json(journal, {})
        if name != "unsent":
            write_json(journal.with_suffix(".state.json"), {"size": journal.stat().st_size})
    for name in (*digests.values(), ".part-1", ".resume-2", "index"):
        (tmp_path / "data" / name).mkdir(parents=True)
    clean("all", yes=True)
    left = {path.name for path in (tmp_path / "data").iterdir()}
    assert left == {digests["going"], digests["unsent"], ".part-1", ".resume-2", "index"}


def test_links_and_files_are_deleted_and_what_links_lead_to_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "home"))
    data, own = tmp_path / "home" / "data", tmp_path / "own"
    own.mkdir()
    (own / "precious").touch()
    (data / "whole").mkdir(parents=True)
    (data / "link").symlink_to(own)
    (data / "x.tar").touch()
    clean("data", yes=True)
    assert "freed" in capsys.readouterr().out
    assert list(data.iterdir()) == []
    assert (own / "precious").exists()
