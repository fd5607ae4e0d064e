"""What a store refuses for good costs that one thing; what it may take later waits."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import requests
from tracking_samples import MemoryStore, a_ladder, a_record, write_run
from typer.testing import CliRunner

from laptime.cli import app
from laptime.errors import RefusedError, TrackingError, UsageError
from laptime.places import Places
from laptime.records import Rung
from laptime.tracking import Journal
from laptime.tracking.journal import is_settled, replay
from laptime.tracking.publish import ladder_finished, ladder_started, variant_recorded
from laptime.tracking.reach import explained, read_from
from laptime.tracking.sync import sync


class Refusing(MemoryStore):
    """Takes no file of one name, and nothing of runs that are deleted."""

    def __init__(self, file: str = "", deleted: str = "") -> None:
        super().__init__()
        self.file, self.deleted = file, deleted

    def log_artifact(self, key: str, path: Path, folder: str = "") -> None:
        if path.name == self.file:
            raise RefusedError("no", "413: too large", deleted=False)
        self._check(key)
        super().log_artifact(key, path, folder)

    def set_tags(self, key, tags) -> None:
        self._check(key)
        super().set_tags(key, tags)

    def log_metrics(self, key, rows) -> None:
        self._check(key)
        super().log_metrics(key, rows)

    def end_run(self, key, status, ended_at) -> None:
        self._check(key)
        super().end_run(key, status, ended_at)

    def _check(self, key: str) -> None:
        if key == self.deleted:
            raise RefusedError("no", "400: the run is deleted", deleted=True)


def written(tmp_path: Path) -> Path:
    ladder, path = a_ladder(), tmp_path / "j.jsonl"
    with Journal(path) as journal:
        ladder_started(journal, ladder)
        record = a_record("cpu-baseline", 0)
        write_run(tmp_path, record)
        variant_recorded(journal, ladder, Rung(variant="cpu-baseline"), [record], tmp_path)
        done = ladder.model_copy(update={"status": "done", "ended_at": 2000.0})
        ladder_finished(journal, done, {}, "# Done", {})
    return path


def test_a_file_that_is_refused_for_good_costs_itself_alone(tmp_path: Path) -> None:
    path, store, said = written(tmp_path), Refusing(file="log.txt"), []
    whole = MemoryStore()
    replay(path, whole, said.append)
    path.with_suffix(".state.json").unlink()
    said.clear()
    replay(path, store, said.append)
    assert is_settled(path)
    assert len(said) == 1
    assert "log.txt was refused" in said[0]
    assert "413: too large" in said[0]
    for run_id, run in whole.runs.items():
        assert {f for f in run["files"] if not f.endswith("log.txt")} == store.runs[run_id]["files"]
        assert (run["status"], run["metrics"], run["tags"]) == tuple(
            store.runs[run_id][n] for n in ("status", "metrics", "tags")
        )


def test_a_run_that_was_deleted_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    path, said = written(tmp_path), []
    whole = MemoryStore()
    replay(path, whole, said.append)
    keys = list(whole.run_ids)
    path.with_suffix(".state.json").unlink()
    store = Refusing(deleted=keys[1])
    replay(path, store, said.append)
    assert is_settled(path)
    assert [text for text in said if keys[1] in text] == [
        f"the run {keys[1]} was deleted in the store, so what came of it later is left out."
    ]
    assert store.runs[f"id-{keys[0]}"] == whole.runs[f"id-{keys[0]}"]


@pytest.mark.parametrize(
    ("status", "for_good"),
    [(400, True), (413, True), (401, False), (403, False), (404, False), (429, False), (503, False)],
)
def test_which_answers_are_for_good(status: int, for_good: bool) -> None:
    reply = requests.Response()
    reply.status_code = status
    with pytest.raises(TrackingError) as caught, explained("http://there"):
        raise requests.HTTPError(f"{status} for url http://name:word@there/x", response=reply)
    assert isinstance(caught.value, RefusedError) == for_good
    assert "word" not in str(caught.value)
    assert ("MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in str(caught.value)) == (status in (401, 403))
    if isinstance(caught.value, RefusedError):
        assert "word" not in caught.value.reason
    with pytest.raises(type(caught.value)) as asked, read_from("http://there"):
        raise requests.HTTPError(f"{status} for url http://there/x", response=reply)
    ways = (
        (str(caught.value), "(EDIT)", "laptime sync sends it"),
        (str(asked.value), "(READ)", "nothing was read from it"),
    )
    for text, right, end in ways:  # what was only asked for waits in no journal
        assert (right in text, end in text) == (status == 403, True)
    assert "journal" not in str(asked.value)


@pytest.mark.parametrize("below", ["", "deeper/home"])
def test_a_file_in_the_place_of_the_stores_is_not_a_sync_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "file" / below))
    found = CliRunner().invoke(app, ["sync"])
    assert isinstance(found.exception, UsageError)
    assert "file' is a file: set LAPTIME_HOME to a folder." in str(found.exception)


def test_a_driver_that_is_not_installed_is_one_sentence() -> None:
    said = "the Python module no_such_driver is not installed here"
    with pytest.raises(TrackingError, match=said) as caught, explained("mysql+other://name:word@there/x"):
        importlib.import_module("no_such_driver")
    assert "word" not in str(caught.value)
    with pytest.raises(ImportError), explained("http://there"):  # a fault of ours is none of the store's
        importlib.import_module("laptime.no_such_module")


def test_sync_says_what_still_waits_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("LAPTIME_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    nothing = CliRunner().invoke(app, ["sync"])
    assert (nothing.exit_code, nothing.stdout) == (0, "Nothing was waiting.\n")
    with Journal(Places(home).journal / "away.jsonl", "http://127.0.0.1:9") as journal:
        ladder_started(journal, a_ladder())
    with Journal(Places(home).journal / "folder.jsonl", "mlruns") as journal:  # an earlier version's, of a gate
        ladder_started(journal, a_ladder())
    (Places(home).journal / "damaged.jsonl").write_text("{}\n{}\n")
    found = CliRunner().invoke(app, ["sync"])
    assert found.exit_code == 1
    assert "Nothing was waiting" not in found.stdout
    assert "3 journals still wait." in found.stdout
    told = CliRunner().invoke(app, ["sync", "--json"])
    assert told.exit_code == 1
    fields = json.loads(told.stdout)
    assert [Path(p).name for p in fields["unsent"]] == ["away.jsonl", "folder.jsonl"]
    assert [Path(p).name for p in fields["damaged"]] == ["damaged.jsonl"]


def test_what_waits_for_a_store_that_is_gone_is_said_with_the_way_out_and_left_alone_at_a_ladder_s_end(
    tmp_path: Path,
) -> None:
    places, said = Places(tmp_path / "home"), list[str]()
    with Journal(places.journal / "away.jsonl", "http://127.0.0.1:9") as journal:
        ladder_started(journal, a_ladder())
    found = sync(places, places.embedded_mlflow_uri, said.append)
    assert [Path(p).name for p in found.unsent] == ["away.jsonl"]
    (sentence,) = said
    assert "(1 journal of earlier commands waits for it; laptime sync --tracking-uri URI sends" in sentence
    assert sync(places, places.embedded_mlflow_uri, said.append, others=False).unsent == ()
    assert said == [sentence]
