"""An outage is said once, and at the end what waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracking_samples import MemoryStore, a_ladder

from laptime.errors import TrackingError
from laptime.tracking import Journal
from laptime.tracking.journal import read_state, replay
from laptime.tracking.outage import Outage, unsent
from laptime.tracking.publish import ladder_finished, ladder_started
from laptime.tracking.reach import unreachable

AWAY = "http://127.0.0.1:9"


def away(reason: str, uri: str = AWAY) -> TrackingError:
    return TrackingError(unreachable(uri, reason))


def test_an_outage_is_said_once_whatever_each_request_fails_by() -> None:
    said: list[str] = []
    outage = Outage(said.append)
    outage.tell(away("refused"))
    outage.tell(away("timed out"))
    outage.tell(away("refused"), "Advice is given without")
    assert said == [
        str(away("refused")),
        "Advice is given without: the tracking store still does not answer or refuses.",
    ]
    outage.tell(TrackingError("the experiment 'x' is deleted."))
    outage.tell(away("refused", "http://127.0.0.1:10"), "Nothing is known")
    assert said[2:] == [
        "the experiment 'x' is deleted.",
        f"Nothing is known: {away('refused', 'http://127.0.0.1:10')}",
    ]


def test_what_waits_is_counted_for_its_own_store(tmp_path: Path) -> None:
    store, path = MemoryStore(), tmp_path / "l.jsonl"
    with Journal(path, store.target) as journal:
        ladder_started(journal, a_ladder())
    replay(path, store, print)
    there = read_state(path).applied
    with Journal(path) as journal:
        ladder_finished(journal, a_ladder(), {"speedup": 2.0}, "done", {})
    entries = len(path.read_text().splitlines()) - 1
    assert 0 < there < entries
    told = str(unsent(path, store.target, away("refused")))
    assert told.startswith(
        f"the tracking store {AWAY} does not answer or refuses (refused): the journal {path} is kept"
    )
    assert f"of which {there} of its {entries} entries arrived; laptime sync sends the rest" in told
    assert "everything is kept" not in told
    assert f"of which 0 of its {entries} entries arrived" in str(unsent(path, "another", away("refused")))


@pytest.mark.parametrize("ended", [True, False])
def test_models_alone_may_wait_and_what_has_arrived_does_not(tmp_path: Path, ended: bool) -> None:
    store, path, error = MemoryStore(), tmp_path / "l.jsonl", TrackingError("the models were not logged (x).")
    with Journal(path, store.target) as journal:
        ladder_started(journal, a_ladder())
        if ended:
            ladder_finished(journal, a_ladder(), {}, "done", {})
    replay(path, store, print)
    told = unsent(path, store.target, error)
    if ended:
        assert told is error
    else:
        assert str(told).startswith(f"the models were not logged (x). The journal {path} is kept, of which all but ")
