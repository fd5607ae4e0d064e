"""A server that is away, cut off, held or failing while a journal is replayed: all of it arrives later, once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow_helpers import everything, quiet, write_ladder
from mlflow_server import MlflowServer
from proxy import Proxy, a_proxy

from laptime.errors import TrackingError
from laptime.places import Places
from laptime.tracking.sync import sync, target_of, waiting

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow.*"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def away(line: Proxy) -> None:
    line.away = True


def failing(line: Proxy) -> None:
    line.failing = True


def cut(line: Proxy) -> None:
    line.cut_down = 20_000


def held(line: Proxy) -> None:
    line.hold_down = 12_000


@pytest.mark.parametrize("outage", [away, failing, cut, held])
def test_what_an_outage_stops_arrives_later_and_once(
    tmp_path: Path,
    running_server: MlflowServer,
    sqlite_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    outage: Callable[[Proxy], None],
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    places = Places(tmp_path / "home")
    with a_proxy(running_server.uri) as (line, uri):
        ladder = write_ladder(places, f"outage-{outage.__name__}", target_of(uri, places))
        outage(line)
        with pytest.raises(TrackingError, match="laptime sync sends it when the store is back"):
            sync(places, uri, quiet)
        assert len(waiting(places)) == 1
        line.reset()
        sync(places, uri, quiet)
    assert waiting(places) == []
    found = everything(running_server.uri, ladder)
    unbroken = Places(tmp_path / "unbroken")
    shutil.copytree(places.journal, unbroken.journal, ignore=lambda *_: [f"{ladder.id}.state.json"])
    sync(unbroken, sqlite_uri, quiet, redirect=True)
    assert found == everything(sqlite_uri, ladder)
