"""Which model a run means, logging and loading it; MLflow and its client are passed in, not imported."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from laptime.errors import DataError, shorten
from laptime.host.scratch import scratch
from laptime.parsing import parse_json
from laptime.tracking.fetch import variant_runs

# A detector's, whose program takes no one batch, and a user's own.
_FILES = ("model.pt", "spec.json")


@contextlib.contextmanager
def without_lightning() -> Iterator[None]:
    """For the import of mlflow.pytorch, which tries Lightning for its autologging: seconds that help nobody here."""
    name = "pytorch_lightning"
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment] # as Python documents it: importing it fails
    try:
        yield
    finally:
        if hidden:
            del sys.modules[name]


def load_model(mlflow: Any, client: Any, run: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model of a variant's run, or of the fastest variant of a ladder's run.

    Args:
        mlflow: the package.
        client: an MlflowClient.
        run: the run, of either kind.
        folder: an empty one.

    Returns:
        The logged model and its metadata, see `load`; None and nothing where the run has its files instead, which are
        then in the folder.

    Raises:
        DataError: the run has neither.
    """
    for candidate in _variants(client, run) if run.data.tags.get("laptime.kind") == "ladder" else [run]:
        run_id = candidate.info.run_id
        held = client.search_logged_models([candidate.info.experiment_id], f"source_run_id = '{run_id}'")
        ready = [m for m in held if m.name == "model" and m.status.value == "READY"]
        if ready:
            return load(mlflow, ready[0])
        if {f.path for f in client.list_artifacts(run_id)}.issuperset(_FILES):
            for name in _FILES:
                client.download_artifacts(run_id, name, str(folder))
            return None, {}
    raise DataError(
        f"the run {shorten(run.info.run_id)!r} has no logged model: give a variant's run that has one, or a run folder "
        "with model.pt (laptime sync logs models that are still missing)."
    )


def load(mlflow: Any, found: Any) -> tuple[Any, dict[str, Any]]:
    """Loads a logged model on the CPU: a module of its exported program, and its metadata.

    What stands on a server may come from anybody: MLflow is told to refuse all that holds a pickle, which could run
    code.

    Raises:
        DataError: it can't be loaded, or not safely.
    """
    os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
    try:
        metadata = mlflow.models.get_model_info(found.model_uri).metadata
        return mlflow.pytorch.load_model(found.model_uri), dict(metadata or {})
    except mlflow.exceptions.MlflowException as error:
        reason = shorten(str(error).partition("\n")[0], 200)
        raise DataError(f"the logged model {found.model_id} can't be loaded ({reason}): train it again.") from error


def log_model(mlflow: Any, what: tuple[Any, Any], run_id: str, metadata: Mapping[str, Any]) -> None:
    """Logs a model to a run, whatever its status, which stays; a run that has one keeps it.

    The program is stored as torch.export writes it: loading it runs no pickle and needs no class of the model's. The
    requirements are given and the serving check is left out, which take 8 s of the 9 otherwise.

    Args:
        mlflow: the package.
        what: a plain module in evaluation mode, on the CPU, and a batch of at least two inputs [B, 3, H, W], float32,
            as a numpy array: a single one would be fixed.
        run_id: MLflow's id; the store is MLFLOW_TRACKING_URI.
        metadata: what a prediction needs to know.
    """
    client = mlflow.MlflowClient()
    experiment = client.get_run(run_id).info.experiment_id
    mlflow.set_experiment(experiment_id=experiment)
    held = client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
    ours = [m for m in held if m.name == "model"]
    if any(m.status.value == "READY" for m in ours):
        return
    for broken_off in ours:  # an earlier try, whose files are not all there: without this each try would add one
        client.delete_logged_model(broken_off.model_id)
    mlflow.pytorch.log_model(
        what[0],
        name="model",
        run_id=run_id,
        input_example=what[1],
        pip_requirements=["torch", "numpy"],
        serialization_format="pt2",
        metadata=dict(metadata),
        validate_serving_input=False,
    )


def _variants(client: Any, run: Any) -> list[Any]:
    """The runs of a ladder's preferred variants, the best first."""
    names = preferred(_comparison(client, run.info.run_id))
    by_name = {c.data.tags.get("laptime.variant"): c for c in reversed(variant_runs(client, run))}
    return [by_name[n] for n in names if n in by_name]


def _comparison(client: Any, run_id: str) -> Any:
    if "comparison.json" not in {f.path for f in client.list_artifacts(run_id)}:
        raise DataError(
            f"the run {shorten(run_id)!r} holds no comparison.json, which says what is fastest: give a variant's run."
        )
    with scratch("comparison") as folder:
        return read_comparison(Path(client.download_artifacts(run_id, "comparison.json", str(folder))))


def read_comparison(path: Path) -> Any:
    """A comparison's fields; raises DataError where the file is none."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path.name} can't be read ({shorten(str(error))}): give a variant's run instead.") from error


def preferred(comparison: Any) -> list[str]:
    """Names of the variants whose model one would use: the fastest that is not worse, then the baseline.

    Args:
        comparison: the fields of a `laptime.comparison/1`; what has another form names none.
    """
    if not isinstance(comparison, dict):
        return []
    headlines = comparison.get("headlines")
    headlines = headlines if isinstance(headlines, list) else ()
    fastest = [h.get("variant") for h in headlines if isinstance(h, dict) and h.get("kind") == "fastest"]
    return [str(name) for name in (*fastest, comparison.get("baseline")) if name]
