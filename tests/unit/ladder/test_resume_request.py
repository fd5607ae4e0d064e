"""What --resume refuses: other options, another machine, changed code, a ladder that runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from importlib.metadata import version

import pytest
from tests.unit.conftest import make_ladder_record

from laptime.data.own.importing import digest_of
from laptime.errors import DataError, RunError, UsageError
from laptime.ladder.request import LadderRequest, kept_request
from laptime.ladder.resume import _require_own, agreed_request, check_code, differences, find_ladder, resume_ladder
from laptime.places import Places
from laptime.records import LadderRecord, Machine, write_json
from laptime.spec import OwnSpec
from laptime.tracking import Journal
from laptime.tracking.publish import ladder_started

REQUEST = LadderRequest(preset="full", epochs=3, repeats=2)


def a_record(**changes) -> LadderRecord:
    return make_ladder_record(**{"request": kept_request(REQUEST), **changes})


def test_options_beside_resume_must_be_those_of_the_ladder(tmp_path):
    record = a_record()
    asked = agreed_request(LadderRequest(timeout=5, epochs=3, resume="l"), record, tmp_path, {"timeout", "epochs"})
    assert (asked.timeout, asked.epochs, asked.repeats, asked.preset) == (5, 3, 2, "full")
    assert asked.out == str(tmp_path)
    for options, said in (
        ({"epochs": 4}, "--epochs 4 contradicts the ladder l, which was started with 3"),
        ({"workload": "eurosat"}, "WORKLOAD eurosat contradicts"),
        ({"variants": "cpu-a,cpu-b"}, "--variants cpu-a,cpu-b contradicts the ladder l, which was started with noth"),
        ({"out": str(tmp_path / "other")}, "is not the ladder's folder"),
    ):
        with pytest.raises(UsageError, match=said):
            agreed_request(LadderRequest(**options), record, tmp_path, None)
    with pytest.raises(UsageError, match="--preset quick contradicts"):
        agreed_request(LadderRequest(), record, tmp_path, {"preset"})
    with pytest.raises(UsageError, match="kept no request"):
        agreed_request(LadderRequest(), a_record(request=None), tmp_path, None)


def test_the_file_of_a_workload_is_one_however_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = a_record(request=kept_request(LadderRequest(workload="train.py:workload")))
    (tmp_path / "sub").mkdir()
    for written in ("train.py", "./train.py", "sub/../train.py", str(tmp_path / "train.py")):
        asked = agreed_request(LadderRequest(workload=f"{written}:workload"), record, tmp_path, {"workload"})
        assert asked.workload == f"{tmp_path}/train.py:workload"
    for written in ("other.py:workload", "train.py:other"):
        with pytest.raises(UsageError, match=f"^WORKLOAD .*{written} contradicts"):
            agreed_request(LadderRequest(workload=written), record, tmp_path, {"workload"})
    before = a_record(request={**record.request, "workload": "./train.py:workload"})
    assert agreed_request(LadderRequest(workload="train.py:workload"), before, tmp_path, {"workload"})


def test_no_password_is_kept_and_the_one_given_anew_is_used(tmp_path):
    asked = LadderRequest(tracking_uri="https://me:secret@host/x", data="https://me:secret@host/d#bands=1,2")
    record = a_record(request=kept_request(asked))
    assert "secret" not in record.model_dump_json()
    assert record.request["data"] == "https://host/d#bands=1,2"
    again = agreed_request(asked, record, tmp_path, {"tracking_uri", "data"})
    assert (again.tracking_uri, again.data) == (asked.tracking_uri, asked.data)
    for data in (
        "s3://b/k.zip?X-Amz-Signature=secret#bands=1,2",
        "https://me:p@secret@host/d",
        "https://me:p/secret@host/d",
    ):
        kept = kept_request(LadderRequest(data=data))["data"]
        assert "secret" not in kept
        assert "***" not in kept


@pytest.mark.parametrize("began", ["embedded", "http://127.0.0.1:9/began"])
def test_a_ladder_goes_on_in_the_store_that_it_began_in(began, tmp_path, monkeypatch):
    class Asked(BaseException):
        pass

    def catch_up(uri, _places, _say):
        raise Asked(uri)

    places = Places(tmp_path)
    monkeypatch.setattr("laptime.ladder.resume.catch_up", catch_up)
    # Of a version that has been replaced since: what is refused has ended in its store all the same.
    write_json(places.runs / "l" / "ladder.json", a_record(laptime="0.0.1"))
    with Journal(places.journal / "l.jsonl", began) as journal:
        ladder_started(journal, a_record())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9/other")
    said: list[str] = []
    with pytest.raises(Asked) as asked:
        resume_ladder(LadderRequest(resume="l"), places, said.append)
    assert str(asked.value) == (places.embedded_mlflow_uri if began == "embedded" else began)
    assert "where they began, and not in http://***@127.0.0.1:9/other" in said[0]
    if began != "embedded":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9/began")
        with pytest.raises(Asked, match="me:secret@127"):
            resume_ladder(LadderRequest(resume="l"), places, said.append)
        assert len(said) == 1


def test_a_ladder_is_found_by_folder_id_and_run(tmp_path):
    places = Places(tmp_path / "home")
    folder = tmp_path / "elsewhere"
    record = a_record(id="20260101-l")
    write_json(folder / "ladder.json", record)
    with Journal(places.journal / "20260101-l.jsonl") as journal:
        ladder_started(journal, record, folder)
    run = "0123456789abcdef" * 2
    write_json(places.journal / "20260101-l.state.json", {"runs": {record.id: run}})
    assert {find_ladder(name, places) for name in (str(folder), record.id, run)} == {folder}
    write_json(places.runs / "here" / "ladder.json", record)
    assert find_ladder("here", places) == places.runs / "here"
    for name in ("nothing", "f" * 32, "../x", ""):
        with pytest.raises(UsageError, match="names no ladder on this machine"):
            find_ladder(name, places)


def test_a_ladder_that_runs_is_refused_by_its_process(tmp_path):
    places = Places(tmp_path)
    record = a_record()
    write_json(places.runs / "l" / "ladder.json", record)
    with Journal(places.journal / "l.jsonl") as journal:
        ladder_started(journal, record)
        with pytest.raises(RunError, match=f"still runs, as process {os.getpid()} "):
            resume_ladder(LadderRequest(resume="l"), places)


def test_another_laptime_is_refused():
    check_code(a_record(laptime=version("laptime")), None, print)
    with pytest.raises(RunError, match=r"began with laptime 0\.0\.0 and this is .*: install the former"):
        check_code(a_record(laptime="0.0.0"), None, print)


def test_changed_code_is_refused_and_other_files_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def git(*arguments) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *who, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def committed(name: str) -> str:
        (tmp_path / name).write_text("1")
        git("add", "-A")
        git("commit", "-qm", name)
        return git("rev-parse", "--short=12", "HEAD")

    git("init", "-q")
    first, second, third = committed("train.py"), committed("README.md"), committed("model.py")
    said: list[str] = []
    check_code(a_record(commit=first), second, said.append)
    check_code(a_record(commit=None), second, said.append)
    check_code(a_record(commit=first), None, said.append)
    assert said == []
    for now in (third, "0" * 12):
        with pytest.raises(RunError, match=f"began at commit {first}.*go on at the old one"):
            check_code(a_record(commit=first), now, said.append)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    with pytest.raises(RunError, match="go on at the old one"):
        check_code(a_record(commit=first), third, said.append)
    check_code(a_record(commit=first), f"{first}+", said.append)
    assert "were changed" in said[0]


def test_another_machine_is_named_by_what_differs():
    before = Machine(fingerprint="a", torch="2.14", cores=2, gpus=("H100",))
    assert differences(before, before) == []
    assert differences(Machine(), before) == []
    now = Machine(fingerprint="b", torch="2.15", cores=2)
    assert differences(before, now) == ["gpus H100 then and nothing now", "torch 2.14 then and 2.15 now"]
    passive = before.model_copy(update={"fingerprint": "c", "variables": ("OMP_WAIT_POLICY=passive",)})
    assert differences(before, passive) == ["variables nothing then and OMP_WAIT_POLICY=passive now"]


def test_a_file_that_is_gone_or_has_changed_is_refused(tmp_path):
    def own(digest: str, *beside: str) -> OwnSpec:
        names = {"attribute": "w", "name": "w", "batch_size": 1, "learning_rate": 1.0, "quality": "loss"}
        return OwnSpec(**names, file=digest, beside=beside)

    file, module = tmp_path / "train.py", tmp_path / "sizes.py"
    with pytest.raises(DataError, match="is gone: bring it back"):
        _require_own(file, own("1" * 64), "l")
    file.write_text("x = 1\n")
    with pytest.raises(DataError, match="is not what the ladder l began with"):
        _require_own(file, own("1" * 64), "l")
    _require_own(file, own(hashlib.sha256(b"x = 1\n").hexdigest()), "l")
    _require_own(file, own(""), "l")
    module.write_text("WIDTH = 1\n")
    with_module = own(digest_of(file, ["sizes.py"]), "sizes.py")
    _require_own(file, with_module, "l")
    module.write_text("WIDTH = 2\n")
    with pytest.raises(DataError, match=r"train\.py or a module that it imports is not what"):
        _require_own(file, with_module, "l")
