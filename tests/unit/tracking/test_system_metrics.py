"""The machine while a process trained, as system metrics of its variant's run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracking_samples import MemoryStore, a_ladder, a_record, write_run

from laptime.records import SYSTEM, Rung, SystemSample, add_sample
from laptime.tracking.publish import ladder_started, process_recorded, variant_key, variant_recorded

# tensorboard 2.21 imports what newer libraries deprecate
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")]

RUNG = Rung(variant="cpu-a", on="cpu-baseline", adds="large-batch")
LOAD = "cpu_utilization_percentage"


def sample(folder: Path, at: float, load: float) -> None:
    add_sample(folder / SYSTEM, SystemSample(at=at, values={LOAD: load, "disk_usage_percentage": 5.0}))


def loads(store: MemoryStore) -> dict[int, str]:
    rows = store.runs[f"id-{variant_key(a_ladder(), 'cpu-a')}"]["metrics"]
    return {step: value for name, value, step, _ in rows if name == f"system/{LOAD}"}  # type: ignore[attr-defined]


def test_each_process_has_its_samples_by_seconds_of_the_ladder(tmp_path: Path) -> None:
    store, records = MemoryStore(), [a_record("cpu-a", n) for n in range(2)]
    for n, record in enumerate(records):
        folder = write_run(tmp_path, record)
        sample(folder, 1005.2 + 100 * n, 97.5)
        sample(folder, 1010.2 + 100 * n, 99.0)
    with (folder / SYSTEM).open("a") as file:
        file.write('{"at": 1115.2, "val')  # a full disk
    ladder_started(store, a_ladder())
    variant_recorded(store, a_ladder(), RUNG, records, tmp_path)
    assert loads(store) == {6: "97.5", 11: "99.0", 106: "97.5", 111: "99.0"}


def test_a_process_that_is_told_at_once_tells_its_own_alone(tmp_path: Path) -> None:
    store, records = MemoryStore(), [a_record("cpu-a", n) for n in range(2)]
    ladder_started(store, a_ladder())
    for n, record in enumerate(records):
        sample(write_run(tmp_path, record), 1005.0 + 100 * n, 90.0 + n)
        process_recorded(store, a_ladder(), RUNG, records[: n + 1], tmp_path)
        assert len(loads(store)) == n + 1
    assert loads(store) == {6: "90.0", 106: "91.0"}


def test_where_none_were_taken_there_are_none(tmp_path: Path) -> None:
    store, record = MemoryStore(), a_record("cpu-a")
    write_run(tmp_path, record)
    ladder_started(store, a_ladder())
    variant_recorded(store, a_ladder(), RUNG, [record], tmp_path)
    assert loads(store) == {}
