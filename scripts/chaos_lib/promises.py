"""What is promised, looked at after each disturbed job. Each promise returns sentences about what was broken."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import Job
from stage import Stage

from laptime.errors import LaptimeError
from laptime.places import Places, lock_folder
from laptime.records import read_ladder, read_record
from laptime.spec import read_spec
from laptime.tracking.events import Ended, Measured, Started, read_journal
from laptime.tracking.journal import read_state, state_path
from laptime.tracking.sync import sync

# What is promised is 5 s. Twice that is waited for before it counts as broken, since a machine of two cores that
# others use may leave a process for seconds without a turn; the report shows what it took.
GONE_S, ALLOWANCE_S = 5.0, 5.0
_LOOK_EVERY_S = 0.05


def gone(job: Job, pids: set[int]) -> tuple[float, list[str]]:
    """Whether processes are gone in time; how long it took, in seconds, and what is left."""
    begin = time.monotonic()
    while left := {p.pid: p for p in job.processes() if p.pid in pids}:
        if time.monotonic() - begin > GONE_S + ALLOWANCE_S:
            words = ", ".join(f"{p.role} {p.pid}" for p in left.values())
            return time.monotonic() - begin, [f"still there after {GONE_S + ALLOWANCE_S:.0f} s: {words}"]
        time.sleep(_LOOK_EVERY_S)
    return time.monotonic() - begin, []


def nothing_left(job: Job) -> list[str]:
    """No process of a job that has ended."""
    return gone(job, {p.pid for p in job.processes()})[1]


def locks_free(job: Job) -> list[str]:
    """No device is locked by the job; the runs of others may hold it."""
    return [f"{path} is still locked by the job" for path in lock_folder().glob("laptime-*.lock") if _held(path, job)]


def _held(path: Path, job: Job) -> bool:
    """Whether a lock stays the job's; one that somebody else has just taken names the job for a moment longer."""
    for _ in range(10):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if path.read_text(encoding="utf-8", errors="replace").strip() != str(job.pid):
                    return False
            else:
                return False
        time.sleep(0.1)
    return True


def words(job: Job) -> list[str]:
    """No traceback is shown to a user."""
    text = job.log.read_text(encoding="utf-8", errors="replace")
    return ["the command showed a traceback"] if "Traceback (most recent call last)" in text else []


def files_whole(out: Path) -> list[str]:
    """Each record, ladder, spec and comparison can be read, and a record that is done has all of its epochs."""
    broken = []
    for path in sorted(out.rglob("*.json")):
        try:
            broken += _whole(path)
        except (LaptimeError, ValueError) as error:
            broken.append(f"{path.relative_to(out)} is not whole: {error}")
    return broken


def _whole(path: Path) -> list[str]:
    if path.name == "ladder.json":
        read_ladder(path)
    elif path.name == "spec.json":
        read_spec(path)
    elif path.name == "record.json":
        record = read_record(path)
        if record.status == "done" and record.spec and len(record.epochs) != record.spec.epochs:
            return [f"{path.parent.name} is done with {len(record.epochs)} of {record.spec.epochs} epochs"]
    else:
        json.loads(path.read_text(encoding="utf-8"))
    return []


def temporary_empty(stage: Stage) -> list[str]:
    """Nothing of ours stays in the temporary folder once the next command has run."""
    if any(stage.temporary.glob("laptime*")):
        stage.laptime(["sync"])
    left = sorted(p.name for p in stage.temporary.glob("laptime*"))
    return [f"left in the temporary folder: {', '.join(left[:5])}"] if left else []


def arrived_once(stage: Stage, places: Places) -> list[str]:
    """After `laptime sync` all of the journals is in MLflow once, no run is open, and a replay changes nothing."""
    done = stage.laptime(["sync"])
    if done.returncode:
        return [f"laptime sync ended with {done.returncode}: {done.stderr.strip()[-300:]}"]
    client = _client(stage)
    broken = [f"{run.data.tags.get('laptime.key')} stands at RUNNING" for run in _runs(client, "status = 'RUNNING'")]
    journals = sorted(places.journal.glob("*.jsonl"))
    for path in journals:
        broken += _compare(client, path)
    before = [_dump(client, path) for path in journals]
    for path in journals:
        state = read_state(path)  # the models' part stays: starting torch for each would take seconds
        forgotten = state.model_dump(mode="json", by_alias=True) | {"applied": 0, "runs": {}, "size": 0}
        state_path(path).write_text(json.dumps(forgotten), encoding="utf-8")
    sync(places, stage.tracking_uri, lambda _: None)
    if before != [_dump(client, path) for path in journals]:
        broken.append("a second replay changed what stands in MLflow")
    return broken


def forget(places: Places) -> None:
    """Removes journals that were looked at, so that each job is looked at by itself."""
    for path in places.journal.glob("*.json*"):
        path.unlink()


def _client(stage: Stage) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=stage.mlflow.uri, registry_uri=stage.mlflow.uri)


def _runs(client: Any, query: str) -> list[Any]:
    experiments = [e.experiment_id for e in client.search_experiments()]
    return list(client.search_runs(experiments, query, max_results=1000)) if experiments else []


def _histories(client: Any, run: Any) -> dict[str, list[tuple[int, int, str]]]:
    return {
        name: sorted((m.step, m.timestamp, repr(m.value)) for m in client.get_metric_history(run.info.run_id, name))
        for name in run.data.metrics
    }


def _dump(client: Any, journal: Path) -> dict[str, Any]:
    """What stands in MLflow of a journal, by key. When a run that nobody ended was swept is no part of it."""
    found = {}
    _, events = read_journal(journal)
    ended = {e.key for e in events if isinstance(e, Ended)}
    for key in [e.run.key for e in events if isinstance(e, Started)]:
        for run in _runs(client, f"tags.`laptime.key` = '{key}'"):
            files = sorted(f.path for f in client.list_artifacts(run.info.run_id))
            end = run.info.end_time if key in ended else None
            found[key] = (run.info.status, end, run.data.params, run.data.tags, _histories(client, run), files)
    return found


def _compare(client: Any, journal: Path) -> Iterator[str]:
    """Whether a journal's runs and rows are in MLflow, each once."""
    _, events = read_journal(journal)
    expected: dict[str, set[tuple[str, int, int, str]]] = {e.run.key: set() for e in events if isinstance(e, Started)}
    for event in events:
        if isinstance(event, Measured):
            expected[event.key] |= {(n, step, round(at * 1000), repr(value)) for n, value, step, at in event.rows}
    for key, rows in expected.items():
        runs = _runs(client, f"tags.`laptime.key` = '{key}'")
        if len(runs) != 1:
            yield f"{key} is in MLflow {len(runs)} times"
            continue
        there = [(name, *row) for name, found in _histories(client, runs[0]).items() for row in found]
        if len(there) != len(rows) or set(there) != rows:
            yield f"{key} has {len(there)} values in MLflow, {len(rows)} in its journal"


def digests(out: Path) -> dict[str, str]:
    """The finished records of a ladder, by place, for `--resume`."""
    found = {}
    for path in out.rglob("record.json"):
        with contextlib.suppress(LaptimeError):  # told by `files_whole`
            if read_record(path).status == "done":
                found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
