from __future__ import annotations

import copy
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracking_samples import MemoryStore

from laptime.errors import TrackingError
from laptime.tracking import Journal, replay
from laptime.tracking.base import MetricRow, ModelFiles, RunStart
from laptime.tracking.events import Filed, Measured, Tagged, read_journal
from laptime.tracking.journal import JournalBusyError, is_settled, read_state, settle, state_path


def quiet(text: str) -> None:
    pass


def write(journal: Journal, folder: Path, rows: int = 3) -> None:
    (folder / "a.txt").write_text("a")
    journal.start_run(RunStart("L", "ladder", "cifar", 10.0, params={"a": "1"}))
    journal.start_run(RunStart("L/v", "v", "cifar", 11.0, parent="L"))
    journal.log_metrics("L/v", [MetricRow("loss", 1.0 / (i + 1), i, 12.0 + i) for i in range(rows)])
    journal.log_artifact("L/v", folder / "a.txt", "sub")
    journal.log_model(ModelFiles("L/v", folder))
    journal.end_run("L/v", "FINISHED", 20.0)
    journal.set_note("L", "| a |\n|---|")
    journal.set_tags("L", {"t": "ü\n\x00"})
    journal.end_run("L", "FINISHED", 21.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model.pt").write_bytes(b"x")
    with Journal(tmp_path / "j.jsonl", target="memory") as journal:
        write(journal, tmp_path)
    return tmp_path / "j.jsonl"


def test_replaying_twice_changes_nothing(path: Path) -> None:
    store = MemoryStore()
    replay(path, store, quiet)
    first = copy.deepcopy(store.runs)
    replay(path, store, quiet)
    assert store.runs == first
    assert store.created == ["L", "L/v"]
    assert store.models == ["L/v"]
    assert is_settled(path)


def test_losing_the_state_doubles_nothing(path: Path) -> None:
    store = MemoryStore()
    replay(path, store, quiet)
    first = copy.deepcopy(store.runs)
    state_path(path).unlink()
    replay(path, store, quiet)
    assert store.runs == first
    assert store.created == ["L", "L/v"]


@given(breaks=st.lists(st.integers(0, 9), max_size=6))
@settings(max_examples=40)
def test_a_replay_that_breaks_anywhere_arrives_exactly_once(breaks: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.pt").write_bytes(b"x")
        with Journal(folder / "j.jsonl") as journal:
            write(journal, folder)
        whole = MemoryStore()
        replay(folder / "j.jsonl", whole, quiet)
        state_path(folder / "j.jsonl").unlink()
        store = MemoryStore()
        for allowed in breaks:
            store.left = allowed
            try:
                replay(folder / "j.jsonl", store, quiet)
            except ConnectionError:
                continue
        store.left = None
        replay(folder / "j.jsonl", store, quiet)
        assert store.runs == whole.runs
        assert store.created == ["L", "L/v"]
        assert set(store.models) == {"L/v"}


@given(cut=st.integers(0, 4000))
@settings(max_examples=60)
def test_a_journal_cut_anywhere_is_read_up_to_its_last_whole_line_and_continued(cut: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "j.jsonl"
        with Journal(path) as journal:
            write(journal, folder)
        content = path.read_bytes()
        path.write_bytes(content[:cut])
        whole = content[:cut].count(b"\n")
        assert len(read_journal(path)[1]) == max(0, whole - 1)
        with Journal(path) as journal:
            journal.set_tags("L", {"after": "cut"})
        assert len(read_journal(path)[1]) == max(0, whole - 1) + 1


@given(
    rows=st.lists(st.tuples(st.text(max_size=20), st.floats(), st.integers(0, 2**31), st.floats(0, 2e9)), max_size=5)
)
@settings(max_examples=60)
def test_metrics_come_back_as_they_were(rows: list[tuple[str, float, int, float]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "j.jsonl"
        with Journal(path) as journal:
            journal.log_metrics("k", [MetricRow(*row) for row in rows])
        events = read_journal(path)[1]
    found = [row for event in events if isinstance(event, Measured) for row in event.rows]
    assert [(n, repr(v), s, at) for n, v, s, at in found] == [(n, repr(v), s, at) for n, v, s, at in rows]


def test_nan_and_infinity_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.log_metrics("k", [MetricRow("a", math.nan, 0, 1.0), MetricRow("b", -math.inf, 0, 1.0)])
    (event,) = read_journal(path)[1]
    assert isinstance(event, Measured)
    assert math.isnan(event.rows[0][1])
    assert event.rows[1][1] == -math.inf
    assert b"NaN" in path.read_bytes()


def test_a_journal_that_is_written_is_left_alone_by_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    ask = (
        "import sys; from pathlib import Path; from laptime.tracking.journal import held, JournalBusyError\n"
        "try:\n  with held(Path(sys.argv[1])): print('free')\n"
        "except JournalBusyError: print('busy')"
    )

    def asked() -> str:
        done = subprocess.run([sys.executable, "-c", ask, str(path)], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    with Journal(path) as journal:
        journal.set_tags("k", {"a": "b"})
        assert asked() == "busy"
        with pytest.raises(JournalBusyError):
            Journal(path)
    assert asked() == "free"


def test_its_writer_sends_while_it_holds_it(tmp_path: Path) -> None:
    store = MemoryStore()
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.start_run(RunStart("L", "ladder", "cifar", 10.0))
        assert journal.send(store, quiet).applied == 1
        journal.end_run("L", "FAILED", 11.0)
        journal.send(store, quiet)
    assert store.runs["id-L"]["status"] == "FAILED"
    assert store.created == ["L"]


def test_a_run_that_nobody_ended_keeps_the_journal_open_until_it_is_settled(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.start_run(RunStart("L", "ladder", "cifar", 10.0))
    replay(path, MemoryStore(), quiet)
    assert not is_settled(path)
    settle(path)
    assert is_settled(path)
    with Journal(path) as journal:
        journal.end_run("L", "FINISHED", 11.0)
    assert not is_settled(path)


def test_another_store_gets_everything(path: Path) -> None:
    first, second = MemoryStore(), MemoryStore()
    second.target = "elsewhere"
    replay(path, first, quiet)
    replay(path, second, quiet)
    assert first.runs == second.runs
    assert read_state(path).target == "elsewhere"


def test_a_file_that_is_gone_is_said_and_does_not_stop_the_rest(path: Path) -> None:
    (path.parent / "a.txt").unlink()
    (path.parent / "model.pt").unlink()
    said: list[str] = []
    store = MemoryStore()
    replay(path, store, said.append)
    assert store.runs["id-L/v"]["status"] == "FINISHED"
    assert len(said) == 2
    assert "a.txt is gone" in said[0]


def test_damage_before_the_last_line_is_refused_in_one_sentence(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[2] = b'{"event": "nonsense"}'
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(TrackingError, match="is damaged"):
        replay(path, MemoryStore(), quiet)
    with pytest.raises(TrackingError, match="is damaged"):
        Journal(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"schema": "laptime.journal/9"}\n')
    with pytest.raises(TrackingError, match=r"reads 'laptime\.journal/1'"):
        replay(path, MemoryStore(), quiet)


def test_a_full_disk_is_one_sentence_and_leaves_no_half_line(tmp_path: Path) -> None:
    # A limit on the size of files is to a process what a full disk is.
    code = """if True:
        import resource, sys
        from pathlib import Path
        from laptime.errors import TrackingError
        from laptime.tracking import Journal
        with Journal(Path(sys.argv[1])) as journal:
            journal.set_tags("k", {"first": "1"})
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
            try:
                journal.set_tags("k", {"second": "2" * 500})
            except TrackingError as error:
                print(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            journal.set_tags("k", {"third": "3"})
        """
    path = tmp_path / "j.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "make room on the disk" in done.stdout
    assert [list(e.tags) for e in read_journal(path)[1] if isinstance(e, Tagged)] == [["first"], ["third"]]


def test_a_folder_that_can_not_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match="can't be written"):
        Journal(tmp_path / "file" / "j.jsonl")


def test_importing_the_package_imports_neither_mlflow_nor_torch() -> None:
    code = (
        "import laptime.tracking, laptime.tracking.publish, laptime.tracking.sync, sys\n"
        "print([m for m in ('mlflow', 'torch', 'tensorboard', 'prefect') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_are_sent_from_where_they_were_moved_to(tmp_path: Path) -> None:
    run, aside = tmp_path / "run", tmp_path / "aside"
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.log_artifact("L", run / "a.txt")
        journal.move(run, aside)
        journal.move(run, aside)  # told, then killed before it was done
        journal.log_artifact("L", run / "a.txt")
        journal.log_artifact("L", tmp_path / "run-1" / "a.txt")
    paths = [e.path for e in read_journal(tmp_path / "j.jsonl")[1] if isinstance(e, Filed)]
    assert paths == [aside / "a.txt", run / "a.txt", tmp_path / "run-1" / "a.txt"]


def test_a_store_that_was_made_anew_under_its_address_gets_all_of_it(path: Path) -> None:
    store, said = MemoryStore(), list[str]()
    replay(path, store, said.append)
    whole = store.runs
    state_path(path).write_text(read_state(path).model_copy(update={"size": 0}).model_dump_json(by_alias=True))
    store = MemoryStore()
    replay(path, store, said.append)
    assert store.runs == whole
    assert said == ["memory holds none of the runs of j any more, so all of it is sent there again."]
