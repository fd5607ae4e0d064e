"""What a pod leaves comes back through the run store; a cluster or a store that is busy for a moment costs no run."""

import json
import zipfile
from itertools import count

import pytest
from tests.unit.conftest import make_spec

from laptime.data.objects import open_objects
from laptime.errors import DataError, RunError, UnreachableError, UsageError
from laptime.launchers import kubernetes
from laptime.launchers.base import RECORD, Hooks
from laptime.launchers.handover import bring_back, failures
from laptime.launchers.settings import Settings
from laptime.launchers.watch import AwayError, Watch
from laptime.pod import Pod
from laptime.records import PARTIAL
from laptime.runstore import PROFILE_ARCHIVE, failure_name


def test_a_profile_comes_back_with_the_record(tmp_path):
    left, home = tmp_path / "pod", tmp_path / "run"
    (left / "profile" / "tables").mkdir(parents=True)
    (left / "profile" / "tables" / "memory.txt").write_text("much")
    (left / RECORD).write_text("{}")
    home.mkdir()
    Pod(str(tmp_path / "store"), "one", left).give_back()
    assert bring_back(open_objects(f"{tmp_path / 'store'}/one"), home)
    assert (home / "profile" / "tables" / "memory.txt").read_text() == "much"
    assert not (home / PROFILE_ARCHIVE).exists()


def test_what_was_measured_before_a_pod_died_is_not_lost(tmp_path):
    home = tmp_path / "run"
    home.mkdir()
    place = open_objects(str(tmp_path / "store"))
    epoch = {"index": 0, "epoch_s": 1.5, "samples": 8}
    known = {"schema": "laptime.record/1", "status": "done", "epochs": [epoch]}
    place.write(json.dumps(known).encode(), PARTIAL)
    found = kubernetes._record(make_spec(check=False), home, place, (1, "the pod ran out of memory", []))
    assert [e.epoch_s for e in found.epochs] == [1.5]
    assert "ran out of memory" in found.notes[0]


def test_a_store_that_others_write_to_leads_nowhere(tmp_path):
    home, store = tmp_path / "run", tmp_path / "store"
    home.mkdir()
    store.mkdir()
    with zipfile.ZipFile(store / PROFILE_ARCHIVE, "w") as packed:
        packed.writestr("../../pwned.txt", "x")
    (store / RECORD).write_text("{}")
    with pytest.raises(DataError, match=r"'\.\./\.\./pwned\.txt' in it climbs out"):
        bring_back(open_objects(str(store)), home)
    assert not (tmp_path / "pwned.txt").exists()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b"null"])
def test_what_a_machine_said_may_be_anything(tmp_path, body):
    place = open_objects(str(tmp_path))
    place.write(body, failure_name(0))
    place.write(b'{"error": "no room", "log": ""}', failure_name(1))
    assert failures(place, 3) == ["its part failed, and what it left about it can't be read", "no room"]


class Flaky:
    """A cluster whose answers to `pods` are given, an error or a list; the last one stays."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def pods(self, run):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def events(self, run):
        return []

    def job(self, run):
        return {}


def followed(cluster, place, seconds, least=1, most=1e6):
    settings = Settings(image="x", store="s3://laptime/runs")
    clock = count(0, seconds)
    own = {"clock": lambda: float(next(clock)), "sleep": lambda _: None}
    return Watch(cluster, settings, "one", place, Hooks(), least, **own).follow(most)


def test_a_busy_api_server_is_asked_again_and_a_refusal_ends_the_run(tmp_path):
    place = open_objects(str(tmp_path))
    busy, refused = AwayError("the cluster can't list pods now (503)"), RunError("not allowed to list pods")
    assert followed(Flaky(busy, busy, refused), place, 1.0) == "not allowed to list pods"
    assert followed(Flaky(busy), place, 20.0) == "the cluster can't list pods now (503)"


class Broken:
    """A store that fails once."""

    url = "s3://laptime/runs/one"

    def __init__(self, inner, error):
        self.inner, self.error = inner, error

    def read(self, name):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.inner.read(name)


def test_a_pod_waits_for_its_store(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("laptime.data.objects._FIRST_PAUSE_S", 0.01)
    pod = Pod(str(tmp_path / "store"), "one", tmp_path)
    pod._objects = Broken(pod._objects, UnreachableError("s3://laptime/runs/one can't be reached."))
    with pytest.raises(RunError, match=r"holds no spec\.json"):
        pod.bring()
    assert "can't be reached. Asking again for 600 s." in capsys.readouterr().out


def test_a_hiccup_of_the_store_ends_nothing(tmp_path):
    place = open_objects(str(tmp_path))
    place.write(b"{}", RECORD)
    assert followed(Flaky([]), Broken(place, DataError("stale file handle")), 1.0) is None


def test_the_clock_starts_when_enough_pods_run(tmp_path):
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient gpus."}
    pods = [{"status": {"phase": "Running"}}, {"status": {"phase": "Pending", "conditions": [waits]}}]
    place = open_objects(str(tmp_path))
    told = followed(Flaky(pods), place, 100.0, least=2)
    assert told.startswith(
        "1 of the 2 pods that the run needs started within 300 s (Unschedulable: Insufficient gpus.)"
    )
    assert followed(Flaky(pods), place, 100.0, most=1000.0).startswith("ran past its time-out of 1000 s")


def test_a_pod_without_its_image_ends_no_run_that_trains_without_it(tmp_path):
    box = {"image": "x", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "503"}}}
    pods = [{"status": {"phase": "Running"}}, {"status": {"phase": "Pending", "containerStatuses": [box]}}]
    place = open_objects(str(tmp_path))
    assert "ImagePullBackOff" in followed(Flaky(pods), place, 1.0, least=2)
    assert followed(Flaky(pods), place, 100.0, most=1000.0).startswith("ran past its time-out of 1000 s")


def test_another_pod_s_progress_is_read_from_its_begin(tmp_path):
    place, events = open_objects(str(tmp_path)), []
    watch = Watch(Flaky([]), Settings(image="x", store="s3://a"), "one", place, Hooks(on_event=events.append))
    watch._told = {"progress.jsonl": 0, "log.txt": 0}
    place.write(b'{"n": 1}\n{"broken: {"by": "a full disk"}\n', "progress.jsonl")
    watch._pass_on()
    place.write(b'{"other": 10}\n{"n": 20}\n', "progress.jsonl")
    watch._pass_on()
    assert events == [{"n": 1}, {"other": 10}, {"n": 20}]


@pytest.mark.parametrize(
    ("changes", "named"), [({"weights": "mine.pt"}, "--weights 'mine.pt'"), ({"checkpoints": "here"}, "--checkpoints")]
)
def test_files_of_this_machine_are_refused(changes, named):
    with pytest.raises(UsageError, match=named):
        kubernetes._refuse_own_files(make_spec(**changes))
    kubernetes._refuse_own_files(make_spec(weights="imagenet", checkpoints="s3://laptime/mine"))
