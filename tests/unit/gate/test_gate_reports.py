from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gate_examples import WORKED, gate, pairs

from laptime.gate.records import Trouble, read_gate
from laptime.gate.reports import to_annotation, to_json, to_junit, to_markdown, write_reports

GOLDEN = Path(__file__).parents[2] / "golden"
HOSTILE = "<script>x</script>|[a](b)`c`\x1b[31m@team\n::error::"


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("LAPTIME_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_regressed_gate_in_all_forms():
    grown = pairs(WORKED, parts_s={"data": 0.7, "forward": 0.6, "backward": 1.0})
    record = gate(pairs=grown)
    golden("gate.md", to_markdown(record))
    golden("gate.xml", to_junit(record))
    assert to_annotation(record).startswith("::error title=laptime gate cifar%3A regressed::Head's epochs are slower")
    assert "%25" in to_annotation(record)


@pytest.mark.parametrize(
    ("changes", "tag", "level"),
    [
        ({"log_ratios": (0.0, 0.001, 0.0, 0.001)}, None, "notice"),
        ({"log_ratios": WORKED[:2]}, "skipped", "warning"),
        ({"trouble": Trouble(kind="invalid", reason="base crashed")}, "error", "error"),
        ({"trouble": Trouble(kind="error", reason="head crashed", log="boom")}, "error", "error"),
        ({}, "failure", "error"),
    ],
)
def test_junit_and_annotation_by_verdict(changes, tag, level):
    record = gate(**changes)
    suite = ElementTree.fromstring(to_junit(record)).find("testsuite")
    assert suite is not None
    case = suite.find("testcase")
    assert case is not None
    assert {c.tag for c in case} - {"system-out"} == ({tag} if tag else set())
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    assert {k: suite.get(k) for k in counted} == {k: str(int(v == tag)) for k, v in counted.items()}
    assert to_annotation(record).startswith(f"::{level} title=")


def test_foreign_text_stays_text():
    record = gate(
        workload=HOSTILE, notices=(HOSTILE,), trouble=Trouble(kind="error", reason=HOSTILE, log=f"a\n{HOSTILE}")
    )
    text = to_markdown(record)
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<script>" not in outside
    assert "\x1b" not in text
    assert "@team" not in outside
    ElementTree.fromstring(to_junit(record))
    assert to_annotation(record).count("\n") == 0


def test_reports_are_written_where_they_are_asked_for(tmp_path):
    record = gate()
    write_reports(record, {"json": tmp_path / "a" / "g.json", "junit": None, "markdown": tmp_path / "g.md"})
    assert read_gate(tmp_path / "a" / "g.json") == record
    assert (tmp_path / "g.md").read_text() == to_markdown(record)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "g.md"]
    assert to_json(record).endswith("}\n")


@pytest.mark.parametrize("by_turns", [True, False])
def test_the_report_says_whether_epochs_went_by_turns(by_turns):
    some = tuple(p.model_copy(update={"by_turns": by_turns}) for p in gate().pairs)
    assert ("4 pairs, epochs by turns;" in to_markdown(gate(pairs=some))) is by_turns
