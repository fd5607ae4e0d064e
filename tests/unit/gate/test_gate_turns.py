"""Epochs by turns, with real processes: never two at once, in the order that evens out drift, nobody waits in vain."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from laptime.gate.records import SideInfo
from laptime.gate.sides import Ready, SideError
from laptime.gate.trainer import Trainer
from laptime.launchers.turns import Seat, Turns, TurnsError

SRC = Path(__file__).resolve().parents[3] / "src"
# Notes when it starts and ends, and when each epoch does; `{more}` is done within the loop.
LOOP = """
import json, os, time
begin, seen = time.monotonic(), []
{before}
for epoch in __import__("laptime").epochs(range({epochs}), samples=7):
    since = time.monotonic()
    time.sleep(0.1)
    {more}
    seen.append((epoch, since, time.monotonic()))
{after}
open({path!r}, "w").write(json.dumps([begin, seen, time.monotonic()]))
"""


class Both:
    """A trainer in a folder, and what its two sides have noted."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.folder, self.trainer = folder, Trainer(folder / "runs", device, 60.0, print)

    def ready(self, side: str, epochs: int = 4, code: str | None = None, **parts: str) -> Ready:
        given = {"before": "", "more": "pass", "after": "", **parts}
        text = code or LOOP.format(path=str(self.folder / f"{side}.json"), epochs=epochs, **given)
        return Ready(side, SideInfo(), self.folder, (sys.executable, "-c", text), (("PYTHONPATH", str(SRC)),))

    def noted(self, side: str) -> tuple[float, list[tuple[int, float, float]], float]:
        begin, seen, end = json.loads((self.folder / f"{side}.json").read_text())
        return begin, seen, end


@pytest.fixture(autouse=True)
def locks(tmp_path, monkeypatch):
    """Locks of its own: a training of somebody else on this machine is not waited for."""
    monkeypatch.setattr("laptime.launchers.lock.lock_folder", lambda: tmp_path)


@pytest.fixture
def both(tmp_path):
    return Both(tmp_path)


def kept(noted, side):
    return [(since, until, side) for epoch, since, until in noted[1] if epoch > 0]


def test_kept_epochs_go_by_turns_and_never_two_at_once(both):
    one, other = both.trainer.train_by_turns(both.ready("head"), both.ready("base"), 3)
    assert (one.by_turns, other.by_turns) == (True, True)
    assert (one.process.side, other.process.side) == ("head", "base")
    assert (one.process.seed, other.process.seed) == (3, 3)
    assert [len(p.process.epoch_s) for p in (one, other)] == [3, 3]
    head, base = both.noted("head"), both.noted("base")
    spans = sorted([*kept(head, "head"), *kept(base, "base")])
    assert [side for _, _, side in spans] == ["head", "base", "base", "head", "head", "base"]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    # The first one's kept epochs begin when the second has started and warmed up; neither goes on before all are done.
    assert base[1][0][2] <= spans[0][0]
    assert min(head[2], base[2]) >= spans[-1][1]


# Imports take long, and a turn is asked for to prepare in, as by laptime's own worker. Where both are to import at the
# same time they wait for each other, however late a busy machine lets the second one begin.
PREPARES = """
from glob import glob
from laptime.host.turns import turn_taker
imports = time.monotonic()
if os.path.exists("together"):
    open("imports-" + os.environ["LAPTIME_SIDE"], "w").close()
    while len(glob("imports-*")) < 2 and time.monotonic() < imports + 30:
        time.sleep(0.02)
    time.sleep(1.0)
time.sleep(1.0)
with turn_taker() as turns:
    turns.prepare()
    prepares = time.monotonic()
    time.sleep(0.3)
    prepared = time.monotonic()
    for epoch in turns.epochs(iter(range(2))):
        since = time.monotonic()
        time.sleep(0.1)
        seen.append((epoch + 1, since, time.monotonic()))
epochs = [{"index": e, "epoch_s": until - since, "samples": 7} for e, since, until in seen]
open(os.environ["LAPTIME_RECORD"], "w").write(json.dumps({"schema": "laptime.record/1", "epochs": epochs}))
seen = [(0, imports, prepares), (0, prepares, prepared), *seen]
"""


def test_sides_that_ask_before_they_prepare_import_at_the_same_time(both):
    sides = [both.ready(side, epochs=0, before=PREPARES) for side in ("base", "head")]
    alone = [both.trainer.train(side, 0) for side in sides]
    assert all(t.by_turns for t in alone)
    (both.folder / "together").touch()
    found = both.trainer.train_by_turns(sides[1], sides[0], 0)
    (_, head, head_end), (_, base, base_end) = both.noted("head"), both.noted("base")
    assert max(head[0][1], base[0][1]) < min(head[0][2], base[0][2])  # both import
    assert head[1][2] <= base[1][1]  # the first prepares, then the second
    spans = sorted([*kept((0, head, 0), "head"), *kept((0, base, 0), "base")])
    assert [side for _, _, side in spans] == ["head", "base", "base", "head"]
    assert spans[0][0] >= base[1][2]
    assert min(head_end, base_end) >= spans[-1][1]
    # What both took is less than what each took of its own, by two seconds but for the ways between turns.
    assert found[0].together_s == found[1].together_s < sum(t.process.wall_s for t in found) - 0.5


def test_a_side_that_does_not_ask_to_prepare_starts_when_the_other_one_waits(both):
    sides = [both.ready("base", epochs=0, before=PREPARES), both.ready("head")]
    for side in sides:
        both.trainer.train(side, 0)
    both.trainer.train_by_turns(sides[0], sides[1], 0)
    assert both.noted("base")[1][0][2] >= both.noted("head")[0] >= both.noted("base")[1][0][1] + 1.0


def test_a_single_process_has_its_turns_at_once_and_says_that_it_takes_them(both):
    found = both.trainer.train(both.ready("base", before="large = b'x' * (300 << 20)"), 0)
    assert found.by_turns
    assert len(found.process.epoch_s) == 3
    assert found.process.peak_memory_mib is None  # such a record says nothing of memory, and two must fit
    assert found.memory_mib > 300


@pytest.mark.parametrize("device", ["cuda", "none"])
def test_turns_are_for_a_cpu(device, tmp_path):
    two = Both(tmp_path, device=device)
    assert not two.trainer.train(two.ready("base"), 0).by_turns


WRITES = """
import json, os
epochs = [{"index": i, "epoch_s": 1.0, "samples": 7} for i in range(3)]
open(os.environ["LAPTIME_RECORD"], "w").write(json.dumps({"schema": "laptime.record/1", "epochs": epochs}))
"""


@pytest.mark.parametrize("silent", ["base", "head"])
def test_a_side_that_knows_no_turns_holds_nobody_up(silent, both):
    spoken = "head" if silent == "base" else "base"
    sides = {silent: both.ready(silent, code=WRITES), spoken: both.ready(spoken)}
    with pytest.raises(TurnsError, match=f"{silent} took no turns"):
        both.trainer.train_by_turns(sides["base"], sides["head"], 0)
    assert len(both.noted(spoken)[1]) == 4


def test_what_follows_the_shorter_loop_disturbs_no_epoch_of_the_longer(both):
    after = "\nsince = time.monotonic(); time.sleep(0.5)\nseen.append((99, since, time.monotonic()))\n"
    short, long = both.ready("base", epochs=2, after=after), both.ready("head", epochs=6)
    found = both.trainer.train_by_turns(short, long, 0)
    assert [len(t.process.epoch_s) for t in found] == [1, 5]
    spans = sorted([*kept(both.noted("base"), "base"), *kept(both.noted("head"), "head")])
    assert len(spans) == 7
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_side_that_works_while_it_waits_takes_no_turns(both):
    busy = """
import threading
def work():
    while True:
        sum(range(1000))
threading.Thread(target=work, daemon=True).start()
"""
    long = "time.sleep(0.5)"  # for a busy machine to give the thread its part of it
    with pytest.raises(TurnsError, match=r"head worked for .* in which the other side had the turn"):
        both.trainer.train_by_turns(both.ready("base", more=long), both.ready("head", before=busy), 0)


@pytest.mark.parametrize("dies", ["base", "head"])
def test_a_side_that_dies_is_named_and_the_other_is_ended(dies, both):
    lives = "head" if dies == "base" else "base"
    note = both.folder / "pid"
    sides = {
        dies: both.ready(dies, more="os._exit(9) if epoch == 2 else None"),
        lives: both.ready(lives, before=f"open({str(note)!r}, 'w').write(str(os.getpid()))", epochs=1000),
    }
    with pytest.raises(SideError, match=f"{dies}'s training ended with 9") as caught:
        both.trainer.train_by_turns(sides["base"], sides["head"], 0)
    assert caught.value.side == dies
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_out_of_time_is_who_takes_too_long_and_not_who_waits(both):
    both.trainer.timeout_s = 8.0
    hangs = both.ready("head", more="time.sleep(60 if epoch == 1 else 0)")
    with pytest.raises(SideError, match=r"head ran past the time-out of 8 s"):
        both.trainer.train_by_turns(both.ready("base"), hangs, 0)


# The first process is the one that the gate started; both are in their loops at the same time.
RANKS = """
read, write = os.pipe()
if os.fork() == 0:
    os.environ["LAPTIME_RECORD"] += ".other"
    other = True
else:
    other = False
__import__("atexit").register(lambda: other or os.wait())
"""


def test_several_loops_of_one_training_are_told_to_go_and_take_no_turns(both):
    found = both.trainer.train(both.ready("base", before=RANKS), 0)
    assert not found.by_turns
    assert len(found.process.epoch_s) == 3


def test_a_rank_of_several_asks_for_no_turn(both, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not both.trainer.train(both.ready("base"), 0).by_turns
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert both.trainer.train(both.ready("base"), 0).by_turns


def test_waiting_and_working_aside_are_counted_by_the_clock(tmp_path):
    now, spent = 100.0, 7.0
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        door.listen()
        seat = Seat(door, cpu_s=lambda: spent, clock=lambda: now)
        with socket.socket(socket.AF_UNIX) as training:
            training.connect(str(tmp_path / "door"))
            seat.hear([door])
            training.sendall(b"?")
            seat.hear(seat.talks)
            assert (seat.state, seat.waiting_s()) == ("waiting", 0.0)
            seat.stand_aside()
            now, spent = 104.0, 7.15
            seat.move_up()
            assert (seat.waiting_s(), seat.beside_s) == (4.0, 4.0)
            assert not seat.works_aside  # 0.15 of 4 s
            seat.stand_aside()
            now, spent = 106.0, 7.4
            seat.move_up()
            assert seat.works_aside  # 0.4 of 6 s
            seat.give()
            now = 110.0
            assert (seat.state, seat.waited_s, seat.waiting_s()) == ("busy", 6.0, 6.0)
        seat.hear(seat.talks)
        assert seat.state == "busy"  # it hung up; its process may go on
        seat.leave()
        assert (seat.state, seat.sockets(), seat.takes_turns) == ("gone", [], True)


def test_a_loop_goes_on_where_nobody_hands_out_turns_any_more(tmp_path):
    with Turns(tmp_path, 1) as turns:
        code = LOOP.format(path=str(tmp_path / "noted"), epochs=5, before="", more="pass", after="")
        environment = os.environ | {"PYTHONPATH": str(SRC), "LAPTIME_TURNS": str(turns.paths[0])}
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=tmp_path)
        while not turns.seats[0].takes_turns:
            turns.look(0.1)
    assert process.wait(60) == 0
    assert len(json.loads((tmp_path / "noted").read_text())[1]) == 5


# Where the interruption falls between psutil's opening of a file and its `with`, Python closes that file itself.
@pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader name='/proc/:ResourceWarning")
def test_an_interruption_ends_both(both):
    notes = [both.folder / f"pid-{side}" for side in ("base", "head")]
    sides = [
        both.ready(side, before=f"open({str(note)!r}, 'w').write(str(os.getpid()))", epochs=1000)
        for side, note in zip(("base", "head"), notes, strict=True)
    ]

    def interrupt():
        while not (notes[1].exists() and notes[1].read_text()):
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        both.trainer.train_by_turns(sides[0], sides[1], 0)
    for note in notes:
        with pytest.raises(ProcessLookupError):
            os.kill(int(note.read_text()), 0)
