"""Ladders to publish to a real MLflow server."""

from __future__ import annotations

from typing import Any

from tracking_samples import a_ladder, a_record, write_run

from laptime.compare.load import load
from laptime.places import Places
from laptime.records import LadderRecord, Rung, write_json
from laptime.tracking import Journal
from laptime.tracking.mlflow import fetch_runs
from laptime.tracking.publish import ladder_finished, ladder_started, variant_recorded

VARIANTS = ("cpu-baseline", "cpu-a")


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def write_ladder(places: Places, ladder_id: str, target: str | None = None, end: bool = True) -> LadderRecord:
    ladder = a_ladder(ladder_id, VARIANTS).model_copy(update={"repeats": 2})
    folder = places.runs / ladder.id
    write_json(folder / "ladder.json", ladder)
    with Journal(places.journal / f"{ladder.id}.jsonl", target) as journal:
        ladder_started(journal, ladder)
        for variant in VARIANTS:
            records = [a_record(variant, n) for n in range(2)]
            for record in records:
                write_run(folder, record)
            variant_recorded(journal, ladder, Rung(variant=variant), records, folder)
        if end:
            done = ladder.model_copy(update={"status": "done", "ended_at": 2000.0})
            ladder_finished(journal, done, {"speedup": 2.0}, "# It is done", {"ladder.json": folder / "ladder.json"})
    return ladder


def fetched(uri: str, ladder: LadderRecord) -> list[tuple[str, int]]:
    """Variant and repeat of each run that comes back from a store."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name("cifar").experiment_id
    (parent,) = client.search_runs([experiment], f"tags.`laptime.key` = '{ladder.id}'")
    _, records = load(fetch_runs(parent.info.run_id, uri))
    return sorted((r.spec.variant, r.spec.repeat) for r in records if r.spec)


def everything(uri: str, ladder: LadderRecord) -> dict[str, Any]:
    """All that a store holds of a ladder, by key."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name("cifar").experiment_id
    found: dict[str, Any] = {}
    for run in client.search_runs([experiment], max_results=1000):
        key = run.data.tags.get("laptime.key", "")
        if key.partition("/")[0] != ladder.id:  # other tests have runs there, too, some without a key
            continue
        assert key not in found, "a run was created twice"
        histories = {
            name: sorted((m.step, m.timestamp, repr(m.value)) for m in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        files = sorted(f.path for f in client.list_artifacts(run.info.run_id))
        found[key] = (run.info.status, run.info.start_time, run.info.end_time, run.data.params, histories, files)
    return found


def quiet(text: str) -> None:
    pass
