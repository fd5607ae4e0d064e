"""`scripts/bench gate`: what is kept of a batch reads back, and its page draws gates by machine."""

import json
import random
from pathlib import Path

import pytest
from tests.unit.gate.gate_examples import gate, pairs

from laptime.gate.records import GateRecord, read_gate
from laptime.records import Machine

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def report(monkeypatch, script):
    found = script("gate_report")
    monkeypatch.setattr(found, "_GATES", 200)
    monkeypatch.setattr(found, "_CALLS", 3)
    return found


def batch(cpu: str, count: int, noise: float, day: int = 0) -> GateRecord:
    draw = random.Random(f"{cpu} {day}")
    some = pairs([draw.gauss(0.0, noise) for _ in range(count)])
    some = tuple(p.model_copy(update={"base": p.base.model_copy(update={"steps": 20})}) for p in some)
    started_at = 1_700_000_000.0 + 86_400 * day
    return gate(mode="aa", machine=Machine(cpu=cpu, cores=2), pairs=some, started_at=started_at, id=f"{cpu}-{day}")


def write(report, folder: Path, *records: GateRecord) -> None:
    folder.mkdir(exist_ok=True)
    for record in records:
        (folder / f"{record.id}.json").write_text(json.dumps(report.cut_down(record)))


def test_a_batch_that_is_kept_reads_back(report, tmp_path):
    record = batch("slow", 6, 0.03)
    write(report, tmp_path, record)
    found = read_gate(tmp_path / "slow-0.json")
    assert found.schema_ == "laptime.gate/1"
    assert found.log_ratios == record.log_ratios
    assert found.machine == record.machine
    assert [(p.order, p.seed, p.counted, p.base.wall_s) for p in found.pairs] == [
        (p.order, p.seed, p.counted, p.base.wall_s) for p in record.pairs
    ]


def test_the_page_draws_gates_from_each_machine(report, tmp_path):
    kept = tmp_path / "kept"
    write(report, kept, batch("quiet", 10, 0.01), batch("quiet", 14, 0.01, day=2), batch("loud", 36, 0.2, day=1))
    write(report, kept, batch("seldom", 10, 0.01))
    text = report.page(tmp_path, kept)
    assert "1. quiet, 2 cores" in text
    assert "2023-11-14 to 2023-11-16" in text
    assert "2. loud, 2 cores" in text
    assert "seldom" not in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    tables = [[cell.strip("| ") for cell in row] for row in rows]
    (quiet, loud) = (next(row for row in tables if row[0] == number) for number in "12")
    assert (quiet[1], loud[1]) == ("24", "36")
    assert float(quiet[4].rstrip(" %")) < 2
    assert float(loud[4].rstrip(" %")) > 10
    # With no change put in, gates of the quiet machine are decided, and most of the loud one's are not.
    (decided,) = (row for row in tables if row[:3] == ["1", "known", "none"])
    (undecided,) = (row for row in tables if row[:3] == ["2", "known", "none"])
    assert decided[3] == "100.00 %"
    assert float(undecided[6].rstrip(" %")) > 50


def test_a_process_costs_what_it_takes_beside_its_epochs(report, tmp_path):
    record = batch("quiet", 24, 0.0)
    write(report, tmp_path / "kept", record)
    text = report.page(tmp_path, tmp_path / "kept")
    # Epochs of 1.98, 2 and 2.6 s within 10 s, and before them one of 2 s, all 20 steps of it.
    assert f"{10 / (1.98 + 2 + 2.6 + 2):.2f}" in text
    assert "epochs of 2.0 s" in text


def test_pairs_by_turns_are_kept_as_such_and_are_a_group_of_their_own(report, tmp_path):
    kept = tmp_path / "kept"
    plain, turned = batch("same", 20, 0.05), batch("same", 24, 0.05, day=1)
    uneven = {"epoch_s": (1.0, 2.0, 3.0)}
    some = [p.model_copy(update={"by_turns": True, "base": p.base.model_copy(update=uneven)}) for p in turned.pairs]
    turned = turned.model_copy(update={"schema_": "laptime.gate/2", "pairs": tuple(some)})
    write(report, kept, plain, turned)
    found = read_gate(kept / "same-1.json")
    assert (found.schema_, found.by_turns) == ("laptime.gate/2", True)
    assert found.log_ratios == turned.log_ratios
    text = report.page(tmp_path, kept)
    first, second = (line for line in text.splitlines() if line[:3] in ("1. ", "2. "))
    assert "one after the other" in first
    assert "by turns" in second


def test_no_page_is_drawn_from_too_few(report, tmp_path):
    write(report, tmp_path / "kept", batch("seldom", 19, 0.01))
    with pytest.raises(SystemExit, match="there are no 20 pairs"):
        report.page(tmp_path, tmp_path / "kept")
