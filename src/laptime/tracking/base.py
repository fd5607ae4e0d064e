"""The interface of a tracker. Runs are named by a key of ours, so that events can be written without a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class RunStart:
    """The start of a run.

    Attributes:
        key: our name of the run: `<ladder id>` for a parent, `<ladder id>/<variant>` for a child.
        name: what the server shows.
        experiment: the experiment, which is the workload's name.
        started_at: seconds since the epoch.
        parent: key of the parent run.
    """

    key: str
    name: str
    experiment: str
    started_at: float
    parent: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricRow:
    """One value of a metric; `at` is in seconds since the epoch."""

    name: str
    value: float
    step: int
    at: float


@dataclass(frozen=True)
class ModelFiles:
    """A trained model that waits to become a logged model: a folder with `model.pt` and `spec.json`."""

    key: str
    folder: Path


class Tracker(Protocol):
    """What a ladder tells about its runs; every call is safe to repeat."""

    def start_run(self, start: RunStart) -> None:
        """Creates the run, or finds it where it exists."""
        ...

    def log_metrics(self, key: str, rows: Sequence[MetricRow]) -> None:
        """Adds values; a row that is already there changes nothing."""
        ...

    def set_tags(self, key: str, tags: Mapping[str, str]) -> None:
        """Sets or replaces tags."""
        ...

    def set_note(self, key: str, markdown: str) -> None:
        """Sets the description of the run."""
        ...

    def log_artifact(self, key: str, path: Path, folder: str = "") -> None:
        """Adds a file, or all files of a folder, under `folder` of the run's artifacts."""
        ...

    def log_model(self, model: ModelFiles) -> None:
        """Makes a trained model a logged model of its run."""
        ...

    def end_run(self, key: str, status: RunStatus, ended_at: float) -> None:
        """Ends the run."""
        ...


class Store(Tracker, Protocol):
    """A tracker that a journal is replayed into."""

    @property
    def target(self) -> str:
        """The store's address without credentials."""
        ...

    @property
    def run_ids(self) -> dict[str, str]:
        """The server's run id of each key; a replay fills in what it knows."""
        ...

    def knows(self, run_ids: Iterable[str]) -> bool:
        """Whether one of these runs of the server's is there, a deleted one too."""
        ...

    def log_models(self, models: Sequence[ModelFiles]) -> Mapping[str, str]:
        """Logs several models in one process; returns why not, by key, for those that can never be logged."""
        ...
