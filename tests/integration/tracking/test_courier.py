"""A journal on its way while its ladder runs: in short goes, and a store that is away is left alone."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from mlflow_helpers import everything, quiet
from tests.warned import BY_MLFLOW
from tracking_samples import a_ladder, a_record, write_run

from laptime.records import Rung
from laptime.tracking import Journal
from laptime.tracking.courier import Courier
from laptime.tracking.journal import read_state
from laptime.tracking.mlflow import MlflowTracker
from laptime.tracking.publish import ladder_started, process_recorded, variant_key

pytestmark = BY_MLFLOW


class Clock:
    """A clock that goes on by some seconds each time it is looked at."""

    def __init__(self) -> None:
        self.now = self.step_s = 0.0

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def test_a_ladder_shows_as_it_goes_and_a_slow_store_takes_it_in_short_goes(tmp_path: Path, sqlite_uri: str) -> None:
    ladder, clock = a_ladder("going"), Clock()
    with Journal(tmp_path / "journal" / "going.jsonl") as journal:
        courier = Courier(journal, (sqlite_uri, tmp_path / "artifacts"), quiet, clock=clock)
        ladder_started(journal, ladder)
        courier.deliver()
        assert everything(sqlite_uri, ladder)["going"][0] == "RUNNING"
        record = a_record("cpu-a")
        write_run(tmp_path / "ladder", record)
        process_recorded(journal, ladder, Rung(variant="cpu-a"), [record], tmp_path / "ladder")
        clock.step_s = 3.0
        before = read_state(journal.path).applied
        courier.deliver()
        assert read_state(journal.path).applied == before + 1, "one event, and the time is over"
        clock.step_s = 0.0
        courier.deliver()
    status, _, _, params, histories, files = everything(sqlite_uri, ladder)[variant_key(ladder, "cpu-a")]
    assert (status, params["variant"]) == ("FINISHED", "cpu-a")
    assert len(histories["epoch_s"]) == 2
    assert "record.json" in files


def test_a_store_is_opened_only_for_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ladder, opened = a_ladder("news"), list[str]()
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    plain = MlflowTracker.__init__
    monkeypatch.setattr(
        MlflowTracker, "__init__", lambda self, uri, place: (opened.append(uri), plain(self, uri, place))[1]
    )
    with Journal(tmp_path / "journal" / "news.jsonl") as journal:
        courier = Courier(journal, (uri, tmp_path / "artifacts"), quiet, clock=(clock := Clock()))
        ladder_started(journal, ladder)
        for _ in range(3):
            courier.deliver()
        assert len(opened) == 1
        record = a_record("cpu-a")
        write_run(tmp_path / "ladder", record)
        process_recorded(journal, ladder, Rung(variant="cpu-a"), [record], tmp_path / "ladder")
        clock.step_s = 3.0  # not all of it arrives in time
        courier.deliver()
        clock.step_s = 0.0
        for _ in range(3):
            courier.deliver()
        assert len(opened) == 3
    assert everything(uri, ladder)[variant_key(ladder, "cpu-a")][0] == "FINISHED"


def test_a_store_that_does_not_answer_is_asked_less_often_each_time(tmp_path: Path) -> None:
    asked: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server, Journal(tmp_path / "away.jsonl") as journal:

        def refuse() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                asked.append(connection)
                connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        said: list[str] = []
        clock = Clock()
        for scheme in ("http", "postgresql"):
            uri = f"{scheme}://me:secret@127.0.0.1:{server.getsockname()[1] if scheme == 'http' else 9}/x"
            courier = Courier(journal, (uri, tmp_path), said.append, clock=clock)
            for clock.now in (0.0, 29.0, 31.0, 90.0, 92.0):
                courier.deliver()
            assert len(said) == 1
            assert "laptime sync sends it" in said.pop()
    assert len(asked) == 3
