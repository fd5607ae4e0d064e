"""Which of two starts of one run writes its checkpoints, should the earlier one still live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.conftest import make_spec

from laptime.data.objects import Folder
from laptime.engine.checkpoint import Checkpoints
from laptime.engine.checkpoint_pointer import POINTER, Claim, FollowedError, Pointer
from laptime.errors import DataError, UnreachableError
from laptime.records import EpochRecord
from laptime.world import ALONE

EPOCHS = [EpochRecord(index=n, epoch_s=2.0, samples=8) for n in range(5)]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def start(place, monkeypatch):
    """Makes starts of one run, whose state is small."""
    monkeypatch.setattr("laptime.engine.checkpoint.state_of", lambda parts: {})
    return lambda: Checkpoints(make_spec(checkpoints=str(place), epochs=5), ALONE)


def kept(checkpoints: Checkpoints, count: int) -> bool:
    return checkpoints.keep(None, EPOCHS[:count], ()).checkpoint_s is not None


def written(place: Path) -> list[int]:
    return [said["epochs"] for said in json.loads((place / POINTER).read_text())["written"]]


def followed(place: Path) -> list[str]:
    return [f"another start of this run goes on at {place}: this one writes no checkpoints any more"]


def test_a_start_that_another_one_has_followed_writes_no_more(start, place):
    """Its host was cut off, say, and the run goes on elsewhere."""
    old, new = start(), start()
    old.find()
    assert kept(old, 1)
    assert len(new.find().epochs) == 1
    there = {path.name: path.read_bytes() for path in place.iterdir()}
    assert not kept(old, 2)
    assert not kept(old, 3)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == there
    assert old.notes == followed(place)
    assert kept(new, 2)
    assert new.notes == []


def test_the_later_start_goes_on_whatever_the_earlier_one_wrote_while_it_began(start, place, monkeypatch):
    old, new, read = start(), start(), Folder.read
    old.find()
    kept(old, 1)

    def slow(self, name):
        body = read(self, name)
        if name != POINTER and written(place) == [1]:
            assert kept(old, 2)
        return body

    monkeypatch.setattr(Folder, "read", slow)
    assert len(new.find().epochs) == 1
    assert not kept(old, 3)
    assert kept(new, 2)
    assert (old.notes, new.notes, written(place)) == (followed(place), [], [2, 1])
    assert len(start().find().epochs) == 2


def test_a_start_that_could_not_be_noted_yields_to_a_later_one(start, place, monkeypatch):
    old, new = start(), start()
    with monkeypatch.context() as full:
        full.setattr(Folder, "write", lambda self, body, name: (_ for _ in ()).throw(DataError("the disk is full")))
        old.find()
    assert old.notes == ["this start was not noted beside its checkpoints: the disk is full"]
    new.find()
    assert not kept(old, 1)
    assert old.notes[1:] == followed(place)
    assert kept(new, 1)


def test_a_start_that_could_not_be_noted_writes_as_soon_as_it_can(start, place, monkeypatch):
    one = start()
    with monkeypatch.context() as full:
        full.setattr(Folder, "write", lambda self, body, name: (_ for _ in ()).throw(DataError("the disk is full")))
        one.find()
        assert not kept(one, 1)
    assert kept(one, 2)
    assert kept(one, 3)
    assert written(place) == [3, 2]
    assert [s["epoch"] for s in json.loads((place / POINTER).read_text())["starts"]] == [0]


def test_what_arrived_without_an_answer_is_one_s_own(tmp_path, monkeypatch):
    claim, swap = Claim(Folder(tmp_path)), Folder.swap
    claim.write(Pointer(spec="a"))

    def unanswered(self, body, name, mark):
        swap(self, body, name, mark)
        raise UnreachableError("no answer")

    with monkeypatch.context() as silent:
        silent.setattr(Folder, "swap", unanswered)
        with pytest.raises(UnreachableError):
            claim.write(Pointer(spec="b"))
    claim.check()
    claim.write(Pointer(spec="c"))
    assert standing(tmp_path) == "c"


def test_an_earlier_try_that_arrives_late_is_no_other_start(tmp_path, monkeypatch):
    claim = Claim(Folder(tmp_path))
    claim.write(Pointer(spec="a"))

    def late(self, body, name, mark):
        self.write(Pointer(spec="a").body(), name)
        return False

    with monkeypatch.context() as slow:
        slow.setattr(Folder, "swap", late)
        with pytest.raises(UnreachableError, match="earlier try"):
            claim.write(Pointer(spec="b"))
    claim.write(Pointer(spec="c"))
    assert standing(tmp_path) == "c"


def test_what_another_start_has_written_stays(tmp_path):
    claim = Claim(Folder(tmp_path))
    claim.write(Pointer(spec="a"))
    Folder(tmp_path).write(Pointer(spec="other").body(), POINTER)
    for late in (claim.check, lambda: claim.write(Pointer(spec="b"))):
        with pytest.raises(FollowedError, match=str(tmp_path)):
            late()
    assert standing(tmp_path) == "other"


def standing(place: Path) -> str:
    return json.loads((place / POINTER).read_text())["spec"]
