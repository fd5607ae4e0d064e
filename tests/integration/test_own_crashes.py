"""A user's own training that crashes in C, as exceptions do, names the line where it stood."""

import time
from types import SimpleNamespace

import pytest
from tests.own_files import DICTIONARY, own_spec, place, write

from laptime import launchers
from laptime.errors import DataError
from laptime.ladder.data import fetch_data
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.preflight.inspecting import inspect

ITEM, LOSS, DATA = "        return {", "        return model(**batch).loss", "        return Rows(X[:64]"
SEGV, ABORT, LEFT = "ctypes.string_at(0)", "os.abort()", "os._exit(3)"
TRAINS = 'str(getattr(sys.modules["__main__"], "__file__", "")).endswith("worker.py")'
IN_WORKER = "torch.utils.data.get_worker_info()"


def crashing(file, before, code, when):
    """A file of which a line that crashes stands before another one; returns its name, and the line as it is told."""
    crash = f"        if {when}:\n            {code}\n"
    name = write(file, "import ctypes, os, sys, threading\n" + DICTIONARY, (before, crash + before))
    return name, f"{place(file, code)}{code})"


def train(name, folder, variant="cpu-baseline", ranks=1, **changes):
    few = {"batch_size": 8, "warmup_epochs": 1, "limit_train": 60, "limit_test": 30, "check": False}
    spec = own_spec(inspect(name), variant, ranks=ranks, **few, **changes)
    return launch("torchrun" if ranks > 1 else "process", spec, folder, Hooks(samples=False))


@pytest.mark.parametrize(("code", "signal"), [(SEGV, "signal 11 (SIGSEGV)"), (ABORT, "signal 6 (SIGABRT)")])
def test_a_loss_that_crashes_is_told_with_its_line(code, signal, tmp_path):
    name, line = crashing(tmp_path / f"crashing{len(code)}.py", LOSS, code, TRAINS)
    found = train(name, tmp_path / "run")
    assert found.status == "failed"
    assert found.error.startswith(f"the worker died of {signal} {line}")
    assert "Extension modules" not in found.error
    assert ("its last words" in found.error) == (code == ABORT)  # an abort's reason stands before it
    assert "most recent call first" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize(("code", "how"), [(SEGV, "died of signal 11 (SIGSEGV)"), (LEFT, "ended with exit code 3")])
def test_a_loader_worker_that_crashes_is_told_with_its_line(code, how, tmp_path):
    file = tmp_path / f"fetching{len(code)}.py"
    name, line = crashing(file, ITEM, code, f"i == 40 and {IN_WORKER}")
    if code == LEFT:  # which leaves no stack
        line = place(file, "def __getitem__") + "def __getitem__(self, i))"
    found = train(name, tmp_path / "run", "cpu-baseline+workers:count=2")
    assert found.status == "failed"
    assert found.error == f"a loader worker {how} {line}; see log.txt."
    assert ("most recent call first" in (tmp_path / "run" / "log.txt").read_text()) == (code == SEGV)


def test_workers_that_crash_at_once_are_told_before_a_ladder(tmp_path):
    name, line = crashing(tmp_path / "at_once.py", ITEM, SEGV, IN_WORKER)
    said = inspect(name).own.refused["workers"]
    assert said == f"a worker process can't fetch its items: it died of signal 11 (SIGSEGV) {line}"


def test_a_training_that_leaves_as_if_it_were_done_is_told_as_that(tmp_path):
    name, _ = crashing(tmp_path / "leaving.py", LOSS, "os._exit(0)", TRAINS)
    said = "the worker ended with exit code 0 without a record, as by os._exit(0); its last words: none"
    assert train(name, tmp_path / "run").error == said


def test_a_rank_that_crashes_is_told_with_its_line(tmp_path):
    name, line = crashing(tmp_path / "ranks.py", LOSS, SEGV, 'os.environ.get("RANK") == "1"')
    found = train(name, tmp_path / "run", "cpu-baseline+ddp", ranks=2)
    said = f"rank 1 of 2 died of signal 11 (SIGSEGV) {line}, and all others were ended (see log-rank-1.txt)."
    assert found.error == said


def test_an_item_that_a_rank_fails_at_is_told_with_its_index(tmp_path):
    name, line = crashing(tmp_path / "items.py", ITEM, "raise ValueError(i)", 'i == 40 and os.environ.get("RANK")')
    found = train(name, tmp_path / "run", "cpu-baseline+ddp", ranks=2)
    assert f"ValueError: 40, at item 40 of Rows {line}" in found.error


def test_a_crash_while_the_file_is_looked_at_is_told_with_its_line(tmp_path):
    name, line = crashing(tmp_path / "looked_at.py", DATA, SEGV, "True")
    with pytest.raises(DataError) as caught:
        fetch_data(name, "auto", Places(tmp_path / "home"))
    assert str(caught.value).endswith(f"died of signal 11 (SIGSEGV) {line}.")


@pytest.mark.parametrize("before", [LOSS, ITEM])
def test_a_training_that_hangs_is_told_with_its_line_at_its_time_out(before, tmp_path, monkeypatch):
    at = TRAINS if before == LOSS else f"i == 40 and {IN_WORKER}"
    file = tmp_path / f"hanging{len(before)}.py"
    hangs = 'open(__file__ + ".on", "w").close() or threading.Event().wait()'
    name, line = crashing(file, before, hangs, at)
    hung = file.with_name(f"{file.name}.on")

    def clock():
        """An hour later once it has hung for long enough for its trainer to have come to the wait for it."""
        return time.monotonic() + 3600 * (hung.exists() and time.time() - hung.stat().st_mtime > 3)

    monkeypatch.setattr(launchers.process, "time", SimpleNamespace(monotonic=clock))
    found = train(name, tmp_path / "run", "cpu-baseline" + "+workers:count=2" * (before == ITEM), timeout_s=3000)
    assert found.error.startswith(f"ran past its time-out of 3000 s and was ended {line}: raise")
