from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The samples of the unit tests; without packages under tests/, their folder must be on the path.
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "tracking"))

from mlflow_server import MlflowServer, a_server


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with a_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture
def running_server(mlflow_server: MlflowServer) -> MlflowServer:
    """The session's server; a test that stops it leaves it to this fixture to start it again."""
    if mlflow_server.process is None:
        mlflow_server.start()
    return mlflow_server


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One SQLite store for all tests: making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'mlflow.db'}"
