"""A variant that ran alone, in a store: as a ladder's variant, without a parent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracking_samples import MemoryStore, a_ladder, a_record, write_run

from laptime.records import SYSTEM, Rung, RunRecord, SystemSample, add_sample
from laptime.tracking.base import RunStart
from laptime.tracking.lone import lone_broken_off, lone_recorded, lone_started
from laptime.tracking.publish import ladder_started, variant_key, variant_recorded

# tensorboard 2.21 imports what newer libraries deprecate
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")]

RUNG = Rung(variant="cpu-a", classes=("statistical",))
ALONE = a_ladder("alone").model_copy(update={"rungs": (RUNG,)})


class Starts(MemoryStore):
    """Keeps each start."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[RunStart] = []

    def start_run(self, start: RunStart) -> None:
        self.starts.append(start)
        super().start_run(start)


def planned(record: RunRecord) -> RunRecord:
    return RunRecord(status="failed", error="", spec=record.spec)


def test_it_holds_what_a_ladder_s_variant_holds(tmp_path: Path) -> None:
    record = a_record("cpu-a")
    folder = write_run(tmp_path, record)
    (folder / "model.pt").write_bytes(b"x")
    (folder / "advice.json").write_text("{}")
    add_sample(folder / SYSTEM, SystemSample(at=1005.0, values={"cpu_utilization_percentage": 97.0}))
    ladder, alone = Starts(), Starts()
    ladder_started(ladder, ALONE)
    variant_recorded(ladder, ALONE, RUNG, [record], tmp_path)
    lone_started(alone, ALONE, planned(record), folder)
    lone_recorded(alone, ALONE, record, folder, {})
    theirs, mine = ladder.runs[f"id-{variant_key(ALONE, 'cpu-a')}"], alone.runs["id-alone"]
    for what in ("metrics", "files", "status", "ended_at"):
        assert mine[what] == theirs[what]
    assert ("system/cpu_utilization_percentage", "97.0", 6, 1005.0) in mine["metrics"]
    assert alone.models == ["alone"]
    (first, last), expected = alone.starts, ladder.starts[-1]
    assert (first.parent, last.parent, first.name, first.experiment) == (None, None, "cpu-a", "cifar")
    assert last.params == expected.params
    assert {**last.tags} == {**expected.tags}
    assert first.params.items() < last.params.items()
    assert last.params.keys() - first.params.keys() == {"precision"}
    assert first.tags["laptime.folder"] == str(folder)
    assert (first.tags["laptime.status"], last.tags["laptime.status"]) == ("0 of 1 done", "done")
    assert "laptime.machine" not in first.tags


def test_figures_of_the_comparison_stand_for_the_summary_s_of_their_name(tmp_path: Path) -> None:
    record, store = a_record("cpu-a"), MemoryStore()
    lone_recorded(store, ALONE, record, write_run(tmp_path, record), {"epoch_s_median": 2.75, "epoch_s_ci_low": 2.0})
    values = {(name, value) for name, value, *_ in store.runs["id-alone"]["metrics"]}  # type: ignore[attr-defined]
    assert {("epoch_s_median", "2.75"), ("epoch_s_ci_low", "2.0"), ("warmup_s", "1.0")} <= values
    assert ("epoch_s_median", "2.5") not in values


@pytest.mark.parametrize("status", ["failed", "wrong"])
def test_what_did_not_end_well_is_a_failed_run_with_its_reason(tmp_path: Path, status: str) -> None:
    record, store = a_record("cpu-a", status=status), Starts()
    lone_recorded(store, ALONE, record, write_run(tmp_path, record), {})
    assert store.runs["id-alone"]["status"] == "FAILED"
    assert store.starts[-1].tags["laptime.error"] == "it broke"


def test_what_left_no_record_ends_with_its_log(tmp_path: Path) -> None:
    record, store = a_record("cpu-a"), MemoryStore()
    folder = write_run(tmp_path, record)
    (folder / "machine.json").write_text("another start's")
    lone_started(store, ALONE, planned(record), folder)
    lone_broken_off(store, ALONE, folder, ("KILLED", "interrupted"))
    run = store.runs["id-alone"]
    assert (run["status"], run["files"]) == ("KILLED", {"spec.json", "log.txt"})
    assert run["tags"] == {"laptime.error": "interrupted"}
    assert (folder / "machine.json").read_text() == "another start's"
