"""MLflow, and the only importer of it. Everything goes through a client by run id: no active run, nothing to leak."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laptime.errors import DataError, TrackingError, shorten
from laptime.tracking.base import MetricRow, ModelFiles, RunStart, RunStatus
from laptime.tracking.fetch import download, read_kind
from laptime.tracking.files_place import FilesPlace
from laptime.tracking.first_opening import opened_whole
from laptime.tracking.gates import PastGate, read_gates
from laptime.tracking.logged import load_model, log_model, without_lightning
from laptime.tracking.models import log_models_aside
from laptime.tracking.owner import OpenRun, open_run
from laptime.tracking.patience import Held, send_files, set_switches, waiting_for_files
from laptime.tracking.reach import alone, explained, read_from, refusal, require_answer, require_file, require_port
from laptime.tracking.uri import check_uri, masked, sqlite_file, without_credentials
from laptime.tracking.whereabouts import Whereabouts, all_experiments, found_runs, quoted, run_or_none

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

# The limits of MLflow's own checks and database columns.
_ROWS, _NAME, _PARAM, _TAG, _PARAMS = 1000, 250, 6000, 8000, 100


class MlflowTracker:
    """A `Store` on MLflow.

    Args:
        uri: the tracking URI.
        artifact_root: where the artifacts of an embedded (SQLite) store go; a server decides for itself.

    Raises:
        UsageError: no valid tracking URI.
        TrackingError: the server does not answer.
    """

    def __init__(self, uri: str, artifact_root: Path) -> None:
        self._uri = check_uri(uri)
        self._ids: dict[str, str] = {}
        self._given_up: TrackingError | None = None
        with explained(self._uri):
            if (file := sqlite_file(self._uri)) is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
            self._client = _client(self._uri)
        self._where = Whereabouts(self._client, self._uri, artifact_root.absolute())
        self._files = FilesPlace(self._client, self._uri)

    @property
    def target(self) -> str:
        """See `Store.target`."""
        return without_credentials(self._uri)

    @property
    def run_ids(self) -> dict[str, str]:
        """See `Store.run_ids`."""
        return self._ids

    def knows(self, run_ids: Iterable[str]) -> bool:
        """See `Store.knows`."""
        with explained(self._uri):
            return self._where.knows(run_ids)

    def start_run(self, start: RunStart) -> None:
        """See `Tracker.start_run`; the tag `laptime.key` finds a run that an interrupted replay has created.

        Raises:
            RefusedError: it was there, and somebody has deleted it since.
        """
        with explained(self._uri):
            tags = _tags({**start.tags, **self._parent_tag(start), "laptime.key": start.key})
            run, experiment = self._where.known(start, self._ids.get(start.key)), ""
            if run is None:
                experiment, run = self._where.found(start, self._ids.get(start.parent or ""))
            if run is None:
                run = self._client.create_run(experiment, _ms(start.started_at), tags, start.name[:_NAME])
            else:
                self._client.update_run(run.info.run_id, status="RUNNING")
                self.set_tags_of(run.info.run_id, tags)
            self._ids[start.key] = run.info.run_id
            self._log_params(run, start.params)

    def log_metrics(self, key: str, rows: Sequence[MetricRow]) -> None:
        """See `Tracker.log_metrics`; MLflow stores rows that are equal in all fields once."""
        from mlflow.entities import Metric

        metrics = [Metric(_name(r.name), r.value, _ms(r.at), r.step) for r in rows]
        with self._where.holding(self._id(key)), explained(self._uri):
            for start in range(0, len(metrics), _ROWS):
                self._client.log_batch(self._id(key), metrics=metrics[start : start + _ROWS], synchronous=True)

    def set_tags(self, key: str, tags: Mapping[str, str]) -> None:
        """See `Tracker.set_tags`."""
        with self._where.holding(self._id(key)), explained(self._uri):
            self.set_tags_of(self._id(key), _tags(tags))

    def set_tags_of(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Sets tags of a run by MLflow's id."""
        from mlflow.entities import RunTag

        self._client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()], synchronous=True)

    def set_note(self, key: str, markdown: str) -> None:
        """See `Tracker.set_note`; a long text ends at a line's end, so that no table row is cut in two."""
        if len(markdown) > _TAG:
            markdown = markdown[: _TAG - 8].rpartition("\n")[0] + "\n\n…"
        self.set_tags(key, {"mlflow.note.content": markdown})

    def log_artifact(self, key: str, path: Path, folder: str = "") -> None:
        """See `Tracker.log_artifact`."""
        send = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        with self._not_held(), explained(self._uri):
            with waiting_for_files():
                place = self._files.require_here(self._id(key))
            send_files(lambda: send(self._id(key), str(path), folder or None))
            with waiting_for_files():
                self._files.require_arrived(self._id(key), path, folder, place)

    def log_model(self, model: ModelFiles) -> None:
        """See `Tracker.log_model`."""
        for key, reason in self.log_models([model]).items():
            raise TrackingError(f"the model of {key} was not logged: {reason}.")

    def log_models(self, models: Sequence[ModelFiles]) -> Mapping[str, str]:
        """See `Store.log_models`; a process of its own imports torch."""
        with self._not_held():
            return log_models_aside([(m.key, m.folder, self._id(m.key)) for m in models], self._uri)

    def end_run(self, key: str, status: RunStatus, ended_at: float) -> None:
        """See `Tracker.end_run`."""
        with self._where.holding(self._id(key)):
            self.end(self._id(key), status, ended_at)

    def end(self, run_id: str, status: RunStatus, ended_at: float) -> None:
        """Ends a run by MLflow's id."""
        with explained(self._uri):
            self._client.set_terminated(run_id, status, _ms(ended_at))

    def open_runs(self, tag: str, value: str) -> list[OpenRun]:
        """Runs at RUNNING with an owner's tag."""
        query = f"attributes.status = 'RUNNING' and tags.`{tag}` = '{quoted(value)}'"
        with explained(self._uri):
            found = found_runs(self._client, all_experiments(self._client), query)
        return [open_run(run.info.run_id, run.data.tags) for run in found]

    @contextmanager
    def _not_held(self) -> Iterator[None]:
        """Once a server has held a file for two minutes, all that come after it are left to the journal at once."""
        if self._given_up is not None:
            raise self._given_up
        held = Held()
        try:
            yield
        except TrackingError as error:
            self._given_up = error if held else None
            raise

    def _id(self, key: str) -> str:
        if key not in self._ids:
            raise TrackingError(f"the run {shorten(key)!r} was never started in {masked(self._uri)}.")
        return self._ids[key]

    def _parent_tag(self, start: RunStart) -> dict[str, str]:
        return {} if start.parent is None else {"mlflow.parentRunId": self._id(start.parent)}

    def _log_params(self, run: Run, params: Mapping[str, str]) -> None:
        """Params can't be changed: those that an earlier start of this run has set stay as they are."""
        from mlflow.entities import Param

        new = [Param(_name(k), v[:_PARAM]) for k, v in params.items() if _name(k) not in run.data.params]
        for start in range(0, len(new), _PARAMS):
            self._client.log_batch(run.info.run_id, params=new[start : start + _PARAMS], synchronous=True)


def fetch_runs(run_id: str, uri: str) -> Path:
    """Downloads what the comparison reads of a ladder's or a variant's run; see `laptime.tracking.fetch`.

    Raises:
        DataError: there is no such run, or it was not written by laptime; TrackingError where nothing answers.
    """
    with read_from(uri):
        client = _client(check_uri(uri))
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        place = partial(get_artifact_repository, tracking_uri=uri)
        return download(client, _run(client, run_id, uri), lambda run: place(run.info.artifact_uri))


def load_logged_model(run_id: str, uri: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Loads the model of a variant's run, or of a ladder's fastest variant, on the CPU; see `logged.load_model`.

    Raises:
        DataError: there is no such run, it has no model, or its model is none of laptime's.
        TrackingError: the server does not answer.
    """
    with read_from(uri):
        client = _client(uri := check_uri(uri))
        with without_lightning():
            import mlflow.pytorch

        mlflow.set_tracking_uri(uri)
        return load_model(mlflow, client, _run(client, run_id, uri), folder)


def _run(client: MlflowClient, run_id: str, uri: str) -> Run:
    found: Run | None = run_or_none(client, run_id)
    if found is not None:
        return found
    raise DataError(
        f"there is no run {shorten(run_id)!r} in {masked(uri)}: take the id from the run's page (laptime ui)."
    )


def past_gates(place: tuple[str, str], since: float, fingerprint: str = "") -> list[PastGate]:
    """Earlier gates at a tracking URI and workload, see `read_gates`; raises TrackingError."""
    uri, workload = place
    with read_from(uri):
        return read_gates(_client(check_uri(uri)), workload, since, fingerprint)


def runs_of_kind(kind: str, uri: str, most: int, **tags: str) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Labels and last metrics, see `read_kind`; raises TrackingError."""
    with read_from(uri):
        return read_kind(_client(check_uri(uri)), kind, most, tags)


def run_page(run_id: str, uri: str, shown: str) -> str:
    """The page of a run on the server at `shown`, which may show the store at `uri` without being it."""
    with read_from(uri):
        experiment = _client(check_uri(uri)).get_run(run_id).info.experiment_id
    # Without the view's name MLflow opens the one for language models, in which a training's pages are elsewhere.
    page = f"{without_credentials(shown).rstrip('/')}/#/experiments/{experiment}/runs/{run_id}"
    return f"{page}?workflowType=machine_learning"


def log_pytorch_model(model: Any, run_id: str, example: Any, metadata: Mapping[str, Any]) -> None:
    """Logs a model to a run, whatever its status, which stays; see `log_model`. The store is MLFLOW_TRACKING_URI.

    Raises:
        RefusedError: the store will never take it; whatever else goes wrong passes as MLflow raises it.
    """
    set_switches()
    with without_lightning():
        import mlflow.pytorch

    try:
        send_files(lambda: log_model(mlflow, (model, example), run_id, metadata))
    except Exception as error:
        refused = refusal(os.environ["MLFLOW_TRACKING_URI"], error)
        if refused is None:
            raise
        raise refused from error


def _client(uri: str) -> MlflowClient:
    require_answer(uri)
    require_port(uri)
    set_switches()
    require_file(uri)
    with alone(uri):
        return opened_whole(uri, _opened)


def _opened(uri: str) -> MlflowClient:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.search_experiments(max_results=1)
    return client


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {_name(k): v[:_TAG] for k, v in tags.items()}


def _name(name: str) -> str:
    """A name as MLflow takes it: letters, digits and a few signs, no path that climbs."""
    return re.sub(r"[^\w./ :-]", "_", name).replace("..", "_").strip("/")[:_NAME] or "_"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
