"""A search that was broken off goes on as if it had not been: the same moves, each process once."""

from __future__ import annotations

import pytest
from tests.unit.ladder.turning import through
from tests.unit.tune.searching import a_search, options
from tests.unit.tune.test_search import best_at_1024

from laptime.ladder import pairs
from laptime.ladder import run as ladder_module
from laptime.records import read_ladder


class Cut(BaseException):
    """What ends a search in the middle, as a kill does."""


def counted(monkeypatch, cut: int | None = None) -> list[str]:
    """The folders of the processes that are started from here on; the one after so many is cut off."""
    started: list[str] = []
    alone, by_turns = ladder_module.launch, pairs.launch_by_turns

    def note(folder) -> None:
        if len(started) == cut:
            raise Cut
        started.append(folder.name)

    def launch(launcher, spec, folder, hooks):
        note(folder)
        return alone(launcher, spec, folder, hooks)

    def in_turns(first, second, hooks):
        note(second[1])
        return by_turns(first, second, hooks)

    monkeypatch.setattr(ladder_module, "launch", launch)
    monkeypatch.setattr(pairs, "launch_by_turns", in_turns)
    return started


def doubtful(spec) -> float:
    """So near to the baseline's that one training can't tell."""
    return 0.795 if "large-batch" in options(spec) else 0.8


def the_search(place, monkeypatch, **more):
    return a_search(place, monkeypatch, best_at_1024, accuracy=doubtful, budget="25m", **more)


@pytest.mark.parametrize("by_turns", [True, False])
def test_wherever_a_search_is_cut_off_it_goes_on_to_the_same_end(tmp_path, monkeypatch, by_turns):
    whole = the_search(tmp_path / "whole", monkeypatch, by_turns=by_turns)
    all_of_it = counted(monkeypatch)
    told = through(whole)
    assert whole.record.search.ended == "the rest of the budget is for what follows"
    assert len(all_of_it) == len(told)
    assert sum("a whole training" in turn for turn in told) == 6
    for cut in (1, 3, 6, len(told) // 2, len(told) - 3):
        place = tmp_path / f"{cut}"
        before = the_search(place, monkeypatch, by_turns=by_turns)
        ran = counted(monkeypatch, cut)
        with pytest.raises(Cut):
            through(before)
        left = read_ladder(before.folder / "ladder.json")
        assert left.turns == len(left.turns_s) == cut
        after = the_search(place, monkeypatch, by_turns=by_turns, before=left)
        ran_then = counted(monkeypatch)
        assert through(after) == told
        assert ran + ran_then == all_of_it
        found, expected = after.record.search, whole.record.search
        assert found.spent_s == pytest.approx(expected.spent_s)
        assert found.model_copy(update={"spent_s": expected.spent_s}) == expected
        assert after.record.turns_s == pytest.approx(whole.record.turns_s)
        assert after.record.rungs == whole.record.rungs
