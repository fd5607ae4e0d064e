"""Two real workers side by side: epochs by turns, each with its own record, and neither takes the other down."""

import itertools

import pytest
from tests.integration.test_worker import data, spec_of  # noqa: F401 - a fixture

from laptime.launchers.base import Hooks
from laptime.launchers.pair import launch_by_turns
from laptime.records import RunRecord, read_record


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    """Locks of its own: a training of somebody else on this machine is not waited for."""
    monkeypatch.setattr("laptime.launchers.lock.lock_folder", lambda: tmp_path)


def short(data, **changes):  # noqa: F811
    return spec_of(data, **{"check": False, "profile": "none", "limit_train": 100, **changes})


def spans(record: RunRecord):
    return [(e.ended_at - e.epoch_s, e.ended_at, record.spec.variant) for e in record.kept]


def test_epochs_go_by_turns_and_each_record_names_the_other(data, tmp_path):  # noqa: F811
    heard = []
    first, second = short(data, variant="cpu-resident", epochs=4), short(data, epochs=4)
    found = launch_by_turns((first, tmp_path / "a"), (second, tmp_path / "b"), Hooks(on_event=heard.append))
    assert [r.status for r in found] == ["done", "done"], [r.error for r in found]
    assert [r.beside for r in found] == ["cpu-optimized", "cpu-resident"]
    for record, folder in zip(found, ("a", "b"), strict=True):
        assert read_record(tmp_path / folder / "record.json") == record
        assert "epoch" in (tmp_path / folder / "log.txt").read_text()
    trained = sorted([*spans(found[0]), *spans(found[1])])
    assert all(before[1] <= after[0] + 0.02 for before, after in itertools.pairwise(trained))
    names = [name for *_, name in trained]
    assert names == ["cpu-resident", "cpu-optimized", "cpu-optimized", "cpu-resident"] * 2
    assert [e["index"] for e in heard if e["event"] == "epoch"] == [0, 1, 2, 3]


def test_one_that_fails_or_hangs_leaves_the_other_its_record(data, tmp_path):  # noqa: F811
    good = short(data, variant="cpu-resident")
    gone = good.data.model_copy(update={"path": str(tmp_path / "nowhere")})
    broken = short(gone)
    slow = short(data, variant="cpu-baseline", epochs=500, timeout_s=12)
    for number, bad in enumerate((broken, slow)):
        jobs = (good, tmp_path / f"good-{number}"), (bad, tmp_path / f"bad-{number}")
        one, other = launch_by_turns(*jobs, Hooks())
        assert one.status == "done", one.error
        assert len(one.kept) == 2
        assert other.status == "failed"
        assert other.error
        assert (one.beside, other.beside) == (None, None)
    assert "time-out of 12 s" in other.error
