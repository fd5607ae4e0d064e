"""What became of advice that somebody followed by hand: a run beside the one whose advice proposed it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from laptime.compare.sides import ADVICE, load_sides
from laptime.compare.words import seconds
from laptime.errors import DataError
from laptime.launchers.base import RECORD
from laptime.places import Places
from laptime.records import Finding, RunRecord, read_record


@dataclass(frozen=True)
class Proposed:
    """Where a run was proposed: the finding, and the run that it is about."""

    finding: Finding
    record: RunRecord
    folder: Path


def proposed(record: RunRecord, places: Places) -> Proposed | None:
    """The newest run of a home whose advice proposed a variant, on the same machine, data and sizes; None for none."""
    if record.spec is None:
        return None
    found = list(_proposals(record, record.spec.variant, places))
    return max(found, key=lambda p: p.record.ended_at or 0.0, default=None)


def brought(record: RunRecord, before: Proposed) -> str | None:
    """What a run shows of the gain that was promised, in words; None where either was not timed.

    Epochs are compared, which are of the same samples whatever the batch is.
    """
    if not record.laps or not before.record.laps or before.record.spec is None or record.spec is None:
        return None
    now, then = median(record.laps), median(before.record.laps)
    change = f"{100 * abs(1 - now / then):.0f} % {'less' if now <= then else 'more'}"
    low, high = before.finding.gain
    return (
        f"The advice on {before.record.spec.variant} ({before.folder}) proposed {record.spec.variant} and expected "
        f"{100 * low:.0f} to {100 * high:.0f} % less: an epoch took {seconds(now)} s here and {seconds(then)} s there, "
        f"{change}. These are two processes at different times; laptime optimize --verify-advice measures by turns."
    )


def _proposals(record: RunRecord, variant: str, places: Places) -> Iterator[Proposed]:
    """Variants of ladders and runs alone; the name is looked for before a file is read as what it is."""
    named = json.dumps(variant)
    for path in (*places.runs.glob(f"*/{ADVICE}"), *places.runs.glob(f"*/*/{ADVICE}")):
        if not (path.parent / RECORD).is_file() or named not in path.read_text(encoding="utf-8", errors="replace"):
            continue
        before = _read(path.parent / RECORD)
        if before is None or before.spec is None or not _alike(before, record):
            continue
        advice = load_sides(path.parent / RECORD).advice.get(before.spec.variant)
        findings = advice.findings if advice is not None else ()
        yield from (Proposed(f, before, path.parent) for f in findings if f.variant == variant)


def _read(path: Path) -> RunRecord | None:
    try:
        return read_record(path)
    except DataError:
        return None


def _alike(before: RunRecord, record: RunRecord) -> bool:
    return before.status == "done" and _conditions(before) == _conditions(record)


def _conditions(record: RunRecord) -> tuple[object, ...]:
    """What must be the same on both sides, for their epochs to differ by the variant alone."""
    spec = record.spec
    assert spec is not None
    sizes = (spec.data.digest, spec.limit_train, spec.limit_test)
    return record.machine.fingerprint, spec.workload, spec.device, spec.weights, *sizes
