"""A run that is named by its id in MLflow, as a folder while it is read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laptime.errors import DataError


@contextmanager
def fetched_run(run: str) -> Iterator[Path]:
    """What the store in use holds of a ladder's or a variant's run, in a folder that is gone afterwards.

    Raises:
        DataError: there is no such run, or the block has raised it: told of the run, since the folder is gone by then.
        TrackingError: the store refuses it.
    """
    from laptime.places import find_places
    from laptime.tracking.mlflow import fetch_runs

    folder = fetch_runs(run, find_places().mlflow_uri)
    try:
        yield folder
    except DataError as error:
        raise DataError(of_run(str(error), folder, run)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def of_run(text: str, folder: Path, run: str) -> str:
    """A sentence about a fetched run's folder, told of the run."""
    return text.replace(str(folder), f"MLflow's run {run}")
