from __future__ import annotations

import pytest
from gate_examples import WORKED, gate
from typer.testing import CliRunner

from laptime.cli import app
from laptime.errors import UsageError
from laptime.gate.track import tell
from laptime.tracking import Journal
from laptime.tracking.events import Ended, Filed, Measured, Started, read_journal


def test_a_gate_as_events(tmp_path):
    report = tmp_path / "gate.json"
    report.write_text("{}")
    with Journal(tmp_path / "x.jsonl") as journal:
        tell(journal, gate(), [report])
    _, events = read_journal(tmp_path / "x.jsonl")
    started = next(e for e in events if isinstance(e, Started)).run
    assert started.tags["laptime.kind"] == "gate"
    assert started.tags["laptime.verdict"] == "regressed"
    assert started.params["head"] == "c" * 40
    rows = [row for e in events if isinstance(e, Measured) for row in e.rows]
    by_name = {name: [row for row in rows if row[0] == name] for name, *_ in rows}
    assert [step for _, _, step, _ in by_name["pair_ratio"]] == [1, 2, 3, 4]
    assert [value for _, value, _, _ in by_name["pair_head_first"]] == [0, 1, 0, 1]
    assert [round(value, 3) for _, value, _, _ in by_name["ratio"]] == [1.126]
    assert len(WORKED) == len(by_name["base_epoch_s"])
    assert [e.path for e in events if isinstance(e, Filed)] == [report]
    assert [e.status for e in events if isinstance(e, Ended)] == ["FINISHED"]


@pytest.mark.parametrize("named", ["option", "variable"])
@pytest.mark.parametrize("more", [[], ["--history"]])
def test_what_is_no_store_is_refused_before_anything_runs(tmp_path, monkeypatch, named, more):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mlruns" if named == "variable" else "http://127.0.0.1:9")
    option = ["--tracking-uri", "mlruns"] if named == "option" else []
    found = CliRunner().invoke(app, ["gate", "mine", "--command", "false", *option, *more])
    assert isinstance(found.exception, UsageError)
    assert "'mlruns' names a folder" in str(found.exception)
    assert not (tmp_path / "home").exists()
