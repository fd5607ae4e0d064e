"""What a ladder says of a turn that ended, where stderr is no terminal."""

import os
import signal
import sqlite3
import sys
from types import SimpleNamespace

import pytest
import typer
from tests.unit.conftest import make_spec

from laptime.artifacts import epoch_line
from laptime.cli.ladder_plan import plan_only
from laptime.cli.ladder_view import View, _through, view
from laptime.ladder.request import make_request
from laptime.records import EpochRecord, RunRecord


@pytest.mark.parametrize(
    ("reached", "said"),
    [
        ({"test_map50": 0.301, "test_map": 0.1234}, "mAP@0.5 30.1 % (0.5:0.95: 12.3 %)"),
        ({"test_accuracy": 0.66, "test_loss": 1.0}, "test accuracy 66.0 %"),
        ({"test_loss": 1.25}, "test loss 1.25"),
        ({"test_loss": 1.25, "test_score": 0.301}, "test score 30.1 %"),
        ({"test_accuracy": 0.66, "test_error": 12.5}, "test error 12.5"),
        ({}, "not evaluated"),
    ],
)
def test_what_a_variant_reached(reached, said, capsys):
    epoch = EpochRecord(index=0, epoch_s=2.0, samples=10, samples_per_s=5.0, **reached)
    View(None).result(RunRecord(status="done", spec=make_spec(), epochs=(epoch,)))
    assert capsys.readouterr().err == f"  cpu-baseline: 2.00 s an epoch, 5 samples/s, {said}\n"


def test_slow_samples_are_no_0_a_second(capsys):
    epoch = EpochRecord(index=0, epoch_s=17.0, samples=8, samples_per_s=8 / 17)
    View(None).result(RunRecord(status="done", spec=make_spec(), epochs=(epoch,)))
    assert capsys.readouterr().err == "  cpu-baseline: 17.0 s an epoch, 0.47 samples/s, not evaluated\n"
    assert "17.00 s, 0.47 samples/s, " in epoch_line(epoch.model_copy(update={"train_loss": 1.0}), timed=True)


def test_hundreds_of_epochs_stand_in_one_line(capsys):
    """500 times were a line of 4,000 characters, in a terminal and in every log."""
    epochs = tuple(EpochRecord(index=i, epoch_s=1 + i / 100, samples=10, samples_per_s=5.0) for i in range(500))
    View(None).result(RunRecord(status="done", spec=make_spec(), epochs=epochs))
    said = capsys.readouterr().err
    assert said == "  cpu-baseline: 3.50 s an epoch (1.00 to 5.99, 500 epochs), 5 samples/s, not evaluated\n"
    View(None).result(RunRecord(status="done", spec=make_spec(), epochs=epochs[:3]))
    assert ": 1.00, 1.01, 1.02 s an epoch, " in capsys.readouterr().err


def test_a_second_ctrl_c_while_a_ladder_is_marked_is_passed_over(tmp_path):
    closed = []

    def run(*_: object) -> None:
        raise KeyboardInterrupt

    def close(ending: str) -> None:
        if not closed:
            os.kill(os.getpid(), signal.SIGINT)
        closed.append(ending)

    request = SimpleNamespace(workload="cifar", budget=None)
    ladder = SimpleNamespace(record=SimpleNamespace(status="running"), folder=tmp_path, request=request)
    ladder.turns, ladder.run, ladder.close, ladder.publish = lambda: iter(["turn"]), run, close, lambda _: None
    said: list[str] = []
    view = SimpleNamespace(say=said.append, turn=lambda _: None, event=None, result=None)
    with pytest.raises(typer.Exit) as left:
        _through(ladder, view)
    assert left.value.exit_code == 130
    assert "Ctrl-C again leaves the rest to laptime sync" in said[-1]
    assert closed == ["interrupted", "interrupted"], "the second on the way that all endings take"


def test_a_ladder_that_a_full_disk_ends_says_how_to_go_on(tmp_path):
    def run(*_: object) -> None:
        raise OSError("no room")

    said, request = [], SimpleNamespace(workload="cifar", budget=None)
    ladder = SimpleNamespace(record=SimpleNamespace(status="running"), folder=tmp_path, request=request, run=run)
    ladder.turns, ladder.close, ladder.publish = lambda: iter(["turn"]), lambda _: None, lambda _: None
    with pytest.raises(OSError, match="no room"):
        _through(ladder, SimpleNamespace(say=said.append, turn=lambda _: None, event=None, result=None))
    assert said[0].startswith("To go on: ")
    assert said[0].endswith(f" optimize cifar --resume {tmp_path}")


# That nobody closes it is the case; Python 3.13 says so.
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
def test_an_interruption_in_the_middle_of_a_write_locks_no_store_that_is_published_to_next(tmp_path):
    def written(stopped: bool) -> None:
        file = sqlite3.connect(tmp_path / "store.db", timeout=0, isolation_level=None)
        file.execute("BEGIN IMMEDIATE")
        if stopped:
            raise KeyboardInterrupt
        file.execute("CREATE TABLE runs (name)")
        file.close()

    ladder = SimpleNamespace(
        record=SimpleNamespace(status="running"),
        folder=tmp_path,
        request=SimpleNamespace(workload="cifar", budget=None),
        turns=lambda: iter(["turn"]),
        run=lambda *_: written(stopped=True),
        close=lambda _: None,
        publish=lambda _: written(stopped=False),
    )
    view = SimpleNamespace(say=lambda _: None, turn=lambda _: None, event=None, result=None)
    with pytest.raises(typer.Exit) as left:
        _through(ladder, view)
    assert left.value.exit_code == 130


@pytest.mark.parametrize(("named", "told"), [((), True), (("cpu-baseline",), False)])
def test_a_plan_of_a_users_training_says_that_nobody_has_looked_into_its_file(tmp_path, capsys, named, told):
    file = tmp_path / "mine.py"
    file.write_text("workload = 1\n", encoding="utf-8")
    plan_only(make_request(workload=f"{file}:workload", device="cpu", variants=named or None), as_json=False)
    assert ("What is not for your training is found when the ladder begins" in capsys.readouterr().out) == told


@pytest.mark.parametrize("notebook", [False, True])
def test_a_bar_is_drawn_on_a_terminal_but_not_on_a_notebooks(monkeypatch, notebook):
    """A notebook keeps each of the ten pictures a second; a terminal draws over the last one."""
    kernel = {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}
    for name, value in (kernel if notebook else {**kernel, "PAGER": "less"}).items():
        monkeypatch.setenv(name, value)
    reader, writer = os.openpty()
    with os.fdopen(reader, "rb", buffering=0) as shown, os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with view() as told:
            told.say("Probing this machine")
        written = shown.read(4096).decode()
    assert "Probing this machine" in written
    assert ("\x1b[2K" in written) is not notebook
