"""The rules' record, from a ladder's journal through a real store and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow_helpers import VARIANTS, client_of, quiet
from tests.warned import BY_MLFLOW
from tracking_samples import a_ladder, a_record, write_run

from laptime.compare.load import load
from laptime.places import Places
from laptime.records import Finding, Machine, Measured, ProbeRecord, RuleHistory, Rung, write_json
from laptime.tracking import Journal
from laptime.tracking.mlflow import fetch_runs
from laptime.tracking.outage import Outage
from laptime.tracking.publish import ladder_finished, ladder_started, variant_recorded
from laptime.tracking.rule_history import advice_verified, below_ladder, rule_history
from laptime.tracking.sync import sync

pytestmark = BY_MLFLOW


def a_finding(name: str, gain: float, measured: Measured, own: float | None = None) -> Finding:
    return Finding(
        own_gain=None if own is None else (own, own),
        id=name,
        what="It waits.",
        step_ms_now=100,
        step_ms_expected=(100 * (1 - gain), 100 * (1 - gain)),
        gain=(gain, gain),
        variant="cpu-a+dead-taps",
        measured=measured,
    )


def write_verified(places: Places, ladder_id: str, findings: list[Finding], machine: str = "") -> str:
    ladder = a_ladder(ladder_id, VARIANTS)
    ladder = ladder.model_copy(update={"probe": ProbeRecord(machine=Machine(fingerprint=machine))})
    folder = places.runs / ladder.id
    write_json(folder / "ladder.json", ladder)
    with Journal(places.journal / f"{ladder.id}.jsonl") as journal:
        ladder_started(journal, ladder)
        for variant in VARIANTS:
            record = a_record(variant)
            write_run(folder, record)
            variant_recorded(journal, ladder, Rung(variant=variant), [record], folder)
        done = ladder.model_copy(update={"status": "done", "ended_at": 2000.0})
        for finding in findings:
            advice_verified(journal, below_ladder(done), "cpu-a", finding)
        ladder_finished(journal, done, {}, "# Done", {"ladder.json": folder / "ladder.json"})
    return ladder.id


def test_a_machine_has_a_record_of_its_own_once_there_is_enough_of_it(tmp_path: Path, sqlite_uri: str) -> None:
    places = Places(tmp_path)
    names = [f"local/{n}" for n in range(4)]
    for machine, gain in (("a", 0.3), ("b", 0.1)):
        verified = [a_finding(name, 0.25, Measured(gain=gain, n=3), own=0.2) for name in names]
        write_verified(places, f"verified-{machine}", verified, machine)
    sync(places, sqlite_uri, quiet)
    found = {machine: rule_history(sqlite_uri, Outage(quiet), machine)["local"] for machine in ("a", "b", "c")}
    assert [(h.tried, h.here) for h in found.values()] == [(4, True), (4, True), (8, False)]
    assert [h.ratio for h in found.values()] == pytest.approx([1.5, 0.5, 1.0])


def test_what_was_verified_comes_back_as_each_rule_s_record(tmp_path: Path, sqlite_uri: str) -> None:
    places = Places(tmp_path)
    first = write_verified(
        places,
        "verified-1",
        [
            a_finding("waiting/loader", 0.3, Measured(gain=0.25, n=3, quality_kept=True)),
            a_finding("hot", 0.2, Measured(error="wrong: gradients")),
        ],
    )
    write_verified(places, "verified-2", [a_finding("waiting", 0.3, Measured(gain=-0.05, n=3), own=0.2)])
    sync(places, sqlite_uri, quiet)
    said: list[str] = []
    found = rule_history(sqlite_uri, Outage(said.append))
    assert (found["waiting"].tried, found["waiting"].faster) == (2, 1)
    assert found["waiting"].error == pytest.approx(0.2)
    assert found["hot"] == RuleHistory(tried=1, faster=0, error=None)
    assert (found["waiting"].ratio, found["waiting"].compared) == (pytest.approx((0.25 / 0.3 + 0) / 2), 2)
    assert not said
    client = client_of(sqlite_uri)
    experiment = client.get_experiment_by_name("cifar").experiment_id
    runs = {
        r.data.tags["laptime.key"]: r
        for r in client.search_runs([experiment], "tags.`laptime.key` LIKE 'verified-1%'", max_results=50)
    }
    advice = runs[f"{first}/advice/cpu-a/waiting/loader"]
    assert advice.info.status == "FINISHED"
    assert advice.data.tags["mlflow.parentRunId"] == runs[first].info.run_id
    assert advice.data.params["advice.rule"] == "waiting"
    assert advice.data.metrics["advice_gain_predicted"] == pytest.approx(0.3)
    assert advice.data.metrics["advice_gain_own"] == pytest.approx(0.3)
    # A ladder with advice below it is compared as before.
    _, records = load(fetch_runs(runs[first].info.run_id, sqlite_uri))
    assert sorted(r.spec.variant for r in records if r.spec) == sorted(VARIANTS)
