"""A ladder told as events: one parent run, a child run for each variant, with the names of docs/tracking.md."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from laptime.catalogue import find_workload
from laptime.data.choices import called
from laptime.records import SYSTEM, LadderRecord, Rung, RunRecord, read_samples, write_json
from laptime.tracking.base import MetricRow, ModelFiles, RunStart, RunStatus, Tracker
from laptime.tracking.owner import this_process
from laptime.tracking.params import ladder_params, variant_params
from laptime.tracking.rows import curves, figure_rows, repeat_of, summaries, system_rows
from laptime.tracking.tensorboard import write_events

# What a process leaves, and what the ladder's end adds to it.
FILES = ("spec.json", "record.json", "machine.json", "log.txt", "samples.png", "model_summary.txt", "profile")
LATE = ("advice.json", "advice.md", "tensorboard")
_LONGEST = 100

_STATUS: dict[str, RunStatus] = {
    "done": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
    "running": "KILLED",
}


def ladder_key(ladder: LadderRecord) -> str:
    """Key of the parent run."""
    return ladder.id


def variant_key(ladder: LadderRecord, variant: str) -> str:
    """Key of a variant's run; of one that runs again, retracted or tried again, a new one: params and curves stay."""
    again = ladder.retracted.get(variant, 0) + ladder.retried.get(variant, 0)
    return f"{ladder.id}/{variant}" + (f"/again-{again}" if again else "")


def run_folder(folder: Path, variant: str, repeat: int) -> Path:
    """Where a ladder's folder holds the files of one process; any variant's name makes a safe name of a folder."""
    name = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in variant)
    if len(name) > _LONGEST or not name.isascii():  # cut, it must still be no other variant's
        plain = name.encode("ascii", "replace").decode().replace("?", "_")
        name = f"{plain[: _LONGEST - 9]}-{hashlib.sha256(variant.encode(errors='replace')).hexdigest()[:8]}"
    return folder / f"{name}-{repeat}"


def ladder_started(tracker: Tracker, ladder: LadderRecord, folder: Path | None = None, settled: bool = True) -> None:
    """Starts the parent run; its tag `laptime.folder` says where the ladder stands on its host.

    Args:
        tracker: where to.
        ladder: the ladder.
        folder: where it stands.
        settled: whether its counts of epochs and rounds are; a param stays as it was set first, so else both wait.
    """
    tags = {
        "laptime.kind": "ladder",
        "laptime.machine": ladder.probe.machine.fingerprint,
        "laptime.variables": " ".join(ladder.probe.machine.variables) or None,
        "laptime.folder": str(folder or ""),
        **_common_tags(ladder),
    }
    tracker.start_run(
        RunStart(
            key=ladder_key(ladder),
            name=" ".join(filter(None, (ladder.id, ladder.preset, ladder.device, called(ladder.data)))),
            experiment=ladder.workload,
            started_at=ladder.started_at or time.time(),
            tags=_filled(tags),
            params=_texts(ladder_params(ladder, settled)),
        )
    )


def process_recorded(
    tracker: Tracker, ladder: LadderRecord, rung: Rung, records: Sequence[RunRecord], folder: Path
) -> None:
    """Tells the last of a variant's processes so far: curves and files, of the first process figures too.

    Args:
        tracker: where to.
        ladder: the ladder.
        rung: the variant.
        records: what its processes produced, in the order of their repeats.
        folder: the ladder's folder; see `run_folder`.
    """
    key = _start_variant(tracker, ladder, rung, records)
    figures = summaries(records) if len(records) == 1 else ()
    tracker.log_metrics(key, [*_curves(ladder, records[-1:], folder), *figures])
    log_files(tracker, key, records[-1], run_folder(folder, rung.variant, repeat_of(records[-1])))
    tracker.end_run(key, run_status(ladder, records), records[-1].ended_at or time.time())


def variant_retracted(tracker: Tracker, ladder: LadderRecord, variant: str) -> None:
    """Tells that what a variant has run is no part of the comparison; to be called before the record says so."""
    tracker.set_tags(variant_key(ladder, variant), {"laptime.kind": "retracted"})


def variant_recorded(
    tracker: Tracker,
    ladder: LadderRecord,
    rung: Rung,
    records: Sequence[RunRecord],
    folder: Path,
    told: Sequence[RunRecord] = (),
) -> None:
    """Tells all of a variant's processes: a child run with params, metrics and files.

    Args:
        tracker: where to.
        ladder: the ladder.
        rung: the variant, as it was decided.
        records: what its processes produced, in the order of their repeats.
        folder: the ladder's folder; see `run_folder`.
        told: those that `process_recorded` has told.
    """
    key = _start_variant(tracker, ladder, rung, records)
    new = [record for record in records if record not in told]
    tracker.log_metrics(key, [*_curves(ladder, new, folder), *summaries(records)])
    folders = [run_folder(folder, rung.variant, repeat_of(record)) for record in records]
    for record, place in zip(records, folders, strict=True):
        write_events(record, place / "tensorboard")
        log_files(tracker, key, record, place, (*(FILES if record in new else ()), *LATE))
    log_model(tracker, key, ladder, folders)
    tracker.end_run(key, run_status(ladder, records), records[-1].ended_at or time.time())


def _curves(ladder: LadderRecord, records: Sequence[RunRecord], folder: Path) -> list[MetricRow]:
    named = (run_folder(folder, r.spec.variant, r.spec.repeat) for r in records if r.spec)
    system = (row for place in named for row in system_rows(ladder, read_samples(place / SYSTEM)))
    return [*curves(ladder, records), *system]


def log_model(tracker: Tracker, key: str, ladder: LadderRecord, folders: Sequence[Path]) -> None:
    """Adds the model of the first of a variant's processes that left one."""
    model = next((p for p in folders if (p / "model.pt").is_file() and (p / "spec.json").is_file()), None)
    if model is not None and ladder.data.own is None and not find_workload(ladder.workload).boxes:
        tracker.log_model(ModelFiles(key, model))
    elif model is not None:  # the code of a user's own net is not ours to store, and a detector takes no one batch
        tracker.log_artifact(key, model / "model.pt")


def _start_variant(tracker: Tracker, ladder: LadderRecord, rung: Rung, records: Sequence[RunRecord]) -> str:
    key = variant_key(ladder, rung.variant)
    tracker.start_run(variant_start(ladder, rung, records, (key, ladder_key(ladder))))
    return key


def variant_start(
    ladder: LadderRecord, rung: Rung, records: Sequence[RunRecord], keys: tuple[str, str | None]
) -> RunStart:
    """The start of a variant's run, with what is known of its processes; `keys` are its own and its parent's."""
    first = records[0]
    started = first.started_at or ladder.started_at or time.time()
    tags = {
        "laptime.kind": "variant",
        "laptime.variant": rung.variant,
        **_common_tags(ladder),
        **_record_tags(records),
    }
    return RunStart(
        key=keys[0],
        name=rung.variant,
        experiment=ladder.workload,
        started_at=started,
        parent=keys[1],
        # The error even where there is none: of a process that was tried again it must not stay.
        tags={**_filled(tags), "laptime.error": tags["laptime.error"] or ""},
        params=_texts(variant_params(ladder, rung, first)),
    )


def variant_compared(tracker: Tracker, ladder: LadderRecord, variant: str, figures: Mapping[str, float]) -> None:
    """Adds to a variant's run what only the comparison knows: speed-up, intervals, time to accuracy."""
    tracker.log_metrics(variant_key(ladder, variant), figure_rows(figures, ladder.ended_at))


def quality_judged(tracker: Tracker, key: str, verdict: str) -> None:
    """Tells in a run how its quality stands to the baseline's; in the ladder's that of the fastest variant."""
    tracker.set_tags(key, {"laptime.quality": verdict})


def ladder_finished(
    tracker: Tracker,
    ladder: LadderRecord,
    figures: Mapping[str, float],
    note_markdown: str,
    files: Mapping[str, Path],
) -> None:
    """Ends the parent run with its headline figures, its description and its files.

    Args:
        tracker: where to.
        ladder: the ladder, with its last status.
        figures: headline figures by metric name; MLflow's table of runs shows the parent's only.
        note_markdown: the description.
        files: by their place in the run's artifacts, `ladder.json` among them; a file carries the name of its place.
    """
    key = ladder_key(ladder)
    tracker.log_metrics(key, figure_rows(figures, ladder.ended_at))
    tracker.set_note(key, note_markdown)
    for place, path in files.items():
        parent = PurePosixPath(place).parent
        tracker.log_artifact(key, path, "" if parent == PurePosixPath(".") else str(parent))
    tracker.set_tags(key, {"laptime.status": ladder.status})
    tracker.end_run(key, _STATUS[ladder.status], ladder.ended_at or time.time())


def _common_tags(ladder: LadderRecord) -> dict[str, str | None]:
    return {
        "laptime.workload": ladder.workload,
        "laptime.data": f"{ladder.data.kind} {ladder.data.digest[:16]}",
        "laptime.data_notice": " ".join(ladder.data.notices) or None,
        "laptime.commit": ladder.commit,
        "laptime.image": os.environ.get("LAPTIME_IMAGE"),
        **this_process().tags(),
    }


def _record_tags(records: Sequence[RunRecord]) -> dict[str, str | None]:
    first = records[0]
    error = next((r.error for r in records if r.error), None)
    done = sum(r.status == "done" for r in records)
    return {
        "laptime.spec": first.spec.digest() if first.spec else None,
        "laptime.machine": first.machine.fingerprint,
        "laptime.variables": " ".join(first.machine.variables) or None,
        # A pod's may be another one than that of who asked for it.
        **({"laptime.image": first.machine.image} if first.machine.image else {}),
        "laptime.status": "done" if done == len(records) else f"{done} of {len(records)} done",
        "laptime.error": error,
    }


def log_files(tracker: Tracker, key: str, record: RunRecord, folder: Path, wanted: Sequence[str] = FILES) -> None:
    """Adds what one of a variant's processes left in its folder."""
    repeat = repeat_of(record)
    target = f"repeats/{repeat}" if repeat else ""
    if record.machine.fingerprint:  # of a process that was ended it is another start's, or nobody's
        write_json(folder / "machine.json", record.machine)
    for path in (folder / name for name in wanted):
        if path.is_file():
            tracker.log_artifact(key, path, target)
        elif path.is_dir():
            for half in (*path.glob("*.part"), *path.glob("*.tmp")):  # of a process that was killed, and torch's own
                half.unlink()
            tracker.log_artifact(key, path, f"{target}/{path.name}".strip("/"))


def run_status(ladder: LadderRecord, records: Sequence[RunRecord]) -> RunStatus:
    """How a variant's run ends."""
    if all(r.status == "done" for r in records):
        return "FINISHED"
    return "KILLED" if ladder.status == "interrupted" else "FAILED"


def _filled(tags: Mapping[str, str | None]) -> dict[str, str]:
    return {k: v for k, v in tags.items() if v}


def _texts(params: Mapping[str, object]) -> dict[str, str]:
    return {k: str(v) for k, v in params.items() if v is not None and v != ""}
