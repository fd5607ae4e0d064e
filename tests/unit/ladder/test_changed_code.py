"""A gate of code that was changed as advice said: what it brought beside what was expected."""

from __future__ import annotations

import shlex

import pytest
from tests.unit.conftest import make_data_spec
from tests.unit.gate.gate_examples import gate, pairs
from tests.unit.ladder.advised import a_finding, a_run, the_advice
from typer.testing import CliRunner

from laptime.cli import app
from laptime.cli import gate as gate_command
from laptime.errors import UsageError
from laptime.gate.brought import in_words, measured
from laptime.gate.records import Trouble
from laptime.ladder.advising import write_advice
from laptime.places import Places
from laptime.records import Advice, RunRecord, write_json
from laptime.spec import OptimizationSpec, OwnSpec, RunSpec
from laptime.tracking.events import Measured as Told
from laptime.tracking.events import Started, read_journal

ID = "hot-operator/slices"
# A fifth less, pair by pair.
FASTER = (-0.24, -0.21, -0.23, -0.22)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A checkout with a training in it, and a home of laptime's in which nothing has run."""
    (tmp_path / "train.py").write_text("workload = None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Places(home=tmp_path / "home")


def advised_run(
    home, *findings, variant="cpu-baseline", ended_at=1.0, optimizations=(), name="20260101-000000-train-0"
):
    """A ladder's run of that training with its advice; returns its folder."""
    own = OwnSpec(attribute="workload", name="train", batch_size=32, learning_rate=1e-3, quality="loss")
    data = make_data_spec().model_copy(update={"kind": "own", "path": str(home.home.parent / "train.py"), "own": own})
    spec = RunSpec(variant=variant, workload="train", device="cpu", data=data, optimizations=optimizations)
    record: RunRecord = a_run(spec).model_copy(update={"ended_at": ended_at})
    folder = home.runs / name / f"{variant}-0"
    folder.mkdir(parents=True)
    write_json(folder / "record.json", record)
    write_advice(folder, Advice(subject=variant, verdict="Look.", findings=findings), the_advice({}))
    return folder


def a_change(name=ID):
    command = f"cd . && laptime gate train.py:workload --advised {name}"
    return a_finding(name, gain=(0.1, 0.3), command="steps = x.unbind(1)", measured_by=command)


def asked(*more, variant="cpu-baseline"):
    return CliRunner().invoke(app, ["gate", "train.py:workload", "--variant", variant, "--base", "HEAD", *more])


def test_a_gate_says_what_a_change_brought_and_keeps_it_with_the_advice_and_the_rule(home, monkeypatch):
    advised_run(home, a_change())
    folder = advised_run(home, a_change(), a_change("attention"), ended_at=2.0, name="20260102-000000-train-0")
    monkeypatch.setattr("laptime.gate.whole.run_gate", lambda *_: gate(FASTER, workload="train.py:workload"))
    monkeypatch.setattr("laptime.gate.track.sync", lambda *_: None)
    found = asked("--advised", ID, "--tracking-uri", f"sqlite:///{home.home}/mlflow.db")
    assert found.exit_code == 0, found.output
    assert f"expected 10 to 30 % less by {ID}: the change took 20 % less (1" in found.output
    kept = Advice.model_validate_json((folder / "advice.json").read_text())
    by_id = {f.id: f.measured for f in kept.findings}
    assert by_id["attention"] is None
    assert by_id[ID].gain == pytest.approx(0.2, abs=0.01)
    assert by_id[ID].n == len(FASTER)
    assert kept.verdict.endswith("1 of 1 remedies that were run made it faster.")
    (journal,) = home.journal.glob("*.jsonl")
    events = read_journal(journal)[1]
    told = [e.run for e in events if isinstance(e, Started)]
    assert [run.tags["laptime.kind"] for run in told] == ["gate", "advice"]
    assert told[1].parent == told[0].key
    rows = {row[0]: row[1] for e in events if isinstance(e, Told) for row in e.rows}
    assert rows["advice_gain_measured"] == pytest.approx(0.2, abs=0.01)
    assert rows["advice_gain_predicted"] == pytest.approx(0.2)


def test_a_gate_without_pairs_leaves_the_advice_alone(home, monkeypatch):
    folder = advised_run(home, a_change())
    before = (folder / "advice.json").read_text()
    broken = gate((), trouble=Trouble(kind="error", reason="head crashes: NameError"))
    monkeypatch.setattr("laptime.gate.whole.run_gate", lambda *_: broken)
    found = asked("--advised", ID, "--no-track")
    assert found.exit_code == 5
    assert "nothing was measured: " in found.output
    assert "NameError" in found.output
    assert (folder / "advice.json").read_text() == before


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ["--advised", "attention"],
            f"'attention' stands in no advice on cpu-baseline of train.py:workload here: it has {ID}",
        ),
        (["--advised", "workers"], "'workers' is no change of code, but a variant to run: laptime run"),
        (["--advised", ID, "--aa", "4"], "without --command and --aa"),
        (["--advised", ID, "--command", "true"], "without --command and --aa"),
        (["--advised", ID, "--history"], "leave out --replay and --history"),
    ],
)
def test_what_no_change_of_code_is_named_by_is_refused_before_anything_runs(home, more, told):
    advised_run(home, a_change(), a_finding("workers", "cpu-baseline+workers"))
    found = asked(*more, "--no-track")
    assert isinstance(found.exception, UsageError)
    assert told in str(found.exception)


def test_without_advice_on_the_variant_it_is_said_how_to_have_some(home):
    advised_run(home, a_change(), variant="cpu-optimized", optimizations=(OptimizationSpec(name="bf16"),))
    found = asked("--advised", ID, "--no-track")
    assert "run laptime optimize train.py:workload and see what it advises" in str(found.exception)


def test_a_variant_is_found_by_its_name_and_written_out(home, monkeypatch):
    advised_run(home, a_change(), variant="cpu-tuned", optimizations=(OptimizationSpec(name="fused-optimizer"),))
    seen = []
    monkeypatch.setattr(gate_command, "_run", lambda *_: seen.append(1) or (0, None))
    for variant in ("cpu-baseline+fused-optimizer",):
        assert asked("--advised", ID, "--no-track", variant=variant).exit_code == 0
    assert seen == [1]


def test_two_folders_are_found_by_the_one_that_was_advised_on(home, monkeypatch, tmp_path):
    advised_run(home, a_change())
    other = tmp_path / "before"
    other.mkdir()
    (other / "train.py").write_text("workload = None\n")
    monkeypatch.chdir(other.parent.parent)
    seen = []
    monkeypatch.setattr(gate_command, "_run", lambda *_: seen.append(1) or (0, None))
    words = ["gate", "train.py:workload", "--variant", "cpu-baseline", "--advised", ID, "--no-track"]
    found = CliRunner().invoke(app, [*words, "--base-dir", str(other), "--head-dir", str(tmp_path)])
    assert (found.exit_code, seen) == (0, [1])


def test_quality_is_kept_lost_or_not_told():
    same = measured(gate(FASTER))
    assert (same.quality_kept, same.quality.split(":")[0]) == (True, "quality kept")
    lower = [p.model_copy(update={"head": p.head.model_copy(update={"test_accuracy": 0.3})}) for p in pairs(FASTER)]
    assert measured(gate(FASTER, pairs=tuple(lower))).quality_kept is False
    blind = [
        p.model_copy(update={side: getattr(p, side).model_copy(update={"stand_in": True}) for side in ("base", "head")})
        for p in pairs(FASTER)
    ]
    assert measured(gate(FASTER, pairs=tuple(blind))).quality_kept is None


def test_a_change_that_made_it_slower_is_said_to_be():
    words = in_words(a_change(), measured(gate((0.1, 0.12, 0.09, 0.11))), "cpu-baseline")
    assert "took 11 % more (-1" in words
    assert shlex.split(a_change().measured_by)[-1] == ID
