"""A search ends in time for the comparison that follows it."""

from __future__ import annotations

import re

import pytest
from tests.unit.ladder.turning import through
from tests.unit.tune.searching import a_search
from tests.unit.tune.test_search import adopted, best_at_1024

from laptime.launchers.base import Hooks


@pytest.mark.parametrize(("minutes", "few", "many"), [(12, 1, 4), (17, 3, 10), (600, 13, 20)])
def test_a_search_ends_within_its_budget_or_where_nothing_is_left(tmp_path, monkeypatch, minutes, few, many):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, budget=f"{minutes}m")
    through(ladder)
    search, took = ladder.record.search, sum(ladder.record.turns_s)
    assert search.budget_s == minutes * 60
    assert few <= len(search.moves) <= many
    assert took <= search.budget_s
    assert search.spent_s < took
    spent = minutes < 600
    assert (search.ended == "the rest of the budget is for what follows") == spent
    assert bool(search.untried) == spent
    assert not {m.change for m in search.moves} & set(search.untried)


def test_a_budget_without_time_for_a_change_still_compares(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, budget="3m")
    told = through(ladder)
    assert ladder.record.search.moves == ()
    assert adopted(ladder) == []
    assert "large-batch:size=1024" in ladder.record.search.untried
    ended = ladder.record.search.ended
    assert re.fullmatch(
        r"the budget of 3 minutes holds no change, since what follows takes about \d+\.\d minutes: give .*", ended
    )
    whole = [("cpu-baseline", 1), ("cpu-optimized", 1), ("cpu-optimized", 2), ("cpu-baseline", 2)]
    assert told == [f"{name}, round {n} of 2" for name, n in whole]


def test_a_slow_first_minute_does_not_end_a_search(tmp_path, monkeypatch):
    def seconds(spec) -> float:
        slow = spec.variant == "cpu-optimized" and spec.check
        return best_at_1024(spec) * (6 if slow else 1)

    ladder = a_search(tmp_path, monkeypatch, seconds, budget="14m")
    through(ladder)
    assert len(ladder.trials) > 2
    assert ladder.record.search.ended == "the rest of the budget is for what follows"


def test_the_view_counts_down_to_the_end_of_the_budget(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, budget="25m")
    totals = []
    for turn in ladder.turns():
        assert turn.number <= turn.total
        totals.append(turn.total)
        ladder.run(turn, Hooks())
    ladder.journal.close()
    searching = [total for total in totals if total > 10]
    assert max(searching) < 2 * len(totals)


def test_no_more_turns_are_announced_than_changes_can_take(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, lambda spec: best_at_1024(spec) / 1000, budget="100h")
    totals = []
    for turn in ladder.turns():
        totals.append(turn.total)
        ladder.run(turn, Hooks())
    ladder.journal.close()
    assert max(totals) < 6 * len(ladder.record.search.moves) + len(totals)


@pytest.mark.parametrize(("seconds", "epochs"), [(0.1, 12), (0.5, 8), (1.5, 3), (30.0, 2)])
def test_a_process_of_a_search_trains_about_half_as_long_as_it_starts(tmp_path, monkeypatch, seconds, epochs):
    ladder = a_search(tmp_path, monkeypatch, lambda spec: seconds * (1 if spec.optimizations else 2))
    through(ladder)
    searched = [r.spec for r in ladder.trials]
    assert searched
    usual = {s.epochs for s in searched if "large-batch" in {o.name for o in s.optimizations}}
    assert usual == {epochs}
    assert {r.spec.epochs for r in ladder.runs} == {3}


def test_a_first_change_that_breaks_is_not_taken_for_a_budget_without_room(tmp_path, monkeypatch):
    def status(spec) -> str:
        return "failed" if "threads:count=1" in spec.variant else "done"

    def slower(spec) -> float:
        return best_at_1024(spec) * (60 if "threads:count=1" in spec.variant else 1)

    ladder = a_search(tmp_path, monkeypatch, slower, status=status, budget="16m")
    through(ladder)
    search = ladder.record.search
    assert [(m.change, m.outcome) for m in search.moves] == [("threads:count=1", "failed")]
    assert search.ended == "the rest of the budget is for what follows"


@pytest.mark.parametrize(("minutes", "outcome"), [(12, "not shown"), (14, "faster")])
def test_what_seems_best_is_decided_on_in_the_time_that_few_pairs_take(tmp_path, monkeypatch, minutes, outcome):
    """Five pairs had to fit, and six for another change, where three may decide: that budget found nothing."""

    def one_thread(spec) -> float:
        seconds = 10.0 if spec.optimizations else 20.0
        return seconds * (0.7 if {"count": 1} in [o.options for o in spec.optimizations] else 1)

    ladder = a_search(tmp_path, monkeypatch, one_thread, budget=f"{minutes}m")
    through(ladder)
    (found,) = (m for m in ladder.record.search.moves if m.change == "threads:count=1")
    assert found.outcome == outcome
    assert len(found.ratios) == (3 if outcome == "faster" else 0)
    assert sum(ladder.record.turns_s) <= 60 * minutes


def test_pairs_that_leave_it_open_end_with_the_time(tmp_path, monkeypatch):
    """Nobody knows before how many pairs decide: where there is no time for another, none is run."""

    def scattered(spec) -> float:
        seconds = 10.0 if spec.optimizations else 20.0
        one = {"count": 1} in [o.options for o in spec.optimizations]
        return seconds * ((0.7, 0.99, 0.6, 0.99, 0.6, 0.99)[spec.repeat % 6] if one else 1)

    found = {}
    for minutes in (14, 60):
        ladder = a_search(tmp_path / str(minutes), monkeypatch, scattered, budget=f"{minutes}m")
        through(ladder)
        (found[minutes],) = (m for m in ladder.record.search.moves if m.change == "threads:count=1")
        assert sum(ladder.record.turns_s) <= 60 * minutes
    assert (found[14].outcome, found[14].reason) == ("not shown", "no time for more pairs")
    assert len(found[60].ratios) == 5
