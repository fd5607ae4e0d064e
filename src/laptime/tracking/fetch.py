"""What the comparison reads of recorded runs, fetched through an MLflow client (which is passed in, not imported)."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from laptime.errors import DataError, shorten


def download(client: Any, run: Any) -> Path:
    """Downloads the records of a ladder's run, or of one variant's, to a temporary folder.

    The folder is laid out as a ladder's own: `ladder.json` and `<variant>-<repeat>/record.json`.

    Args:
        client: an MlflowClient.
        run: the run, of either kind.

    Raises:
        DataError: the run was not written by laptime.
    """
    parent = run.data.tags.get("mlflow.parentRunId")
    folder = Path(tempfile.mkdtemp(prefix="laptime-"))
    for child in [run] if parent else [run, *variant_runs(client, run)]:
        _fetch_records(client, child, folder)
    _fetch(client, parent or run.info.run_id, "ladder.json", folder)
    if not any(folder.rglob("record.json")):
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(
            f"the run {shorten(run.info.run_id)!r} holds no record.json: give the id of a ladder's or a variant's run."
        )
    return folder


def read_kind(client: Any, kind: str, most: int) -> list[tuple[dict[str, str], dict[str, float]]]:
    """What the runs with a `laptime.kind` hold, in all experiments, the newest first: labels and last metrics.

    The labels are the params, and beside them the tags of ours.

    Args:
        client: an MlflowClient.
        kind: a word of ours.
        most: how many at most.
    """
    experiments = [e.experiment_id for e in client.search_experiments()]
    newest = ["attributes.start_time DESC"]
    query = f"tags.`laptime.kind` = '{kind}'"
    found = client.search_runs(experiments, query, max_results=most, order_by=newest) if experiments else []
    return [(_labels(run), dict(run.data.metrics)) for run in found]


def _labels(run: Any) -> dict[str, str]:
    tags = {name: value for name, value in run.data.tags.items() if name.startswith("laptime.")}
    return {**tags, **run.data.params}


def variant_runs(client: Any, run: Any) -> list[Any]:
    """The runs of a ladder's variants, the newest first; verified advice has runs of its own beside them."""
    query = f"tags.`mlflow.parentRunId` = '{run.info.run_id}'"
    found = client.search_runs([run.info.experiment_id], query, max_results=1000)
    return [child for child in found if child.data.tags.get("laptime.kind") == "variant"]


def _fetch_records(client: Any, run: Any, folder: Path) -> None:
    name = re.sub(r"[^\w.=-]", "_", run.data.tags.get("laptime.variant", run.info.run_id))
    _fetch(client, run.info.run_id, "record.json", folder / f"{name}-0")
    _fetch(client, run.info.run_id, "advice.json", folder / f"{name}-0")
    _fetch(client, run.info.run_id, "profile/breakdown.json", folder / f"{name}-0" / "profile")
    for entry in client.list_artifacts(run.info.run_id, "repeats"):
        repeat = entry.path.rpartition("/")[2]
        _fetch(client, run.info.run_id, f"{entry.path}/record.json", folder / f"{name}-{repeat}")


def _fetch(client: Any, run_id: str, path: str, folder: Path) -> None:
    parent = path.rpartition("/")[0]
    if path not in {f.path for f in client.list_artifacts(run_id, parent or None)}:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        found = client.download_artifacts(run_id, path, scratch)
        shutil.copyfile(found, folder / Path(path).name)
