"""What the comparison reads of recorded runs, fetched through an MLflow client (which is passed in, not imported)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from laptime.errors import DataError, shorten
from laptime.tracking.publish import run_folder
from laptime.tracking.whereabouts import all_experiments, found_runs, quoted, run_or_none


def download(client: Any, run: Any, files_of: Callable[[Any], Any]) -> Path:
    """Downloads the records of a ladder's run, or of one variant's, to a temporary folder.

    The folder is laid out as a ladder's own: `ladder.json`, `comparison.json` where it has ended, and
    `<variant>-<repeat>/record.json`.

    Args:
        client: an MlflowClient.
        run: the run, of either kind.
        files_of: gives a run's files, an ArtifactRepository. The client's own methods ask for the run and for its
            models before each file, and a server with logins hashes a password at each question, for most of a second.

    Raises:
        DataError: the run was not written by laptime.
    """
    parent = run.data.tags.get("mlflow.parentRunId")
    folder = Path(tempfile.mkdtemp(prefix="laptime-"))
    try:
        for child in [run] if parent else [run, *variant_runs(client, run)]:
            _fetch_records(files_of(child), child, folder)
        ladder = run_or_none(client, parent) if parent else run
        if ladder is not None:  # mlflow gc may have taken it away
            _fetch(files_of(ladder), ("ladder.json", "comparison.json"), folder)
        if not any(folder.rglob("record.json")):
            raise DataError(_without_records(run))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _without_records(run: Any) -> str:
    named = shorten(run.info.run_id)
    if run.data.tags.get("laptime.kind") == "ladder":
        return (
            f"the ladder's run {named!r} has no variant's run with a record.json (any more): restore those that were "
            "deleted (mlflow runs restore --run-id ID), or give the ladder's folder."
        )
    return f"the run {named!r} holds no record.json: give the id of a ladder's or a variant's run."


def read_kind(
    client: Any, kind: str, most: int, tags: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[dict[str, str], dict[str, float]]]:
    """What the runs with a `laptime.kind` hold, in all experiments, the newest first: labels and last metrics.

    The labels are the params, and beside them the tags of ours.

    Args:
        client: an MlflowClient.
        kind: a word of ours.
        most: how many at most.
        tags: that they carry beside it.
    """
    asked = {"laptime.kind": kind, **tags}
    query = " and ".join(f"tags.`{name}` = '{quoted(value)}'" for name, value in asked.items())
    found = found_runs(client, all_experiments(client), query, most)
    return [(_labels(run), dict(run.data.metrics)) for run in found]


def _labels(run: Any) -> dict[str, str]:
    tags = {name: value for name, value in run.data.tags.items() if name.startswith("laptime.")}
    return {**tags, **run.data.params}


def variant_runs(client: Any, run: Any) -> list[Any]:
    """The runs of a ladder's variants, the newest first; verified advice has runs of its own beside them."""
    query = f"tags.`mlflow.parentRunId` = '{run.info.run_id}' and tags.`laptime.kind` = 'variant'"
    return found_runs(client, [run.info.experiment_id], query)


def _fetch_records(files: Any, run: Any, folder: Path) -> None:
    variant = run.data.tags.get("laptime.variant", run.info.run_id)
    first = run_folder(folder, variant, 0)
    there = _fetch(files, ("record.json", "advice.json"), first)
    if "profile" in there:
        _fetch(files, ("profile/breakdown.json",), first / "profile")
    for entry in files.list_artifacts("repeats") if "repeats" in there else ():
        repeat = int(entry.path.rpartition("/")[2])
        _fetch(files, (f"{entry.path}/record.json",), run_folder(folder, variant, repeat))


def _fetch(files: Any, wanted: tuple[str, ...], folder: Path) -> set[str]:
    """Fetches those of some files beside each other that are there; what else is there."""
    there = {entry.path for entry in files.list_artifacts(wanted[0].rpartition("/")[0] or None)}
    for path in there.intersection(wanted):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            found = files.download_artifacts(path, scratch)
            shutil.copyfile(found, folder / Path(path).name)
    return there
