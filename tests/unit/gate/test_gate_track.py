from __future__ import annotations

from gate_examples import WORKED, gate

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
