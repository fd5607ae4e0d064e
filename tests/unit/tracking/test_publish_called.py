"""What a user's own data are called in MLflow."""

from __future__ import annotations

from tracking_samples import MemoryStore, a_ladder

from laptime.tracking.base import RunStart
from laptime.tracking.publish import ladder_started


def test_a_ladder_names_the_users_own_data() -> None:
    store, plain = MemoryStore(), a_ladder()
    holiday = plain.data.model_copy(update={"asked": "/home/me/holiday#size=96", "kind": "folder"})
    ours = plain.model_copy(update={"id": "other", "data": holiday})
    for one in (plain, ours):
        ladder_started(store, one)
    starts = [start for run in store.runs.values() if isinstance(start := run["start"], RunStart)]
    assert [start.name.endswith(" holiday") for start in starts] == [False, True]
    assert [start.params.get("data_called") for start in starts] == [None, "holiday"]
