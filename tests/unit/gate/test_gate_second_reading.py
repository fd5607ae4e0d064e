"""What a gate says of lost scores, of base against itself, of odd limits and of commands."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gate_examples import gate, pairs, process

from laptime.cli.gate import _finish
from laptime.cli.gate_history import show
from laptime.errors import UsageError
from laptime.gate.records import PairRecord, PolicyRecord
from laptime.gate.reports import check_places, to_annotation, to_junit, to_markdown
from laptime.gate.request import make_gate_request
from laptime.places import Places

SAME = [0.001, -0.001, 0.0005, -0.0008] * 2
SLOWER = [0.19, 0.2, 0.21, 0.2] * 2


def with_quality(base: dict[str, float | None], head: dict[str, float | None]) -> tuple[PairRecord, ...]:
    return tuple(
        PairRecord(
            number=i, order="AB", seed=i, base=process("base", i, 2.0, **base), head=process("head", i, 2.0, **head)
        )
        for i in range(1, 9)
    )


@pytest.mark.parametrize(
    ("name", "base", "head"),
    [
        ("test score", {"test_score": 0.8, "test_loss": 1.0}, {"test_score": None, "test_loss": 1.0}),
        ("test accuracy", {"test_accuracy": 0.8, "test_loss": 1.0}, {"test_accuracy": None, "test_loss": 1.0}),
        ("test accuracy", {"test_accuracy": 0.8, "test_loss": 1.0}, {"test_accuracy": math.nan, "test_loss": 1.0}),
    ],
)
def test_a_quality_that_head_lacks_is_lost_though_a_loss_is_left(
    name: str, base: dict[str, float | None], head: dict[str, float | None]
) -> None:
    record = gate(pairs=with_quality({"test_accuracy": None, **base}, {"test_accuracy": None, **head}), noise=0.003)
    assert record.outcome is not None
    assert (record.outcome.kind, record.outcome.exit_code) == ("parity", 6)
    assert f"has no {name} any more" in record.outcome.sentence
    assert name not in {c.name for c in record.outcome.checks}


def test_that_nobody_judged_quality_on_a_stand_in_is_said() -> None:
    record = gate(pairs=with_quality({"stand_in": True}, {"test_accuracy": 0.1, "stand_in": True}), noise=0.003)
    assert record.outcome is not None
    assert record.outcome.kind == "not_regressed"
    assert "Quality was not judged: the data is a stand-in." in record.outcome.not_shown


def test_base_against_itself_fails_by_no_verdict() -> None:
    slower, alike = gate(SLOWER), gate(SLOWER, mode="aa")
    assert slower.outcome is not None
    assert alike.outcome is not None
    assert (slower.outcome.exit_code, alike.outcome.exit_code) == (1, 0)
    assert alike.outcome.sentence.startswith("Base against itself, to measure the noise: ")
    for record, failures in ((slower, "1"), (alike, "0")):
        suite = ElementTree.fromstring(to_junit(record).split("?>", 1)[1]).find("testsuite")
        assert suite is not None
        assert suite.get("failures") == failures
    assert to_annotation(slower).startswith("::error")
    assert to_annotation(alike).startswith("::notice")


@pytest.mark.parametrize(
    "given",
    [
        {"base_dir": "a", "head_dir": "b"},
        {"command_base": "a {record}", "command_head": "b {record}"},
    ],
)
def test_base_against_itself_takes_no_second_side(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--aa measures base against itself"):
        make_gate_request(workload="x", aa=6, device="cpu", **given)
    assert make_gate_request(workload="x", aa=6, device="cpu", base_dir="a", head_dir="a").aa == 6


@pytest.mark.parametrize(
    ("name", "value"), [("limit_train", 100), ("limit_test", 100), ("epochs", 5), ("data", "synthetic")]
)
def test_what_no_command_hears_of_is_refused_beside_one(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"--{name.replace('_', '-')} does not reach a command"):
        make_gate_request(workload="x", command="train {record}", device="none", **{name: value})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python 'train.py", "can't be split into words: No closing quotation"),
        ("   ", "names no program"),
        ("cd ml && python train.py", "is for a shell, and none reads it: give sh -c"),
        ("OMP_NUM_THREADS=1 python train.py", "is for a shell"),
        ("python train.py > log.txt", "is for a shell"),
    ],
)
def test_a_command_is_words_and_no_line_of_a_shell(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"^--command .*{re.escape(said)}"):
        make_gate_request(workload="x", command=command, device="none")
    assert make_gate_request(workload="x", command="sh -c 'cd ml && python train.py > log'", device="none")


def test_a_report_that_can_not_be_written_is_refused_before_and_no_summary_changes_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "gate.json"):
        with pytest.raises(UsageError, match=r"^--json .* can't be written"):
            check_places({"markdown": None, "json": place})
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "gone" / "summary.md"))
    assert _finish(gate(SLOWER), {}, github=True) == 1
    assert "The step summary was not written" in capsys.readouterr().err


@pytest.mark.parametrize(("limit", "said"), [(0.025, "2.5 %"), (0.005, "0.5 %"), (0.1, "10 %")])
def test_a_limit_is_said_as_it_was_given(limit: float, said: str) -> None:
    record = gate([0.0001, -0.0001, 0.0, 0.0002] * 2, noise=0.0005, policy=PolicyRecord(max_slowdown=limit))
    assert record.outcome is not None
    assert f"are not slower by {said}: " in record.outcome.sentence
    assert f"A slowdown below {said} may still be there." in record.outcome.not_shown


def test_the_table_of_pairs_shows_the_times_that_decide() -> None:
    times = {"base": (2.0, 3.0), "head": (2.9, 1.0)}
    base, head = (process(s, 0, 2.0, samples=(1, 1)).model_copy(update={"epoch_s": t}) for s, t in times.items())
    record = gate(pairs=(PairRecord(number=1, order="AB", seed=0, base=base, head=head),))
    assert "| 2.449 | 1.703 | -30.5 % |" in to_markdown(record)
    short = PairRecord(number=1, order="AB", seed=0, base=process("base", 0, 2.0), head=process("head", 0, 0.00123))
    assert "| 2.000 | 0.00123 |" in to_markdown(gate(pairs=(short,)))
    quiet = gate([0.00011, -0.0001, 0.0001, 0.0], noise=0.00034)
    assert "known noise of a pair 0.034 %, 0.02" in to_markdown(quiet)


def test_history_as_json_is_written_where_there_is_none(tmp_path: Path) -> None:
    assert show("cifar", Places(tmp_path), None, tmp_path / "h.json") == 0
    assert json.loads((tmp_path / "h.json").read_text())["trends"] == []


def test_pairs_without_a_change_pass() -> None:
    record = gate(pairs=pairs(SAME), noise=0.003)
    assert record.outcome is not None
    assert record.outcome.kind == "not_regressed"
