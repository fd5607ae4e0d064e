"""What became of advice that somebody followed by hand: a run, or a gate of changed code, beside what was expected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from laptime.catalogue.own import place_of
from laptime.compare.quality import final_quality, name_of, shown
from laptime.compare.sides import ADVICE, ADVICE_FILE, load_sides
from laptime.compare.words import seconds
from laptime.errors import DataError, UsageError, shorten
from laptime.gate.request import GateRequest
from laptime.ladder.advising import the_rules, with_measured, write_advice
from laptime.launchers.base import RECORD
from laptime.places import Places
from laptime.records import Advice, Finding, Measured, RunRecord, read_record
from laptime.spec import read_versioned
from laptime.variants import written_out


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


def brought(record: RunRecord, before: Proposed, quality: str) -> str | None:
    """What a run shows of the gain that was promised, in words; None where either was not timed.

    Epochs are compared, which are of the same samples whatever the batch is. Quality is told where there are as many.
    """
    if not record.laps or not before.record.laps or before.record.spec is None or record.spec is None:
        return None
    now, then = median(record.laps), median(before.record.laps)
    change = f"{100 * abs(1 - now / then):.0f} % {'less' if now <= then else 'more'}"
    low, high = before.finding.gain
    return (
        f"The advice on {before.record.spec.variant} ({before.folder}) proposed {record.spec.variant} and expected "
        f"{100 * low:.0f} to {100 * high:.0f} % less: an epoch took {seconds(now)} s here and {seconds(then)} s there, "
        f"{change}{_learnt(record, before.record, quality)}. These are two processes at different times; "
        "laptime optimize --verify-advice measures by turns, and judges quality."
    )


def _learnt(now: RunRecord, then: RunRecord, quality: str) -> str:
    here, there = final_quality(now, quality), final_quality(then, quality)
    if here is None or there is None or len(now.epochs) != len(then.epochs):
        return ""
    return f"; {name_of(quality)} {shown(here, quality)} here and {shown(there, quality)} there"


def advised_change(finding: str, request: GateRequest, places: Places) -> Proposed:
    """The newest run of a home whose advice, on what a gate trains, has a finding that its user's code is to follow.

    Raises:
        UsageError: no advice here has it, or it is a variant to run.
    """
    tops = [Path(top) for top in (request.base_dir, request.head_dir) if top] or [Path()]
    sides = [place_of(str(top / request.workload)) for top in tops]
    files, (path, attribute) = {file.resolve() for file, _ in sides}, sides[0]
    told = _all_findings(places, f"{path.name}:{attribute}")
    mine = [p for p in told if _own_place(p.record, attribute) in files and _trains(p, request.variant)]
    found = [p for p in mine if p.finding.id == finding]
    if not found:
        known = ", ".join(sorted({p.finding.id for p in mine if p.finding.measured_by}))
        remedy = f"it has {known}" if known else f"run laptime optimize {request.workload} and see what it advises"
        raise UsageError(
            f"--advised {shorten(finding)!r} stands in no advice on {request.variant} of {shorten(request.workload)} "
            f"here: {remedy}."
        )
    newest = max(found, key=lambda p: p.record.ended_at or 0.0)
    if newest.finding.variant:
        raise UsageError(
            f"--advised {shorten(finding)!r} is no change of code, but a variant to run: {newest.finding.command}"
        )
    return newest


def keep_measured(before: Proposed, measured: Measured) -> Finding:
    """Adds to a run's advice what a finding has brought; returns the finding with it."""
    path = before.folder / ADVICE
    advice = read_versioned(path, Advice, ADVICE_FILE)
    write_advice(before.folder, with_measured(advice, {before.finding.id: measured}), the_rules())
    return before.finding.model_copy(update={"measured": measured})


def _trains(told: Proposed, variant: str) -> bool:
    """Whether a run was of a variant, by its name or written out."""
    spec = told.record.spec
    return spec is not None and variant in (spec.variant, written_out(spec.device, spec.optimizations))


def _own_place(record: RunRecord, attribute: str) -> Path | None:
    """The user's file of which a run trained this attribute; None for any other run."""
    data = record.spec.data if record.spec else None
    return Path(data.path) if data and data.own and data.own.attribute == attribute else None


def _proposals(record: RunRecord, variant: str, places: Places) -> Iterator[Proposed]:
    """Variants of ladders and runs alone; the name is looked for before a file is read as what it is."""
    for found in _all_findings(places, json.dumps(variant)):
        if found.finding.variant == variant and _alike(found.record, record):
            yield found


def _all_findings(places: Places, text: str) -> Iterator[Proposed]:
    """Findings of ladders' variants and of runs alone; files without a text are not read as what they are."""
    for path in (*places.runs.glob(f"*/{ADVICE}"), *places.runs.glob(f"*/*/{ADVICE}")):
        if not (path.parent / RECORD).is_file() or text not in path.read_text(encoding="utf-8", errors="replace"):
            continue
        before = _read(path.parent / RECORD)
        if before is None or before.spec is None:
            continue
        advice = load_sides(path.parent / RECORD).advice.get(before.spec.variant)
        findings = advice.findings if advice is not None else ()
        yield from (Proposed(finding, before, path.parent) for finding in findings)


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
