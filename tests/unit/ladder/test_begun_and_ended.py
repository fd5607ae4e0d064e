"""The two ends of a ladder: its folder is its own when it begins, and it has ended when all of it is told."""

from __future__ import annotations

import pytest
from tests.unit.ladder.test_resumed_ladder import Cut, Runs, a_ladder, stored
from tests.unit.ladder.turning import through, turned

from laptime.errors import UsageError
from laptime.ladder import ending
from laptime.ladder import run as ladder_module
from laptime.records import read_ladder
from laptime.tracking.events import Ended, read_journal


def test_of_two_ladders_that_begin_in_one_folder_the_second_is_refused(tmp_path):
    first = a_ladder(tmp_path)
    with pytest.raises(UsageError, match=r"another ladder has begun in .*: give another --out"):
        a_ladder(tmp_path)
    assert [path.name for path in (tmp_path / "ladder").iterdir()] == ["ladder.json"]
    assert read_ladder(tmp_path / "ladder" / "ladder.json").id == first.record.id
    first.journal.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")
def test_a_ladder_that_is_interrupted_while_it_is_told_has_not_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs())
    ladder, finished = a_ladder(tmp_path), ending.ladder_finished

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    turned(ladder)
    ladder.compare()
    monkeypatch.setattr(ending, "ladder_finished", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ladder.close("done")
    assert read_ladder(tmp_path / "ladder" / "ladder.json").status == "running"
    monkeypatch.setattr(ending, "ladder_finished", finished)
    ladder.close("interrupted")
    assert read_ladder(tmp_path / "ladder" / "ladder.json").status == "interrupted"
    ended = [e for e in read_journal(ladder.journal.path)[1] if isinstance(e, Ended)]
    assert (ended[-1].key, ended[-1].status) == ("l", "KILLED")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")
def test_a_try_that_had_come_to_epochs_keeps_its_run_and_the_next_one_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder_module, "launch", Runs(4, failing="resident"))
    with pytest.raises(Cut):
        through(a_ladder(tmp_path))
    for cut in (2, 1):  # a minute later; the second time the new try is taken from its record
        monkeypatch.setattr(ladder_module, "launch", Runs(cut, at=1060.0))
        ladder = a_ladder(tmp_path, read_ladder(tmp_path / "ladder" / "ladder.json"))
        with pytest.raises(Cut):
            turned(ladder)
        ladder.close("interrupted")
    found = stored(ladder, times=2).runs
    first, second = (found[f"id-l/cpu-resident{again}"] for again in ("", "/again-1"))
    assert [run["tags"].get("laptime.kind") for run in (first, second)] == ["retracted", None]
    assert [run["status"] for run in (first, second)] == ["FAILED", "FINISHED"]
    for run, at in ((first, 1000.0), (second, 1060.0)):
        assert sorted((step, at) for name, _, step, at in run["metrics"] if name == "epoch_s") == [
            (step, at + step) for step in range(3)
        ]
    assert [key for key in found if "again" in key] == ["id-l/cpu-resident/again-1"]
