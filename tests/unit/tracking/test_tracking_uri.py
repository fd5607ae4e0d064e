from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving import Quiet, serving

from laptime.errors import TrackingError, UsageError
from laptime.ladder.request import LadderRequest, kept_request, tracking_uri
from laptime.places import Places
from laptime.tracking import check_uri, masked
from laptime.tracking.reach import last_cause, require_answer, require_port, unreachable
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
        "http+unix://%2Frun%2Fmlflow.sock",
        "databricks://profile",
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


@pytest.mark.parametrize(
    ("uri", "wrong"),
    [
        ("localhost:5000", "has no scheme"),
        ("databricks", "has no scheme"),
        ("arn:aws:sagemaker:eu-west-1:1:mlflow-tracking-server/x", "has no scheme"),
        ("mlruns", "names a folder"),
        ("/srv/a:b", "names a folder"),
        ("file:mlruns", "names a folder"),
    ],
)
def test_what_is_no_folder_is_not_called_one(uri: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        check_uri(uri)


def test_a_line_s_end_of_a_secret_s_file_is_no_part_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", " http://mlflow:5000\n")
    assert Places(Path("/home")).mlflow_uri == "http://mlflow:5000"
    assert check_uri("sqlite:////srv/mlflow.db\n") == "sqlite:////srv/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "  ")
    assert Places(Path("/home")).mlflow_uri == "sqlite:////home/mlflow.db"


def test_a_scheme_in_capitals_is_the_same_store(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_uri("HTTPS://User@Mlflow:5000/Runs") == "https://User@Mlflow:5000/Runs"
    assert check_uri("SQLite:////srv/X.db") == "sqlite:////srv/X.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "HTTP://mlflow:5000")
    assert Places(Path("/home")).mlflow_uri == "http://mlflow:5000"


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
        ("postgresql://u:pa/secret@127.0.0.1/db", "postgresql://***@127.0.0.1/db"),
        ("postgresql://u:123/secret@127.0.0.1/db", "postgresql://***@127.0.0.1/db"),
        ("postgresql://u:p?a#se cret@x@127.0.0.1/db?token=secret", "postgresql://***@127.0.0.1/db"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("https://host/a@b", "https://host/a@b"),
    ],
)
def test_secrets_are_masked(uri: str, shown: str) -> None:
    assert masked(uri) == shown
    assert "secret" not in without_credentials(uri)


def test_errors_hold_no_secrets() -> None:
    with pytest.raises(UsageError) as caught:
        check_uri("ftp://user:secret@host/x")
    assert "secret" not in str(caught.value)
    uri = "postgresql://u:secret/secret@127.0.0.1/db"
    with pytest.raises(UsageError, match=r"names no host.*written %2F") as caught:
        check_uri(uri)
    assert "secret" not in str(caught.value)
    for ask in (require_port, require_answer):
        with pytest.raises(TrackingError, match="does not answer") as refused:
            ask(uri if ask is require_port else uri.replace("postgresql", "http"), 1.0)
        assert "secret" not in str(refused.value)


@contextlib.contextmanager
def answering(head: bytes) -> Iterator[str]:
    """A server that gives every request the same answer; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(65536)
                        client.sendall(b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def test_a_server_that_sends_elsewhere_is_said_to() -> None:
    """What a client posts is lost on the way, so MLflow's own words would be of a request that nobody has made."""
    with answering(b"200 OK") as end:
        for code in (b"301 Moved Permanently", b"302 Found"):
            said = pytest.raises(TrackingError, match=f"it redirects to {end}, so give the address behind that")
            with answering(code + b"\r\nLocation: " + end.encode() + b"/health") as uri, said:
                require_answer(uri, 60.0)
        with answering(b"308 Permanent Redirect\r\nLocation: " + end.encode() + b"/health") as uri:
            require_answer(uri, 60.0)


def test_the_reason_is_what_the_last_try_met() -> None:
    said = (
        "MlflowException: API request to http://u:pw@h/api failed with exception HTTPConnectionPool(host='h', port=1): "
        "Max retries exceeded with url: /api/2.0/mlflow/experiments/search (Caused by ResponseError('too many 429 "
        "error responses'))"
    )
    found = unreachable("http://u:pw@h", said)
    assert "refuses (ResponseError('too many 429 error responses')): everything" in found
    flushed = "Error: (raised as a result of Query-invoked autoflush; consider this)\n(sqlite3) locked\n[SQL: x]"
    assert last_cause(flushed) == "Error: (sqlite3) locked"
    assert last_cause("ValueError: two\nlines") == "ValueError: two"
    denied = "S3Error: Failed to upload /a/b.json to runs/1/c/b.json: An error occurred (AccessDenied) when calling"
    assert last_cause(denied) == "S3Error: bucket runs: An error occurred (AccessDenied) when calling"


def test_a_server_that_speaks_no_http_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-x\r\n")
                connection.recv(1024)

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(TrackingError, match="does not answer"):
            require_answer(f"http://127.0.0.1:{server.getsockname()[1]}", 1.0)
        thread.join()


def test_the_store_of_a_request_is_checked_and_absolute(tmp_path: Path) -> None:
    kept = kept_request(LadderRequest(tracking_uri="sqlite:///runs/x.db"))
    assert kept["tracking_uri"] == f"sqlite:///{Path.cwd()}/runs/x.db"
    with pytest.raises(UsageError, match="names no host"):
        tracking_uri(LadderRequest(tracking_uri="http://"), Places(tmp_path))


class _Refusing(Quiet):
    def do_GET(self):
        self.give(b"no", status=403)


def test_a_refusal_is_an_answer_and_is_closed():
    """From Python 3.14 on one that is left open is warned of, which fails a test."""
    with serving(_Refusing) as address:
        require_answer(address, 60.0)
