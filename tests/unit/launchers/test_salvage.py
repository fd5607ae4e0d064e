"""What a worker had measured outlives its crash and its time-out."""

import json
import signal

import pytest
from tests.unit.conftest import make_spec

from laptime.launchers.base import RECORD
from laptime.launchers.process import record_of
from laptime.records import PARTIAL, EpochRecord, RunRecord, read_record, write_json, write_record

EPOCHS = (EpochRecord(index=0, epoch_s=1.5, samples=3), EpochRecord(index=1, epoch_s=1.4, samples=3))


def left_in(folder, phase, **partial):
    events = [{"event": "phase", "phase": "warm-up"}, {"event": "epoch"}, {"event": "phase", "phase": phase}]
    (folder / "progress.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    write_json(folder / PARTIAL, RunRecord(epochs=EPOCHS, startup_s=2.5, notes=("rank 4",), **partial))


@pytest.mark.parametrize(
    ("code", "why"),
    [(-signal.SIGSEGV, "signal 11"), (None, "time-out of 7 s"), (0, "without a record, as by os._exit(0)")],
)
@pytest.mark.parametrize("phase", ["profile", "check"])
def test_unchecked_epochs_are_kept_and_not_believed(tmp_path, code, why, phase):
    left_in(tmp_path, phase, status="failed", error="the process ended before its step was checked.")
    found = record_of(make_spec(timeout_s=7), tmp_path, code)
    assert found.status == "failed"
    assert (found.epochs, found.startup_s) == (EPOCHS, 2.5)
    assert why in found.error
    assert f"it ended in the {phase}, after its counted epochs" in found.error
    assert ("--no-profile" in found.error) == (phase == "profile")


def test_a_record_that_can_t_be_read_is_told_as_that(tmp_path):
    left_in(tmp_path, "profile", status="failed", error="the process ended before its step was checked.")
    (tmp_path / RECORD).write_text("{")
    found = record_of(make_spec(), tmp_path, 0)
    assert (found.status, found.epochs) == ("failed", EPOCHS)
    assert "can't be read" in found.error
    assert "os._exit" not in found.error


@pytest.mark.parametrize("code", [-signal.SIGKILL, None])
def test_where_nothing_is_unchecked_the_run_is_done_with_a_note(tmp_path, code):
    left_in(tmp_path, "profile", status="done")
    found = record_of(make_spec(check=False), tmp_path, code)
    assert (found.status, found.error, found.epochs) == ("done", None, EPOCHS)
    assert found.notes[0] == "rank 4"
    assert "it ended in the profile" in found.notes[1]


def test_an_end_before_the_epochs_were_complete_leaves_nothing_but_why(tmp_path):
    found = record_of(make_spec(), tmp_path, -signal.SIGKILL)
    assert (found.status, found.epochs) == ("failed", ())
    assert "signal 9" in found.error
    assert "counted epochs" not in found.error


def test_last_words_hold_no_secrets(tmp_path):
    (tmp_path / "log.txt").write_text("no answer from https://me:hunter2@h/x.zip?X-Amz-Signature=hunter2\n")
    found = record_of(make_spec(), tmp_path, 1)
    assert "its last words: no answer from https://***@h/x.zip?***" in found.error


def test_the_final_record_takes_the_partial_one_away(tmp_path):
    left_in(tmp_path, "check", status="failed", error="not yet")
    final = RunRecord(status="done", epochs=EPOCHS)
    write_record(tmp_path / "record.json", final)
    assert not (tmp_path / PARTIAL).exists()
    assert record_of(make_spec(), tmp_path, 0) == read_record(tmp_path / "record.json") == final
