"""Gates in a real store and back: a gate on another machine knows the noise and the trend from there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "gate"))

from gate_examples import WORKED, gate
from mlflow_helpers import client_of
from tests.warned import BY_MLFLOW

from laptime.gate.history import History, past_of
from laptime.gate.track import stored_gates, track
from laptime.places import Places
from laptime.tracking import gates
from laptime.tracking.mlflow import past_gates
from laptime.tracking.whereabouts import all_experiments

pytestmark = BY_MLFLOW


def run_of(uri: str, gate_id: str) -> str:
    experiment = client_of(uri).get_experiment_by_name("gated").experiment_id
    (run,) = client_of(uri).search_runs([experiment], f"tags.`laptime.key` = '{gate_id}'")
    return str(run.info.run_id)


def test_what_a_gate_stores_is_what_later_ones_read(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    quiet = (0.01, -0.01, 0.005, -0.004)
    told = [gate(quiet, id=f"gates-{n}", workload="gated", started_at=1_700_000_000.0 + n) for n in range(5)]
    told.append(gate(WORKED, id="gates-5", workload="gated", started_at=1_700_000_005.0))
    spoilt = told[0].pairs[0].model_copy(update={"counted": False})
    told[0] = told[0].model_copy(update={"pairs": (spoilt, *told[0].pairs[1:])})
    for record in told:
        track(record, Places(tmp_path), sqlite_uri, said.append)
    assert said == []
    found = past_gates((sqlite_uri, "gated"), 1_700_000_000.5)
    assert [g.id for g in found] == [f"gates-{n}" for n in (5, 4, 3, 2, 1)]
    for past, record in zip(found, reversed(told[1:]), strict=True):
        wanted = past_of(record)
        assert past.log_ratios == pytest.approx(wanted.log_ratios)
        assert past.base_epoch_s == pytest.approx(wanted.base_epoch_s)
        assert (past.verdict, past.mode, past.base, past.fingerprint) == (
            wanted.verdict,
            wanted.mode,
            wanted.base,
            wanted.fingerprint,
        )
    assert len(past_gates((sqlite_uri, "gated"), 0.0, "f" * 16)) == 6
    assert past_gates((sqlite_uri, "gated"), 0.0, "0" * 16) == []
    first = next(g for g in past_gates((sqlite_uri, "gated"), 0.0) if g.id == "gates-0")
    assert len(first.log_ratios) == 3
    assert past_gates((sqlite_uri, "never gated"), 0.0) == []
    client, experiment = client_of(sqlite_uri), client_of(sqlite_uri).get_experiment_by_name("gated").experiment_id
    client.rename_experiment(experiment, "gated last year")
    assert len(past_gates((sqlite_uri, "gated"), 0.0)) == 6
    client.rename_experiment(experiment, "gated")
    assert sorted(all_experiments(client, 1)) == sorted(e.experiment_id for e in client.search_experiments())
    before = past_gates((sqlite_uri, "gated"), 0.0)
    asked: list[str] = []
    monkeypatch.setattr(gates, "_by_pair", lambda _client, run, _name: asked.append(run) or {})
    assert past_gates((sqlite_uri, "gated"), 0.0) == before
    assert not asked  # once for each metric of each gate, as of versions that wrote no such tag
    monkeypatch.undo()
    for text in ("", "1.0:2.0 1.", "nan:1.0"):
        client_of(sqlite_uri).set_tag(run_of(sqlite_uri, "gates-5"), gates.PAIRS, text)
        found = past_gates((sqlite_uri, "gated"), 0.0)[0]
        assert found.log_ratios == pytest.approx(before[0].log_ratios)
        assert found.base_epoch_s == pytest.approx(before[0].base_epoch_s)
    monkeypatch.setattr("laptime.tracking.whereabouts.PAGE", 2)  # a page of the store's
    monkeypatch.setattr("laptime.tracking.gates._MOST_RUNS", 2)
    assert [g.id for g in past_gates((sqlite_uri, "gated"), 0.0)] == [f"gates-{n}" for n in (5, 4, 3, 2, 1, 0)]
    assert [g.id for g in past_gates((sqlite_uri, "gated"), 0.0, "f" * 16)] == ["gates-5", "gates-4"]


def test_a_store_that_is_away_or_not_there_yet_has_no_gates(tmp_path: Path) -> None:
    said: list[str] = []
    away = stored_gates("cifar", "http://127.0.0.1:9", said.append)
    assert (away("f"), away("f")) == ((), ())
    assert len(said) == 1
    assert "this machine alone" in said[0]
    assert stored_gates("cifar", f"sqlite:///{tmp_path}/none.db", said.append)("f") == ()
    assert not (tmp_path / "none.db").exists()
    assert History(tmp_path, 0.0, away).noise("f")[0] is None
