"""How many epochs and rounds a ladder counts: more where they are short and nobody asked for a number."""

from __future__ import annotations

import itertools

import pytest
from tests.own_files import TUPLE
from tests.unit.ladder.test_first_round import make_ladder
from tests.unit.ladder.turning import through
from tests.unit.tracking.tracking_samples import MemoryStore
from typer.testing import CliRunner

from laptime.cli import app
from laptime.ladder.counted import MOST_EPOCHS, epochs_of
from laptime.launchers.base import Hooks
from laptime.records import EpochRecord, RunRecord, read_ladder, read_record
from laptime.tracking import replay
from laptime.tracking.events import Started, read_journal

BASELINE = "cpu-baseline"
WORTH = {"resident": 0.5, "dead-taps": 0.6, "bf16": 0.7, "threads": 0.95}


def taking(seconds):
    """Seconds of an epoch by the names of its optimizations, where the baseline takes so long."""

    def seconds_of(names) -> float:
        found = seconds
        for name in names:
            found *= WORTH.get(name, 2.0)
        return found

    return seconds_of


def counts(ladder) -> set[int]:
    return {len(record.epochs) for record in ladder.runs}


def started(ladder) -> list[dict[str, str]]:
    """The params of each start of the ladder's own run in its journal."""
    events = read_journal(ladder.journal.path)[1]
    return [event.run.params for event in events if isinstance(event, Started) and event.run.parent is None]


@pytest.mark.parametrize(
    ("epochs", "enough"),
    [((0.05, 0.06), 12), ((0.7, 1.1), 6), ((9.0, 9.0), 2), ((), 2)],
)
def test_a_process_counts_what_fits_into_four_seconds(epochs, enough):
    record = RunRecord(
        status="done", epochs=tuple(EpochRecord(index=i, epoch_s=s, samples=9) for i, s in enumerate(epochs))
    )
    assert epochs_of(record) == enough


def test_an_evaluation_takes_its_part_of_the_seconds():
    epochs = tuple(EpochRecord(index=i, epoch_s=0.1, evaluate_s=1.9, samples=9) for i in range(2))
    assert epochs_of(RunRecord(status="done", epochs=epochs)) == 2
    assert epochs_of(RunRecord(status="failed", epochs=epochs[:1])) == 2


def test_short_epochs_are_counted_more_often_by_all_processes_of_a_ladder(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, taking(0.05), epochs=None)
    said = []
    ladder.say = said.append
    told = through(ladder)
    assert told[:2] == [BASELINE + ", round 1 of 2"] * 2
    assert told.count(BASELINE + ", round 2 of 2") == 1
    assert counts(ladder) == {MOST_EPOCHS}
    assert {len(r.epochs) for r in ladder.trials[1:]} == {MOST_EPOCHS}
    assert read_ladder(ladder.folder / "ladder.json").epochs == MOST_EPOCHS
    (first,) = (ladder.folder / "trials").glob(f"{BASELINE}-retracted-*")
    assert len(read_record(first / "record.json").epochs) == 4
    assert said == ["An epoch is short, so that each process counts 12 in place of 4 (--epochs N decides)."]


@pytest.mark.parametrize(
    ("seconds", "options", "count"),
    [(0.5, {"epochs": None}, 4), (0.05, {"epochs": 3}, 3), (0.3, {"epochs": None}, 12)],
)
def test_others_count_what_was_asked_for(tmp_path, monkeypatch, seconds, options, count):
    ladder = make_ladder(tmp_path, monkeypatch, taking(seconds), **options)
    told = through(ladder)
    assert counts(ladder) == {count}
    assert told.count(BASELINE + ", round 1 of 2") == (2 if count == MOST_EPOCHS else 1)


def test_a_baseline_that_fails_settles_nothing(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, taking(0.05), status_of=lambda _: "failed", epochs=None)
    assert through(ladder) == [BASELINE + ", round 1 of 2"]


def test_a_ladder_of_short_epochs_that_is_cut_off_goes_on_to_the_same_end(tmp_path, monkeypatch):
    def begun(place, before=None):
        return make_ladder(tmp_path / place, monkeypatch, taking(0.05), before=before, epochs=None)

    whole = begun("whole")
    told = through(whole)
    for cut in (1, 2, 3, len(told) - 1):
        before = begun(str(cut))
        for turn in itertools.islice(before.turns(), cut):
            before.run(turn, Hooks())
        before.journal.close()
        after = begun(str(cut), read_ladder(before.folder / "ladder.json").turns)
        assert through(after) == told
        assert after.record.rungs == whole.record.rungs
        assert [r.spec.digest() for r in after.runs] == [r.spec.digest() for r in whole.runs]
        assert len(list((after.folder / "trials").glob(f"{BASELINE}-retracted-*"))) == 1


def lasting(ladder, seconds):
    """A ladder whose turns take so long by its clock."""
    ladder.clock = itertools.count(0.0, seconds).__next__
    return ladder


def test_short_processes_make_twice_as_many_rounds(tmp_path, monkeypatch):
    ladder = lasting(make_ladder(tmp_path, monkeypatch, taking(9.0), repeats=None), 4.0)
    said = []
    ladder.say = said.append
    told = through(ladder)
    assert told[:2] == [BASELINE + ", round 1 of 3", "cpu-decoded, round 1 of 6"]
    assert said == ["A process is short, so that there are 6 rounds in place of 3 (--repeats N decides)."]
    assert [r.spec.repeat for r in ladder.runs if r.spec.variant == "cpu-optimized"] == list(range(6))
    assert read_ladder(ladder.folder / "ladder.json").repeats == 6


@pytest.mark.parametrize(
    ("turn_s", "options", "rounds"),
    [
        (6.0, {"repeats": None}, 3),
        (4.0, {"repeats": 2}, 2),
        (4.0, {"repeats": None, "budget": 600.0}, 3),
    ],
)
def test_other_ladders_have_the_rounds_of_their_preset_or_what_was_asked_for(
    tmp_path, monkeypatch, turn_s, options, rounds
):
    ladder = lasting(make_ladder(tmp_path, monkeypatch, taking(9.0), **options), turn_s)
    through(ladder)
    assert sum(r.spec.variant == BASELINE for r in ladder.runs) == rounds


def test_a_baseline_that_fails_adds_no_rounds(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, taking(9.0), status_of=lambda _: "failed", repeats=None)
    assert through(lasting(ladder, 4.0)) == [BASELINE + ", round 1 of 3"]
    assert ladder.preset.repeats == 3


def test_a_ladder_with_more_rounds_that_is_cut_off_has_as_many_when_it_goes_on(tmp_path, monkeypatch):
    """What its first turn took stands in its record, whatever taking it from there takes."""
    whole = lasting(make_ladder(tmp_path / "whole", monkeypatch, taking(0.05), epochs=None, repeats=None), 4.0)
    told = through(whole)
    for cut in (1, 2, len(told) - 1):
        before = lasting(make_ladder(tmp_path / str(cut), monkeypatch, taking(0.05), epochs=None, repeats=None), 4.0)
        for turn in itertools.islice(before.turns(), cut):
            before.run(turn, Hooks())
        before.journal.close()
        turns = read_ladder(before.folder / "ladder.json").turns
        after = make_ladder(tmp_path / str(cut), monkeypatch, taking(0.05), before=turns, epochs=None, repeats=None)
        after.record = after.record.model_copy(update={"turns_s": before.record.turns_s})
        assert through(lasting(after, 60.0)) == told
        assert [r.spec.digest() for r in after.runs] == [r.spec.digest() for r in whole.runs]


@pytest.mark.parametrize(("turn_s", "rounds"), [(4.0, "6"), (6.0, "3")])
def test_the_run_in_the_store_has_the_rounds_that_were_settled(tmp_path, monkeypatch, turn_s, rounds):
    ladder = lasting(make_ladder(tmp_path, monkeypatch, taking(9.0), repeats=None), turn_s)
    ladder.record = ladder.record.model_copy(update={"repeats": 3})
    through(ladder)
    assert [params.get("repeats") for params in started(ladder)] == [None, rounds]


@pytest.mark.parametrize(("seconds", "count"), [(0.05, "12"), (100.0, "3")])
def test_the_run_in_the_store_has_the_count_that_was_settled(tmp_path, monkeypatch, seconds, count):
    ladder = make_ladder(tmp_path, monkeypatch, taking(seconds), epochs=None)
    through(ladder)
    assert [params.get("epochs") for params in started(ladder)] == [None, count]
    store = MemoryStore()
    replay(ladder.journal.path, store, str)
    kinds = {store.runs[f"id-{key}"]["tags"].get("laptime.kind") for key in store.created if f"/{BASELINE}" in key}
    assert ("retracted" in kinds) == (count == "12")


def test_a_plan_of_a_training_of_one_s_own_says_that_more_may_count(tmp_path):
    (tmp_path / "mine.py").write_text(TUPLE)

    def planned(workload, *options) -> str:
        asked = ["optimize", workload, "--device", "cpu", "--dry-run", *options]
        return " ".join(CliRunner().invoke(app, asked).output.split())

    mine, more = f"{tmp_path}/mine.py:Workload", "each process counts up to 12 (--epochs decides)"
    assert f"Where 2 epochs and their evaluations take less than 2 s, {more}" in planned(mine)
    assert more not in planned(mine, "--epochs", "2")
    assert more not in planned("cifar")
    rounds = "process takes at most 5 s, there are 6 rounds in place of 3 (--repeats decides)"
    assert rounds in planned(mine, "--epochs", "2")
    assert rounds not in planned(mine, "--repeats", "3")
