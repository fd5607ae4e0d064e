"""Which experiment and which run an event is about, whatever people did to them meanwhile; the client is passed in."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laptime.errors import RefusedError, TrackingError, shorten
from laptime.tracking.base import RunStart
from laptime.tracking.uri import is_sqlite, masked

# What a store is asked for at a time. Each question costs a server with logins most of a second.
PAGE = 1000

# What tells ladders and their variants apart, since MLflow's table shows no metric by itself.
_COLUMNS = {
    "metrics": ("speedup", "epoch_s_median", "test_accuracy", "test_map50", "test_score", "test_error", "test_loss"),
    "tags": ("laptime.quality", "laptime.status"),
    "params": ("data_called", "batch_size", "precision"),
}


class Whereabouts:
    """Experiments and runs of a store.

    Args:
        client: an MlflowClient.
        uri: the store.
        artifact_root: where the artifacts of an embedded (SQLite) store go; a server decides for itself.
    """

    def __init__(self, client: Any, uri: str, artifact_root: Path) -> None:
        self._client, self._uri, self._artifact_root = client, uri, artifact_root
        self._experiments: dict[str, str] = {}

    def known(self, start: RunStart, run_id: str | None) -> Any | None:
        """The run that an earlier start of it has made, by the store's id: people rename experiments and edit tags.

        Raises:
            RefusedError: somebody has deleted it.
            TrackingError: somebody has deleted its experiment, which can be restored.
        """
        if run_id is None:
            return None
        run = run_or_none(self._client, run_id)
        if run is not None:
            self._experiments[start.experiment] = self._active(self._client.get_experiment(run.info.experiment_id))
            if run.info.lifecycle_stage == "active":
                return run
        raise RefusedError(f"the run {shorten(start.key)!r} was deleted in {masked(self._uri)}.", "deleted", True)

    def found(self, start: RunStart, parent: str | None) -> tuple[str, Any | None]:
        """The experiment for a run, that of its parent where it has one, and the run there that carries its key."""
        experiment = self._beside(start, parent) or self._named(start.experiment)
        found = self._client.search_runs([experiment], f"tags.`laptime.key` = '{quoted(start.key)}'", max_results=1)
        return experiment, found[0] if found else None

    def knows(self, run_ids: Iterable[str]) -> bool:
        """Whether one of these runs is there, a deleted one too."""
        return any(run_or_none(self._client, run_id) is not None for run_id in run_ids)

    @contextmanager
    def holding(self, run_id: str) -> Iterator[None]:
        """Tells a run that somebody has deleted, which is refused, from a whole experiment, which can be restored.

        Raises:
            RefusedError: as the block has raised it.
            TrackingError: the experiment is deleted, and the run with it.
        """
        try:
            yield
        except RefusedError as refusal:
            run = run_or_none(self._client, run_id) if refusal.deleted else None
            if run is not None:
                self._active(self._client.get_experiment(run.info.experiment_id))
            raise

    def _beside(self, start: RunStart, parent: str | None) -> str | None:
        if start.experiment not in self._experiments and parent is not None:
            run = run_or_none(self._client, parent)
            if run is not None:
                found = self._client.get_experiment(run.info.experiment_id)
                self._experiments[start.experiment] = self._active(found)
        return self._experiments.get(start.experiment)

    def _named(self, name: str) -> str:
        if name not in self._experiments:
            self._experiments[name] = self._by_name(name) or self._create(name)
        return self._experiments[name]

    def _by_name(self, name: str) -> str | None:
        found = self._client.get_experiment_by_name(name)
        return None if found is None else self._active(found)

    def _active(self, found: Any) -> str:
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"the experiment {shorten(found.name)!r} in {masked(self._uri)} is deleted: restore it with "
                f"mlflow experiments restore --experiment-id {found.experiment_id}."
            )
        return str(found.experiment_id)

    def _create(self, name: str) -> str:
        place = (self._artifact_root / re.sub(r"[^\w.-]", "_", name)).as_uri() if is_sqlite(self._uri) else None
        try:
            return str(self._client.create_experiment(name, artifact_location=place, tags=saved_view()))
        except Exception:  # MLflow's own: another process may have been faster
            found = self._by_name(name)
            if found is None:
                raise
            return found


def saved_view() -> dict[str, str]:
    """An experiment's tag, by which MLflow's UI lists a view of its runs below Views; others than its UI pass over it.

    Columns that no run of the experiment has are not shown.
    """
    state = {"selectedColumns": [f"{kind}.`{name}`" for kind, names in _COLUMNS.items() for name in names]}
    view = {"name": "laptime", "createdAt": 0, "updatedAt": 0, "state": json.dumps(state)}
    return {"mlflow.sharedViewState.laptime": json.dumps(view)}


def all_experiments(client: Any, most: int = 1000) -> list[str]:
    """The ids of all experiments that are not deleted, of which a client gives `most` at a time."""
    found: list[str] = []
    token = None
    while token or not found:
        page = client.search_experiments(max_results=most, page_token=token)
        found += [str(experiment.experiment_id) for experiment in page]
        token = page.token
        if not page:
            break
    return found


def found_runs(client: Any, experiments: list[str], query: str, most: float = math.inf) -> list[Any]:
    """The runs of some experiments that a query finds, the newest first, of which a client gives `PAGE` at a time.

    Args:
        client: an MlflowClient.
        experiments: their ids; where there are none there are no runs.
        query: MLflow's filter.
        most: how many at most.
    """
    found: list[Any] = []
    newest, token = ["attributes.start_time DESC"], None
    while experiments and len(found) < most:
        size = int(min(PAGE, most - len(found)))
        page = client.search_runs(experiments, query, max_results=size, order_by=newest, page_token=token)
        found += page
        token = page.token
        if not token:
            break
    return found


def run_or_none(client: Any, run_id: str) -> Any | None:
    """A run by the store's id, a deleted one too; None where there is none of this id."""
    try:
        return client.get_run(run_id)
    except Exception as error:  # only MLflow's own have a code
        if getattr(error, "error_code", "") not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        return None


def quoted(text: str) -> str:
    """A text as it may stand in a query of MLflow's."""
    return re.sub(r"[^\w.:/+=-]", "_", text)
