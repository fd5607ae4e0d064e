from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path

import mlflow_helpers
import pytest
import tracking_samples
from mlflow_helpers import VARIANTS, client_of, everything, fetched, quiet, write_ladder
from tests.warned import BY_MLFLOW
from tracking_samples import a_ladder

from laptime.cli.advise import read_subject
from laptime.cli.compare import compare_runs
from laptime.compare.load import load
from laptime.compare.model import Comparison, Conditions, VariantRow
from laptime.errors import DataError, TrackingError, UsageError
from laptime.host.processes import end_their_runs
from laptime.places import Places
from laptime.records import write_json
from laptime.tracking.base import MetricRow, RunStart
from laptime.tracking.journal import is_settled, state_path
from laptime.tracking.mlflow import MlflowTracker, fetch_runs, run_page
from laptime.tracking.owner import this_process
from laptime.tracking.publish import variant_key
from laptime.tracking.sync import SyncResult, sync, target_of, waiting

pytestmark = BY_MLFLOW

WORSE = Comparison(
    id="fetched",
    baseline="cpu-baseline",
    conditions=Conditions(workload="cifar"),
    rows=(
        VariantRow(variant="cpu-baseline", status="done", quality=0.8),
        VariantRow(variant="cpu-large-batch", status="done", adds="large-batch", quality=0.5, verdict="worse"),
    ),
)


def test_a_ladder_arrives_whole_and_a_second_replay_changes_nothing(tmp_path: Path, sqlite_uri: str) -> None:
    places = Places(tmp_path)
    ladder = write_ladder(places, "whole")
    assert sync(places, sqlite_uri, quiet).events > 0
    first = everything(sqlite_uri, ladder)
    status, start, end, params, histories, files = first[variant_key(ladder, "cpu-a")]
    assert (status, start, end) == ("FINISHED", 1000_000, 1190_000)
    assert params["variant"] == "cpu-a"
    assert [step for step, _, _ in histories["epoch_s"]] == [0, 1, 2, 3]
    assert [step for step, _, _ in histories["test_accuracy"]] == [0, 1]
    assert histories["epoch_s"][0] == (0, 1010_000, "2.0")
    assert {"record.json", "spec.json", "machine.json", "log.txt", "tensorboard", "repeats"} <= set(files)
    assert sync(places, sqlite_uri, quiet) == SyncResult()
    state_path(places.journal / "whole.jsonl").unlink()
    sync(places, sqlite_uri, quiet)
    assert everything(sqlite_uri, ladder) == first


def test_the_comparison_gets_its_records_back(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ladder = write_ladder(Places(tmp_path), "fetched")
    sync(Places(tmp_path), sqlite_uri, quiet)
    client = client_of(sqlite_uri)
    experiment = client.get_experiment_by_name("cifar").experiment_id
    ids = {
        r.data.tags["laptime.key"]: r.info.run_id
        for r in client.search_runs([experiment], "tags.`laptime.key` LIKE 'fetched%'")
    }
    capfd.readouterr()
    found, records = load(fetch_runs(ids[ladder.id], sqlite_uri))
    assert "Downloading" not in capfd.readouterr().err  # MLflow's bar, one for each file
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    with pytest.raises(UsageError, match=f"the run {ids[ladder.id]} holds 2 variants .*: give the MLflow id of a"):
        read_subject(ids[ladder.id])
    assert found is not None
    assert found.id == ladder.id
    assert sorted((r.spec.variant, r.spec.repeat) for r in records if r.spec) == [
        (variant, n) for variant in sorted(VARIANTS) for n in range(2)
    ]
    _, one = load(fetch_runs(ids[variant_key(ladder, "cpu-a")], sqlite_uri))
    assert {r.spec.variant for r in one if r.spec} == {"cpu-a"}
    write_json(tmp_path / "comparison.json", WORSE)  # a ladder's end leaves it on the parent run
    client.log_artifact(ids[ladder.id], str(tmp_path / "comparison.json"))
    _, _, probe = read_subject(ids[variant_key(ladder, "cpu-a")])
    assert probe is not None
    assert "50.0 % instead of 80.0 %" in probe.refusals["large-batch"]
    client.set_tag(ids[variant_key(ladder, "cpu-a")], "mlflow.parentRunId", "0" * 32)  # as after mlflow gc
    assert load(fetch_runs(ids[variant_key(ladder, "cpu-a")], sqlite_uri)) == (None, one)
    baseline = client.get_run(ids[variant_key(ladder, "cpu-baseline")])
    Path(baseline.info.artifact_uri.removeprefix("file://"), "record.json").write_text("{")
    with pytest.raises(DataError, match=f"of 2 records below MLflow's run {baseline.info.run_id} are unusable"):
        compare_runs([baseline.info.run_id])
    client.delete_run(baseline.info.run_id)
    with pytest.raises(DataError, match=r"the ladder's run .* has no variant's run .*: restore those"):
        fetch_runs(ids[ladder.id], sqlite_uri)
    assert run_page(ids[ladder.id], sqlite_uri, "http://127.0.0.1:5000/") == (
        f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{ids[ladder.id]}?workflowType=machine_learning"
    )


def test_a_variant_of_forty_parts_comes_back_by_its_whole_name(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's name holds 255 characters, and names that are cut must stay apart."""
    parts = "".join(f"+large-batch:size={32 + n}" for n in range(40))
    names = ("cpu-baseline", f"cpu-baseline{parts}", f"cpu-baseline{parts}+no-reads")
    monkeypatch.setattr(mlflow_helpers, "VARIANTS", names)
    ladder = write_ladder(Places(tmp_path), "long")
    sync(Places(tmp_path), sqlite_uri, quiet)
    assert fetched(sqlite_uri, ladder) == [(v, n) for v in names for n in (0, 1)]


def test_ten_thousand_classes_are_a_run_like_any_other(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter holds 6,000 characters and a tag 8,000: the names belong to the files."""
    many = tracking_samples.DATA.model_copy(update={"classes": tuple(f"species {i:05}" for i in range(10_000))})
    monkeypatch.setattr(tracking_samples, "DATA", many)
    ladder = write_ladder(Places(tmp_path), "many")
    assert sync(Places(tmp_path), sqlite_uri, quiet).events > 0
    status, _, _, params, _, _ = everything(sqlite_uri, ladder)[variant_key(ladder, "cpu-a")]
    assert status == "FINISHED"
    assert params["variant"] == "cpu-a"
    client = client_of(sqlite_uri)
    experiment = client.get_experiment_by_name("cifar").experiment_id
    runs = client.search_runs([experiment], f"tags.`laptime.key` = '{ladder.id}'")
    found, records = load(fetch_runs(runs[0].info.run_id, sqlite_uri))
    assert found is not None
    assert found.data.classes == many.classes
    assert all(r.spec is not None and r.spec.data.classes == many.classes for r in records)
    assert len(records) == 2 * len(VARIANTS)


def test_a_new_experiment_has_a_view_with_columns_that_runs_have(tmp_path: Path, sqlite_uri: str) -> None:
    MlflowTracker(sqlite_uri, tmp_path / "files").start_run(RunStart("viewed", "viewed", "viewed", 1.0))
    view = json.loads(client_of(sqlite_uri).get_experiment_by_name("viewed").tags["mlflow.sharedViewState.laptime"])
    # What the page asks of a view before it lists it.
    assert [type(view[name]) for name in ("name", "createdAt", "state")] == [str, int, str]
    columns = json.loads(view["state"])["selectedColumns"]
    assert {"metrics.`speedup`", "tags.`laptime.quality`", "params.`batch_size`"} <= set(columns)
    documented = (Path(__file__).parents[3] / "docs/tracking.md").read_text(encoding="utf-8")
    assert [name for name in columns if f"`{name.split('`')[1]}`" not in documented] == []


def test_the_embedded_experiment_has_an_absolute_place_for_artifacts(tmp_path: Path, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri, tmp_path / "artifacts")
    tracker.start_run(RunStart("place", "place", "a/../user's: workload", 1.0))
    found = client_of(sqlite_uri).get_experiment_by_name("a/../user's: workload")
    assert found.artifact_location == (tmp_path / "artifacts" / "a_.._user_s__workload").as_uri()


def test_long_and_odd_values_are_cut_to_the_store_s_limits(tmp_path: Path, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    start = RunStart("odd", "n" * 9000, "odd", 1.0, tags={"t": "t" * 20000}, params={"p": "p" * 20000, "../x<": "1"})
    tracker.start_run(start)
    tracker.set_note("odd", "| row |\n" * 5000)
    rows = [MetricRow("loss", math.nan, 0, 1.0), MetricRow("loss", math.inf, 1, 2.0), MetricRow("a<b", 1.0, 0, 1.0)]
    for _ in range(2):
        tracker.log_metrics("odd", rows)
    run = client_of(sqlite_uri).get_run(tracker.run_ids["odd"])
    assert len(run.data.params["p"]) == 6000
    assert run.data.tags["mlflow.note.content"].endswith("| row |\n\n…")
    history = client_of(sqlite_uri).get_metric_history(run.info.run_id, "loss")
    assert len(history) == 2
    assert any(math.isnan(m.value) for m in history)
    assert "a_b" in run.data.metrics


def test_more_rows_than_one_request_may_hold(tmp_path: Path, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    tracker.start_run(RunStart("many", "many", "many", 1.0))
    tracker.log_metrics("many", [MetricRow("loss", 1.0 / (i + 1), i, float(i)) for i in range(2500)])
    assert len(client_of(sqlite_uri).get_metric_history(tracker.run_ids["many"], "loss")) == 2500


def test_a_crash_between_creating_and_noting_a_run_does_not_double_it(tmp_path: Path, sqlite_uri: str) -> None:
    first, second = MlflowTracker(sqlite_uri, tmp_path), MlflowTracker(sqlite_uri, tmp_path)
    for tracker in (first, second):
        tracker.start_run(RunStart("crash", "crash", "crash", 1.0, params={"a": "1"}))
    assert first.run_ids == second.run_ids


def test_a_ladder_that_was_killed_is_ended_by_the_next_sync(tmp_path: Path, sqlite_uri: str) -> None:
    places = Places(tmp_path)
    write_ladder(places, "killed", end=False)
    journal = places.journal / "killed.jsonl"
    owner = this_process()
    text = journal.read_text()
    assert sync(places, sqlite_uri, quiet).ended == (), "this process lives"
    assert waiting(places) == [], "all of it has arrived"
    journal.write_text(text.replace(f'"laptime.started":"{owner.started}"', '"laptime.started":"1"'))
    state_path(journal).unlink()
    result = sync(places, sqlite_uri, quiet)
    assert result.ended == ("killed",)
    assert is_settled(journal)
    assert everything(sqlite_uri, a_ladder("killed"))["killed"][0] == "KILLED"


def test_a_journal_goes_to_its_own_store_unless_told_otherwise(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path)
    gone = "http://127.0.0.1:9"
    write_ladder(places, "elsewhere", target_of(gone, places))
    said: list[str] = []
    assert sync(places, sqlite_uri, said.append).events == 0
    assert len(said) == 1
    assert "laptime sync sends it" in said[0]
    assert sync(places, sqlite_uri, said.append, redirect=True).events > 0
    assert waiting(places) == []


@pytest.mark.parametrize(
    "uri",
    # MLflow itself would ask a database for two minutes.
    ["http://127.0.0.1:9", "http://user:secret@127.0.0.1:9/x", "postgresql+psycopg2://user:secret@127.0.0.1:9/x"],
)
def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path, uri: str) -> None:
    with pytest.raises(TrackingError) as caught:
        MlflowTracker(uri, tmp_path)
    assert "127.0.0.1:9" in str(caught.value)
    assert "refuses ([Errno 111] Connection refused): everything" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database at all")
    with pytest.raises(TrackingError) as caught:
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)
    assert "\n" not in str(caught.value)
    assert "file is not a database" in str(caught.value)
    # MLflow itself would try to open what can't be opened for two minutes; no connection of its own is made here.
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(TrackingError, match=r"folder\.db does not answer or refuses \(unable to open database file\)"):
        MlflowTracker(f"sqlite:///{tmp_path / 'folder.db'}", tmp_path)


def test_refused_addresses_and_unknown_runs(tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="names a folder"):
        MlflowTracker(f"file://{tmp_path}", tmp_path)
    for run_id in ("no-such-run", "../../etc", "f" * 32):
        with pytest.raises(DataError, match="there is no run"):
            fetch_runs(run_id, sqlite_uri)
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    tracker.start_run(RunStart("foreign", "foreign", "foreign", 1.0))
    with pytest.raises(DataError, match=r"holds no record\.json"):
        fetch_runs(tracker.run_ids["foreign"], sqlite_uri)
    assert not list(tmp_path.glob("laptime-*"))


def test_no_active_run_leaks_and_what_the_user_set_stays(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    # Metrics would be hung on that model, and be sent some time later.
    monkeypatch.setenv("MLFLOW_ACTIVE_MODEL_ID", "m-of-the-user")
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    tracker.start_run(RunStart("leak", "leak", "leak", 1.0))
    tracker.log_metrics("leak", [MetricRow("epoch_s", 1.0, 0, 1.0)])
    assert client_of(sqlite_uri).get_run(tracker.run_ids["leak"]).data.metrics == {"epoch_s": 1.0}
    assert mlflow.active_run() is None
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"


def test_a_run_that_a_user_s_file_leaves_open_is_ended_with_its_process(
    sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(name, "1")  # so that it is taken back
    mlflow.set_tracking_uri(sqlite_uri)
    try:
        begun = [mlflow.start_run(), mlflow.start_run(nested=True)]
        end_their_runs()
        assert mlflow.active_run() is None
    finally:
        mlflow.set_tracking_uri(None)
    assert {client_of(sqlite_uri).get_run(run.info.run_id).info.status for run in begun} == {"FINISHED"}
