"""What the gate takes from a process's record."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from pathlib import Path

import pytest
from gate_examples import process

from laptime.devices import host
from laptime.gate.process import Trained, death, fingerprint
from laptime.gate.records import PairRecord, SideInfo
from laptime.gate.request import NO_DEVICE
from laptime.gate.sides import Ready, SideError
from laptime.gate.trainer import Trainer
from laptime.own.loop import CHECKOUTS

LOOP = "import laptime; [None for _ in laptime.epochs(range(3), samples=7)]"


def trained(folder: Path, code: str = LOOP) -> Trained:
    ready = Ready("base", SideInfo(), folder, (sys.executable, "-c", code))
    return Trainer(folder / "runs", NO_DEVICE, 60.0, print).train(ready, 0)


def test_a_record_that_names_no_machine_is_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here = trained(tmp_path)
    assert here.machine.model_copy(update={"fingerprint": ""}) == host()
    assert here.machine.cpu in here.process.hardware
    assert fingerprint(trained(tmp_path), "tiny") == fingerprint(here, "tiny")
    # On another machine with the same store of gates, neither its noise nor its trend are these.
    monkeypatch.setattr("laptime.devices.allowed_cores", lambda: 64)
    there = trained(tmp_path)
    assert (there.machine.cores, "64 cores" in there.process.hardware) == (64, True)
    assert fingerprint(there, "tiny") != fingerprint(here, "tiny")


@pytest.mark.parametrize(
    ("named", "kept"), [({"cpu": "a CPU", "cores": 3}, ("a CPU", 3)), ({"fingerprint": "f" * 16}, ("", 0))]
)
def test_a_machine_that_a_record_names_stays(named: dict[str, object], kept: tuple[str, int], tmp_path: Path):
    epochs = [{"index": i, "epoch_s": 3.0, "samples": 7, "steps": 4 - i} for i in range(2)]
    body = {"schema": "laptime.record/1", "status": "done", "machine": named, "epochs": epochs}
    code = f"import os, pathlib; pathlib.Path(os.environ['LAPTIME_RECORD']).write_text({json.dumps(body)!r})"
    found = trained(tmp_path, code)
    assert found.process.steps == 3
    assert (found.machine.cpu, found.machine.cores) == kept
    assert found.machine.fingerprint == named.get("fingerprint", found.machine.fingerprint) != ""


def test_a_machine_that_changes_within_a_pair_changes_nothing_by_turns():
    """Seen on a shared machine, in the order head, base, base, head, head, base: slower from the fourth epoch on."""
    base = process("base", 0, 1.0).model_copy(update={"epoch_s": (2.42, 2.48, 2.88)})
    head = process("head", 0, 1.0).model_copy(update={"epoch_s": (2.47, 2.91, 2.94)})
    pair = PairRecord(number=1, order="BA", seed=0, base=base, head=head)
    assert pair.log_ratio == pytest.approx(math.log(2.91 / 2.48))
    assert pair.model_copy(update={"by_turns": True}).log_ratio == pytest.approx(math.log(2.94 / 2.88))
    # Epochs that did not follow each other are not held against each other.
    for other in ({"epoch_s": (2.42, 2.48)}, {"index": (0, 1, 3)}):
        apart = pair.model_copy(update={"by_turns": True, "base": base.model_copy(update=other)})
        assert apart.log_ratio == pytest.approx(head.z - apart.base.z)


def test_a_process_that_leaves_no_record_and_one_that_says_much_are_told_in_few_words(tmp_path: Path):
    for code, reason in (("pass", "ended without a record: let it"), ("raise SystemExit(3)", "ended with 3; its log")):
        ready = Ready("base", SideInfo(), tmp_path, (sys.executable, "-c", f"print('x' * 10**6 + 'end')\n{code}"))
        with pytest.raises(SideError, match=reason) as error:
            Trainer(tmp_path / "runs", NO_DEVICE, 60.0, print).train(ready, 0)
        assert len(error.value.log) < 1000
        assert error.value.log.endswith("end")
    lacks = "without ignored data (--link), .venv and submodules not cloned"
    for log, from_commit in (("No such file", True), ("No such file", False), ("Killed", True)):
        said = death("base", 1, 1.0, (tmp_path / "none", log, from_commit))
        assert (lacks in said) == (from_commit and "file" in log)


def test_a_record_of_another_hand_is_told_what_to_be_like(tmp_path: Path):
    with pytest.raises(SideError, match=r"names no schema, .*: let it write what docs/record\.md asks for"):
        trained(tmp_path, "import os; open(os.environ['LAPTIME_RECORD'], 'w').write('{}')")


def test_a_side_that_imports_from_another_checkout_is_told(tmp_path: Path):
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "mine.py").touch()
    for path, told in ((own, False), (other, True)):
        code = f"import sys; sys.path.insert(0, {str(path)!r}); import mine; {LOOP}"
        checkouts = ((CHECKOUTS, os.pathsep.join(map(str, (own, other)))),)
        ready = Ready("base", SideInfo(), own, (sys.executable, "-c", code), checkouts)
        with (
            pytest.raises(SideError, match=rf"^base imports {other}/mine\.py, which is not of its own checkout")
            if told
            else contextlib.nullcontext()
        ):
            Trainer(tmp_path / "runs", NO_DEVICE, 60.0, print).train(ready, 0)


def test_noise_by_turns_is_kept_apart(tmp_path: Path):
    one = trained(tmp_path)
    turned = one.model_copy(update={"by_turns": True})
    assert fingerprint(turned, "tiny") != fingerprint(one, "tiny")


def test_a_program_of_a_folder_is_found_there_and_one_without_a_folder_is_told(tmp_path: Path):
    """Where PATH holds a relative folder, as of a project's own tools, it is one of the side's checkout."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "own-train"
    program.write_text(f"#!{sys.executable}\n{LOOP}\n")
    program.chmod(0o755)
    own = (("PATH", f"bin{os.pathsep}{os.environ['PATH']}"),)
    ready = Ready("base", SideInfo(), tmp_path, ("own-train",), own)
    assert (
        len(Trainer(tmp_path / "runs", NO_DEVICE, 60.0, print).train(ready, 0).process.epoch_s) == 2
    )  # after one that is left out
    for folder, environment in ((tmp_path / "runs", own), (tmp_path / "gone", ())):
        command = ("own-train",) if environment else (sys.executable,)
        with pytest.raises(SideError, match=rf"base's command .* can't be started in {folder}: "):
            Trainer(tmp_path / "other", NO_DEVICE, 60.0, print).train(
                Ready("base", SideInfo(), folder, command, environment), 0
            )
