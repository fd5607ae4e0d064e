from __future__ import annotations

from pathlib import Path

import pytest

from laptime.errors import UsageError
from laptime.tracking import check_uri, masked
from laptime.tracking.uri import without_credentials


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "./mlruns",
        "file:///tmp/mlruns",
        "file:/tmp/mlruns",
        "ftp://host/x",
        "http://",
        "http://host:99999999",
        "http://[::1",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://",
        "\x00http",
    ],
)
def test_what_can_not_work_is_refused_at_once(uri: str) -> None:
    with pytest.raises(UsageError, match="tracking URI"):
        check_uri(uri)


@pytest.mark.parametrize(
    "uri",
    ["http://127.0.0.1:5000", "https://mlflow.example/prefix", "postgresql+psycopg2://u:p@db/mlflow"],
)
def test_what_can_work_stays(uri: str) -> None:
    assert check_uri(uri) == uri


def test_a_relative_sqlite_path_becomes_absolute() -> None:
    assert check_uri("sqlite:///runs/mlflow.db") == f"sqlite:///{Path.cwd()}/runs/mlflow.db"
    assert check_uri("sqlite:////srv/mlflow.db") == "sqlite:////srv/mlflow.db"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://user:secret@host:5000/p?token=secret", "http://***@host:5000/p"),
        ("postgresql://u:secret@db/x", "postgresql://***@db/x"),
        ("sqlite:////srv/mlflow.db", "sqlite:////srv/mlflow.db"),
        ("http://user:secret@[::1", "http://***@[::1"),
    ],
)
def test_secrets_are_masked(uri: str, shown: str) -> None:
    assert masked(uri) == shown
    assert "secret" not in without_credentials(uri)


def test_errors_hold_no_secrets() -> None:
    with pytest.raises(UsageError) as caught:
        check_uri("ftp://user:secret@host/x")
    assert "secret" not in str(caught.value)
