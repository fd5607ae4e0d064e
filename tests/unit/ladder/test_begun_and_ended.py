"""The two ends of a ladder: its folder is its own when it begins, and it has ended when all of it is told."""

from __future__ import annotations

import pytest
from tests.unit.ladder.test_resumed_ladder import Runs, a_ladder
from tests.unit.ladder.turning import turned

from laptime.errors import UsageError
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
    ladder, finished = a_ladder(tmp_path), ladder_module.ladder_finished

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    turned(ladder)
    ladder.compare()
    monkeypatch.setattr(ladder_module, "ladder_finished", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ladder.close("done")
    assert read_ladder(tmp_path / "ladder" / "ladder.json").status == "running"
    monkeypatch.setattr(ladder_module, "ladder_finished", finished)
    ladder.close("interrupted")
    assert read_ladder(tmp_path / "ladder" / "ladder.json").status == "interrupted"
    ended = [e for e in read_journal(ladder.journal.path)[1] if isinstance(e, Ended)]
    assert (ended[-1].key, ended[-1].status) == ("l", "KILLED")
