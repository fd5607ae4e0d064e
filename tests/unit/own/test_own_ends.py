"""A user's file that parses arguments of its own, leaves by sys.exit(), or has a loader worker wait for a lock."""

import json
import signal
import subprocess
import sys

import pytest
from tests.own_files import ARGUMENTS, DICTIONARY, own_spec, write

from laptime import worker
from laptime.host.processes import Terminated
from laptime.launchers import inline
from laptime.launchers.base import Hooks
from laptime.optimizations import data as loading
from laptime.preflight.inspecting import inspect
from laptime.records import write_json
from laptime.spec import RunSpec


@pytest.fixture
def file(file, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["laptime.worker", "spec.json", "record.json"])
    return file


def spec_of(name: str, variant: str = "cpu-baseline") -> RunSpec:
    return own_spec(inspect(name), variant, batch_size=8, check=False)


def at(file, code: str) -> str:
    number = next(i for i, line in enumerate(file.read_text().splitlines(), 1) if code in line)
    return f"({file.name}, line {number}: {code})"


def test_a_file_that_parses_arguments_finds_none_of_laptime_s(file, tmp_path):
    name = write(file, ARGUMENTS + DICTIONARY, ("nn.Linear(192, 8)", "nn.Linear(192, WIDTH)"))
    request, result = tmp_path / "request.json", tmp_path / "result.json"
    request.write_text(json.dumps({"workload": name}))
    command = [sys.executable, "-m", "laptime.preflight.inspecting", str(request), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(result.read_text())["data"]["own"]["name"] == "rows"


def test_in_this_process_a_run_gives_the_arguments_back(file, tmp_path):
    spec = spec_of(write(file, ARGUMENTS + DICTIONARY, ("nn.Linear(192, 8)", "nn.Linear(192, WIDTH)")))
    sys.modules.pop(file.stem)
    sys.argv = given = ["laptime", "run", "--debug"]
    assert inline.launch(spec, tmp_path / "run", Hooks()).status == "done"
    assert sys.argv is given


@pytest.mark.parametrize(
    ("asked", "said"), [("", "SystemExit"), ("0", "SystemExit: 0"), ("'no data'", "SystemExit: no")]
)
@pytest.mark.parametrize(
    ("before", "variant"),
    [
        ("        return model(**batch).loss", "cpu-baseline"),
        ("        return {", "cpu-baseline"),
        ("        return {", "cpu-baseline+workers:count=1"),
    ],
)
def test_sys_exit_in_training_is_told_with_its_line(file, tmp_path, asked, said, before, variant):
    late = "model.training and getattr(model, 'steps', 0) > 2" if "model" in before else "i == 40"
    counted = "        model.steps = getattr(model, 'steps', 0) + 1\n" if "model" in before else ""
    code = f"sys.exit({asked})"
    leaves = f"{counted}        if {late}:\n            {code}\n{before}"
    spec = spec_of(write(file, "import sys\n" + DICTIONARY, (before, leaves)), variant)
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "failed"
    assert record.error.startswith("RuntimeError: sys.exit(" if "workers" in variant else said)
    assert at(file, code) in record.error


def test_the_workers_own_end_is_no_failure_of_the_run(file, tmp_path):
    """SIGTERM leaves no record: the launcher knows why it sent it."""
    leaves = ("        return model(**batch).loss", "        raise Terminated(143)\n        return model(**batch).loss")
    name = write(file, DICTIONARY)
    spec = spec_of(name)
    sys.modules.pop(file.stem)
    write(file, "from laptime.host.processes import Terminated\n" + DICTIONARY, leaves)
    changed = spec.data.own.model_copy(update={"file": ""})
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"own": changed})})
    with pytest.raises(Terminated):
        worker.run(spec, tmp_path / "run")
    # Its command gives a code, with which it leaves at once, where the interpreter's own end takes seconds.
    files = tmp_path / "spec.json", tmp_path / "record.json"
    write_json(files[0], spec)
    before = signal.getsignal(signal.SIGTERM)
    assert worker.main([*map(str, files)]) == 128 + signal.SIGTERM
    assert not files[1].exists()
    signal.signal(signal.SIGTERM, before)


def test_a_lock_that_a_worker_meets_in_training_is_told_with_its_line(file, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_SILENCE_S", 3)
    lock = "import os\nimport threading\n\nLOCK, HERE = threading.Lock(), os.getpid()\nLOCK.acquire()\n"
    waits = (
        "        return {",
        "        if i == 40 and os.getpid() != HERE:\n            LOCK.acquire()\n        return {",
    )
    spec = spec_of(write(file, lock + DICTIONARY, waits), "cpu-baseline+workers:count=2")
    sys.modules.pop(file.stem)
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "failed"
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if text == "            LOCK.acquire()")
    assert record.error == (
        f"a loader worker of {file.name} gave nothing for 3 s ({file.name}, line {line}: LOCK.acquire()): a lock or a "
        "thread of before? Leave workers out of this variant."
    )
