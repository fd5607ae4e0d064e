"""Rungs whose probe takes minutes: each in a process of its own, with a time limit, and once for each machine.

What earlier ladders have probed is known to whoever asks later, too.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from laptime.catalogue import LADDERS, find_optimization, large_batch_of, rung_spec
from laptime.catalogue.entries import OptimizationEntry, Preset
from laptime.devices import lock_name, missing_compiler
from laptime.errors import DataError
from laptime.host.processes import death
from laptime.ladder.plan import tried_rungs
from laptime.ladder.surroundings import limited
from laptime.launchers.lock import device_lock
from laptime.launchers.process import run_child
from laptime.places import Places
from laptime.records import LEAST_GAIN, LadderRecord, ProbeRecord, RunRecord, busy, read_ladder, write_json

Say = Callable[[str], None]

# How a slow rung is measured: what is kept of another way (rounds in which the compiler ran had counted) is not read.
_WAY = 2


def probe_slow_rungs(
    probe: ProbeRecord,
    ladder: tuple[str, str, Preset],
    places: Places,
    say: Say = lambda _: None,
    budget_s: float | None = None,
) -> ProbeRecord:
    """Adds to a probe what the rungs that a ladder will try need to know, from an earlier ladder where there was one.

    Args:
        probe: the quick probe; its machine is the key of what is kept.
        ladder: workload, device and preset, whose limit of the samples bounds the large batch.
        places: where results are kept.
        say: takes sentences.
        budget_s: of a search, which may try all rungs, and waits for a new probe that takes up to half of it.
    """
    workload, device, preset = ladder
    for rung in tried_rungs(device, preset if budget_s is None else replace(preset, rungs=None)):
        entry = find_optimization(rung_spec(rung).name)
        missing = missing_compiler(device) if entry.stage == "compile" else None
        if missing:
            found = ProbeRecord(refusals={entry.name: f"it can't run here: {missing}"})
        elif device == "cpu" and entry.probe_limit_s and entry.probe not in {k.partition("@")[0] for k in probe.gains}:
            what = (workload, device, rung)
            known = read_kept(_place(probe, what, places, preset.limit_train)[0])
            if budget_s is None:
                known = None if known is None or _disturbed(known, probe) else known
            elif known is None and 2 * entry.probe_limit_s > budget_s:
                known = _too_long(entry, budget_s)
            found = known or _new(probe, (what, preset.limit_train), places, say)
        else:
            # A GPU's rungs need no slow probe: its compiler takes tens of seconds, and the climb times the rung itself.
            continue
        probe = _with(probe, found)
    return probe


def _too_long(entry: OptimizationEntry, budget_s: float) -> ProbeRecord:
    """The refusal of what a search has no time to probe."""
    limit, given = (f"{seconds / 60:g} minutes" for seconds in (entry.probe_limit_s, budget_s))
    why = f"its probe takes up to {limit}, more than half of the budget of {given}: give a larger one"
    return ProbeRecord(refusals={entry.name: why})


def known_probe(record: RunRecord, places: Places) -> ProbeRecord | None:
    """What ladders of a home have probed for a run's machine and workload; None where none has. Nothing is run for it.

    The newest probe that measured a gain counts, with what is kept of slow rungs.
    """
    spec, found = record.spec, None
    if spec is None or not record.machine.fingerprint:
        return None
    for path in sorted(places.runs.glob("*/ladder.json"), reverse=True):  # their names begin with the time
        ladder = _ladder_of(path, record)
        if ladder is not None and (found is None or ladder.probe.gains):
            found = ladder
            if found.probe.gains:
                break
    return None if found is None else _with_slow(found, places)


def _ladder_of(path: Path, record: RunRecord) -> LadderRecord | None:
    """A ladder whose probe holds for a run; one that can't be read does not."""
    try:
        ladder = read_ladder(path)
    except DataError:
        return None
    spec = record.spec
    assert spec is not None
    alike = (ladder.workload, ladder.device) == (spec.workload, spec.device)
    if ladder.data.own or spec.data.own:  # a user's file may hold another net by now
        alike = alike and ladder.data == spec.data
    return ladder if alike and ladder.probe.machine.fingerprint == record.machine.fingerprint else None


def _with_slow(ladder: LadderRecord, places: Places) -> ProbeRecord:
    probe = ladder.probe
    workload = ladder.data.model_dump_json() if ladder.data.own else ladder.workload
    for rung in LADDERS[ladder.device]:
        if find_optimization(rung_spec(rung).name).probe_limit_s:
            kept = read_kept(_place(ladder.probe, (workload, ladder.device, rung), places, ladder.limit_train)[0])
            probe = probe if kept is None else _with(probe, kept)
    return probe


def _with(probe: ProbeRecord, found: ProbeRecord) -> ProbeRecord:
    """A probe with what another one found out."""
    update = {"refusals": {**probe.refusals, **found.refusals}, "seconds": probe.seconds + found.seconds}
    return probe.with_measured(found).model_copy(update=update)


def _disturbed(kept: ProbeRecord, probe: ProbeRecord) -> bool:
    """Whether what is kept shows no gain, but was measured beside others, who are gone now."""
    then, now = kept.machine, probe.machine
    quieter = busy(then.load_before, then.cores) and not busy(now.load_before, now.cores)
    return quieter and max(kept.gains.values(), default=LEAST_GAIN) < LEAST_GAIN


def _new(probe: ProbeRecord, asked: tuple[tuple[str, str, str], int | None], places: Places, say: Say) -> ProbeRecord:
    what, limit = asked
    rung = what[2]
    kept, with_too = _place(probe, what, places, limit)
    limit_s = find_optimization(rung_spec(rung).name).probe_limit_s
    say(f"Probing {rung} at two batch sizes (up to {limit_s:.0f} s, once on this machine)")
    found = _probe(what, [*limited(limit), rung, *with_too], places, limit_s, say)
    # A limit that was reached in a busy hour would hold for good: the reason says how to ask again.
    again = {name: f"{why} (to probe again, remove {kept})" for name, why in found.refusals.items()}
    found = found.model_copy(update={"refusals": again})
    write_json(kept, found)
    return found


def _place(
    probe: ProbeRecord, what: tuple[str, str, str], places: Places, limit: int | None = None
) -> tuple[Path, list[str]]:
    """Where a slow rung's result for so many samples is kept, and the numeric rungs that it was probed on."""
    _, device, rung = what
    with_too = _numeric_before(probe, device, rung)
    key = [
        _WAY,
        probe.machine.fingerprint,
        probe.machine.torch,
        *what,
        LADDERS[device],
        with_too,
        large_batch_of(device, limit),
    ]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return places.home / "probes" / f"{rung}-{digest}.json", with_too


def read_kept(path: Path) -> ProbeRecord | None:
    """What an earlier ladder found out; None where it is not there, damaged or says nothing: then it is probed anew."""
    try:
        found = ProbeRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if found.gains or found.refusals else None


def _numeric_before(probe: ProbeRecord, device: str, rung: str) -> list[str]:
    """The numeric rungs that will stand below this one, since their probe showed a gain; by themselves."""
    rungs = LADDERS[device]
    before = [(r, find_optimization(rung_spec(r).name)) for r in rungs[: rungs.index(rung)]]
    numeric = [(r, e) for r, e in before if e.klass == "numeric" and e.probe and not e.probe_limit_s]
    return [r for r, e in numeric if probe.gains.get(e.probe or "", 0.0) >= LEAST_GAIN and e.probe not in probe.beside]


def _probe(what: tuple[str, str, str], more: list[str], places: Places, limit_s: float, say: Say) -> ProbeRecord:
    workload, device, rung = what
    result = places.home / f"probe-{secrets.token_hex(4)}.json"
    lines: list[str] = []
    try:
        with device_lock(lock_name(device), say):
            arguments = [workload, device, str(result), *more]
            code = run_child("laptime.preflight.probe", arguments, lines.append, limit_s)
        return _result(result, rung, code, lines, limit_s)
    finally:
        result.unlink(missing_ok=True)


def _result(result: Path, rung: str, code: int, lines: list[str], limit_s: float) -> ProbeRecord:
    """What was written, whole or in part; without a figure, why there is none."""
    if result.is_file():
        return ProbeRecord.model_validate_json(result.read_text(encoding="utf-8"))
    if code == -signal.SIGTERM:  # as of `run_child`, past the limit
        reason = f"its probe had shown nothing after {limit_s:.0f} s, so it would cost more than it brings"
    elif code < 0:
        reason = f"its probe {death(code)}"
    else:
        reason = f"its probe failed: {lines[-1][:300] if lines else 'no output'}"
    return ProbeRecord(refusals={rung_spec(rung).name: reason})
