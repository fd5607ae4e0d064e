"""Checkpoints in S3: a killed run goes on from there, and one that can't see them begins anew or is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from proxy import Proxy, a_proxy
from s3_server import S3Server
from tests.breaking_off import broken_off, trained

from laptime import worker
from laptime.data.s3 import S3Place
from laptime.engine import checkpoint
from laptime.engine.checkpoint import Checkpoints, CheckpointsAwayError
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.preflight.inspecting import inspect
from laptime.spec import DataSpec, RunSpec
from laptime.world import ALONE
from own_files import TUPLE, own_spec, write

Files = dict[str, DataSpec]

# Long enough for a kill to come in the middle of the epochs, whatever the machine is busy with.
SLOW = ("        x, y = batch\n", "        x, y = batch\n        import time\n        time.sleep(0.1)\n")


@pytest.fixture
def place(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Place:
    """A run's own prefix, which the environment leads to."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with contextlib.suppress(Exception):  # another test made it
        s3_server.make_bucket("checkpoints")
    return S3Place(f"s3://checkpoints/{request.node.name}")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A workload, and one that takes its time, each looked into once."""
    root = tmp_path_factory.mktemp("checkpoints")
    names = write(root / "kept_quick.py", TUPLE), write(root / "kept_slow.py", TUPLE, SLOW)
    return dict(zip(("quick", "slow"), map(inspect, names), strict=True))


def spec_of(place: S3Place, data: DataSpec, epochs: int) -> RunSpec:
    return own_spec(data, epochs=epochs, warmup_epochs=1, check=False, checkpoints=place.url)


def pointer(place: S3Place) -> list[int]:
    """Epochs of the checkpoints that it names."""
    body = place.read("latest.json")
    return [] if body is None else [said["epochs"] for said in json.loads(body)["written"]]


def test_a_killed_run_goes_on_from_s3(place: S3Place, files: Files, tmp_path: Path) -> None:
    def kill(event: dict[str, object]) -> None:
        if event["event"] == "epoch":
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if str(tmp_path / "first") in " ".join(process.cmdline()):
                        process.kill()

    spec = spec_of(place, files["slow"], epochs=6)
    broken = launch("process", spec, tmp_path / "first", Hooks(on_event=kill))
    assert broken.status == "failed"
    assert "killed" in str(broken.error)
    come_to = pointer(place)[0]
    record = launch("process", spec, tmp_path / "second", Hooks())
    assert record.status == "done", record.error
    assert [e.index for e in record.epochs] == list(range(6))
    assert [s.epoch for s in record.starts] == [0, come_to]
    assert [e.index for e in record.epochs if e.resumed] == [come_to]
    assert record.notes == ()
    assert pointer(place) == [6, 5]


def test_a_damaged_checkpoint_in_s3_falls_back_to_the_one_before(place: S3Place, files: Files, tmp_path: Path) -> None:
    spec = spec_of(place, files["quick"], epochs=4)
    broken_off(spec, tmp_path / "first", after=3)
    newest = json.loads(place.read("latest.json") or b"")["written"][0]["name"]
    body = bytearray(place.read(newest) or b"")
    body[len(body) // 2] ^= 1
    place.write(bytes(body), newest)
    record = worker.run(spec, tmp_path / "second")
    assert record.status == "done", record.error
    assert [(e.index, e.resumed) for e in record.epochs] == [(0, False), (1, False), (2, True), (3, False)]
    assert record.notes == (f"the checkpoint after 3 epochs at {place.url} is damaged: not used",)
    assert pointer(place) == [4, 3]


def test_of_two_starts_at_the_very_same_moment_one_writes_the_pointer(
    place: S3Place, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one writes between the look and the write, which a condition on what was seen refuses."""
    spec, real = spec_of(place, files["quick"], epochs=3), S3Place.swap
    between: list[Checkpoints] = []

    def swap(self: S3Place, body: bytes, name: str, etag: str | None) -> bool:
        if between:
            assert between.pop().find() is not None
        return real(self, body, name, etag)

    monkeypatch.setattr(S3Place, "swap", swap)
    kept, notes = [], []
    for facts in trained(spec, tmp_path / "old"):
        kept.append(facts.epochs[-1].checkpoint_s is not None)
        notes = facts.checkpoints.notes
        if len(facts.epochs) == 1:
            between.append(Checkpoints(spec, ALONE))
    assert kept == [True, False, False]
    assert notes == [f"another start of this run goes on at {place.url}: this one writes no checkpoints any more"]
    assert pointer(place) == [1]
    assert len(list(trained(spec, tmp_path / "new"))) == 2
    assert pointer(place) == [3, 2]


class _Refusal:
    """The body of an answer, as botocore reads it."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield b"<Error><Code>NotImplemented</Code><Message>A header is not implemented.</Message></Error>"


def test_a_server_that_knows_no_conditions_is_looked_at_before_it_is_written_to(
    place: S3Place, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some that speak S3; all else is the real one's."""
    refused = []

    def refuse(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        if not {"If-Match", "If-None-Match"} & set(request.headers):
            return None
        refused.append(request.url)
        return AWSResponse(request.url, 501, {}, _Refusal())

    real = S3Place._client

    def client(self: S3Place) -> object:
        made = real(self)
        made.meta.events.register("before-send.s3.PutObject", refuse, unique_id="without conditions")
        return made

    monkeypatch.setattr(S3Place, "_client", client)
    spec = spec_of(place, files["quick"], epochs=3)
    assert broken_off(spec, tmp_path / "first", after=2).checkpoints.notes == []
    assert refused
    assert pointer(place) == [2, 1]
    assert not place.swap(b"late", "latest.json", "another")
    record = worker.run(spec, tmp_path / "second")
    assert (record.status, record.notes, pointer(place)) == ("done", (), [3, 2])


@pytest.fixture
def line(place: S3Place, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The line to the server, which is not waited for long."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(checkpoint, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(checkpoint, "_WATCHED_PATIENCE_S", 0.5)
    with a_proxy(s3_server.endpoint) as (line, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield line


def test_a_run_that_began_without_s3_overwrites_no_newer_checkpoint(
    place: S3Place, files: Files, line: Proxy, tmp_path: Path
) -> None:
    spec = spec_of(place, files["quick"], epochs=4)
    broken_off(spec, tmp_path / "first", after=2)
    assert pointer(place) == [2, 1]
    line.away = True
    line.cut()
    found = []
    for facts in trained(spec, tmp_path / "second"):
        line.reset()
        found.append((facts.epochs[-1].checkpoint_s is not None, pointer(place)))
        notes, starts = facts.checkpoints.notes, facts.checkpoints.starts
    assert found == [(False, [2, 1]), (False, [2, 1]), (True, [3, 2]), (True, [4, 3])]
    anew, missed, kept = notes
    assert anew.startswith("the run began anew without seeing whether it has checkpoints: ")
    assert "no checkpoint was written after epoch 0" in missed
    assert f"the checkpoint after 2 epochs that was seen at {place.url} later is kept" in kept
    assert [s.epoch for s in starts] == [0]
    assert list(trained(spec, tmp_path / "third")) == []  # it goes on from the end


def test_a_run_trains_to_its_end_where_nobody_listens(
    place: S3Place, files: Files, line: Proxy, tmp_path: Path
) -> None:
    line.away = True
    record = worker.run(spec_of(place, files["quick"], epochs=2), tmp_path / "run")
    assert record.status == "done", record.error
    assert [e.checkpoint_s for e in record.epochs] == [None, None]
    assert [note.partition(":")[0] for note in record.notes] == [
        "the run began anew without seeing whether it has checkpoints",
        "no checkpoint was written after epoch 0",
        "no checkpoint was written after epoch 1",
    ]


def test_a_run_that_is_started_again_by_others_leaves_no_record_where_nobody_listens(
    place: S3Place, files: Files, line: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.away = True
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(CheckpointsAwayError, match=r"can't be reached .* start it again when it answers"):
        worker.run(spec_of(place, files["quick"], epochs=2), tmp_path / "run")


def test_a_run_whose_checkpoint_is_known_and_away_does_not_begin_anew(
    place: S3Place, files: Files, line: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(place, files["quick"], epochs=2)
    broken_off(spec, tmp_path / "first", after=1)
    real = S3Place.read

    def read(self: S3Place, name: str) -> bytes | None:
        body = real(self, name)
        line.away = True
        line.cut()
        return body

    monkeypatch.setattr(S3Place, "read", read)
    record = worker.run(spec, tmp_path / "second")
    assert record.status == "failed"
    assert "start it again when it answers" in str(record.error)
    assert record.epochs == ()
