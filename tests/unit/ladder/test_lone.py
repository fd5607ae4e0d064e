"""A run alone that is told to the journal: how it ends there, its advice, and what fails beside it."""

from dataclasses import replace

import pytest
from tests.unit.conftest import make_data_spec
from tests.unit.ladder.advised import a_finding, a_run, the_advice

from laptime.errors import RunError, TrackingError
from laptime.ladder import lone as lone_module
from laptime.ladder import single as single_module
from laptime.ladder.lone import LoneRun
from laptime.ladder.request import LadderRequest
from laptime.ladder.single import plan_single
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.records import EpochRecord, Machine, RunRecord, write_json
from laptime.tracking.events import Ended, Measured, Started, Tagged, read_journal

# tensorboard 2.21 imports what newer libraries deprecate
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")]

AWAY = "http://127.0.0.1:9"


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts a run whose process is replaced: by what it leaves, or by what it ends with."""

    def start(outcome, variant="cpu-resident", rules=None):
        def launch(_launcher, spec, folder, _hooks):
            write_json(folder / "spec.json", spec)
            if isinstance(outcome, BaseException):
                raise outcome
            record = outcome(spec)
            write_json(folder / "record.json", record)
            return record

        monkeypatch.setattr(single_module, "fetch_data", lambda *_: make_data_spec(train=1000, test=500))
        monkeypatch.setattr(single_module, "launch", launch)
        monkeypatch.setattr(lone_module, "the_rules", lambda: rules or the_advice({}))
        monkeypatch.setenv("LAPTIME_COMMIT", "abc")  # which the run sets anew
        places = Places(tmp_path / "home")
        start.said = []
        request = LadderRequest(variants=(variant,), epochs=2)
        return LoneRun(plan_single(request, (), places, start.said.append), places, AWAY, start.said.append)

    return start


def events_of(run):
    return read_journal(run.places.journal / f"{run.single.id}.jsonl")[1]


def through(run):
    with run:
        record = run.run(Hooks())
        run.tell(record)
    return record


def test_a_run_is_whole_in_the_journal_with_its_advice(started):
    finding = a_finding("copies", "cpu-resident+pinned")
    run = started(a_run, rules=the_advice({"cpu-resident": (finding,)}))
    (start,) = events_of(run)
    assert start.run.parent is None
    assert start.run.params["variant"] == "cpu-resident"
    record = through(run)
    assert record.status == "done"
    assert run.advice.findings == (finding,)
    events = events_of(run)
    assert (events[-1].event, events[-1].status) == ("end", "FINISHED")
    rows = {row[0]: row[1] for e in events if isinstance(e, Measured) for row in e.rows}
    assert rows["epoch_s_median"] == 0.5
    assert not [name for name in rows if name.startswith("speedup") or name == "time_to_accuracy_s"]
    filed = {e.path.name for e in events if e.event == "artifact"}
    assert filed >= {"spec.json", "record.json", "advice.json", "advice.md", "tensorboard"}
    assert (run.single.folder / "advice.md").read_text().startswith("Look at cpu-resident.")


def test_a_run_that_is_interrupted_once_it_has_trained_is_told_as_what_it_is(started):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    run = started(a_run, rules=the_advice({})._replace(advise=interrupted))
    with pytest.raises(KeyboardInterrupt):
        through(run)
    *_, ended = events_of(run)
    assert (ended.event, ended.status) == ("end", "FINISHED")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [(KeyboardInterrupt(), "KILLED", "interrupted"), (RunError("no room"), "FAILED", "no room")],
)
def test_a_run_without_a_record_ends_too(started, error, status, reason):
    run = started(error)
    with pytest.raises(type(error)):
        through(run)
    *_, ended = events_of(run)
    assert (ended.event, ended.status) == ("end", status)
    assert {"laptime.error": reason} in [e.tags for e in events_of(run) if isinstance(e, Tagged)]


def test_a_failed_run_is_told_and_not_advised_on(started):
    run = started(lambda spec: RunRecord(status="failed", error="it broke", spec=spec))
    through(run)
    assert run.advice is None
    assert not (run.single.folder / "advice.json").exists()
    *_, ended = events_of(run)
    assert ended.status == "FAILED"
    assert [e.run.tags["laptime.error"] for e in events_of(run) if isinstance(e, Started)] == ["", "it broke"]


def test_rules_that_crash_cost_a_notice(started):
    def crash(*_):
        raise ZeroDivisionError("a figure")

    run = started(a_run, rules=replace_advise(crash))
    through(run)
    assert "NOTICE: no advice can be given: ZeroDivisionError: a figure" in started.said
    assert events_of(run)[-1].status == "FINISHED"


def replace_advise(advise):
    return the_advice({})._replace(advise=advise)


def test_a_journal_that_finds_no_room_does_not_hide_what_went_wrong(started, monkeypatch):
    def full(*_):
        raise TrackingError("the journal can't be written")

    run = started(RunError("no room for the record"))
    monkeypatch.setattr(lone_module, "lone_broken_off", full)
    with pytest.raises(RunError, match="no room for the record"):
        through(run)
    assert not [e for e in events_of(run) if isinstance(e, Ended)]


def test_a_store_that_is_away_is_said_once_and_costs_nothing(started):
    run = started(a_run)
    through(run)
    assert not run.publish()
    assert run.run_id is None
    (sentence,) = started.said
    assert AWAY in sentence
    assert f"/{run.single.id}.jsonl is kept, of which 0 of its {len(events_of(run))} entries arrived" in sentence
    assert "laptime sync sends the rest" in sentence


def test_the_rules_record_is_asked_for_this_machine_first(started, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(lone_module, "rule_history", lambda uri, _say, machine: asked.append((uri, machine)) or {})
    run = started(lambda spec: a_run(spec).model_copy(update={"machine": Machine(fingerprint="f1")}))
    run.uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    through(run)
    assert asked == [(run.uri, "f1")]


def test_what_an_earlier_advice_promised_is_told_beside_what_came_of_it(started, monkeypatch):
    def timed(seconds):
        accuracy = 0.8 if seconds == 40.0 else 0.71
        epochs = (EpochRecord(index=0, epoch_s=seconds, samples=100, test_accuracy=accuracy),)
        return lambda spec: a_run(spec).model_copy(update={"epochs": epochs, "ended_at": seconds})

    proposes = the_advice({"cpu-baseline": (a_finding("workers", "cpu-baseline+resident", (0.2, 0.24)),)})
    for seconds in (30.0, 40.0):  # the later one counts
        through(started(timed(seconds), "cpu-baseline", proposes))
    run = started(timed(31.0), "cpu-baseline+resident")
    through(run)
    assert "expected 20 to 24 % less: an epoch took 31.0 s here and 40.0 s there, 22 % less; " in run.afterwards
    assert "; accuracy 71.0 % here and 80.0 % there. These are" in run.afterwards
    assert "at different times; laptime optimize --verify-advice" in run.afterwards
    slower = started(timed(44.0), "cpu-baseline+resident")
    through(slower)
    assert "10 % more" in slower.afterwards
    other = started(timed(31.0), "cpu-resident")
    through(other)
    assert other.afterwards is None
    smaller = started(timed(31.0), "cpu-baseline+resident")
    smaller.single = replace(smaller.single, spec=smaller.single.spec.model_copy(update={"limit_train": 10}))
    through(smaller)
    assert smaller.afterwards is None
