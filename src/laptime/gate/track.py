"""A finished gate in the journal, and from there in MLflow: one run, each pair a step of its metrics."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from laptime.errors import TrackingError
from laptime.gate.history import Elsewhere
from laptime.gate.noise import OLDEST_S
from laptime.gate.records import GateRecord
from laptime.gate.reports import write_reports
from laptime.places import Places
from laptime.records import Finding
from laptime.tracking import Journal
from laptime.tracking.base import MetricRow, RunStart, Tracker
from laptime.tracking.gates import PAIRS, PastGate, pairs_text
from laptime.tracking.owner import this_process
from laptime.tracking.rule_history import Below, advice_verified
from laptime.tracking.sync import sync, target_of
from laptime.tracking.uri import sqlite_file


def track(
    record: GateRecord, places: Places, uri: str, say: Callable[[str], None], finding: Finding | None = None
) -> None:
    """Writes a gate into a journal and sends that; whatever becomes of it, the verdict stays.

    Args:
        record: a concluded gate; one without a pair has nothing to tell.
        places: the stores.
        uri: MLflow's tracking URI.
        say: told in one sentence when the gate waits in the journal.
        finding: of advice that the change follows, with what the gate has measured.
    """
    if not record.pairs:
        return
    folder = places.home / "gates" / record.id
    files: dict[str, Path | None] = {
        name: folder / f"gate.{end}" for name, end in (("json", "json"), ("markdown", "md"))
    }
    try:
        write_reports(record, files)
        with Journal(places.journal / f"{record.id}.jsonl", target_of(uri, places)) as journal:
            tell(journal, record, [path for path in files.values() if path])
            if finding is not None:
                below = Below(record.id, record.workload, record.machine.fingerprint, record.ended_at or time.time())
                advice_verified(journal, below, record.variant, finding)
        sync(places, uri, say)
    except TrackingError as error:
        say(str(error))
    except Exception as error:  # a broken store says nothing about the change
        say(f"The gate was not tracked: {type(error).__name__}: {error}")


def stored_gates(workload: str, uri: str, say: Callable[[str], None]) -> Elsewhere:
    """Earlier gates of a workload in MLflow, asked for once each, when first wanted; none where it does not answer."""

    @functools.cache
    def found(fingerprint: str) -> Sequence[PastGate]:
        file = sqlite_file(uri)
        if file is not None and not file.exists():
            return ()  # opening it would make one, with all its tables
        from laptime.tracking.mlflow import past_gates

        try:
            return past_gates((uri, workload), time.time() - OLDEST_S, fingerprint)
        except Exception as error:  # a broken store costs the known noise, never the gate
            say(f"Earlier gates are those of this machine alone: {error}")
            return ()

    return found


def tell(tracker: Tracker, record: GateRecord, files: list[Path]) -> None:
    """Tells a whole gate: tags and parameters, each pair, the outcome, the files."""
    outcome = record.outcome
    assert outcome is not None
    tags = {
        "laptime.kind": "gate",
        "laptime.workload": record.workload,
        "laptime.variant": record.variant,
        "laptime.machine": record.machine.fingerprint,
        "laptime.fingerprint": record.fingerprint,
        "laptime.commit": record.head.sha[:12],
        "laptime.verdict": outcome.kind,
        PAIRS: pairs_text((math.exp(p.log_ratio), math.exp(p.base.z)) for p in record.counted),
        **this_process().tags(),
    }
    parameters = {
        "workload": record.workload,
        "variant": record.variant,
        "mode": record.mode,
        "base": record.base.sha,
        "head": record.head.sha,
        "max_slowdown": record.policy.max_slowdown,
        "budget_s": record.budget_s,
        "limit_train": record.limit_train,
        "noise": record.noise,
    }
    tracker.start_run(
        RunStart(
            key=record.id,
            name=record.id,
            experiment=record.workload,
            started_at=record.started_at,
            tags={name: value for name, value in tags.items() if value},
            params={name: str(value) for name, value in parameters.items() if value not in (None, "")},
        )
    )
    tracker.log_metrics(record.id, list(_rows(record)))
    tracker.set_note(record.id, outcome.sentence)
    for path in files:
        tracker.log_artifact(record.id, path)
    tracker.end_run(
        record.id, "KILLED" if record.status == "interrupted" else "FINISHED", record.ended_at or time.time()
    )


def _rows(record: GateRecord) -> Iterator[MetricRow]:
    for pair in record.pairs:
        sides = (pair.base, pair.head)
        # What each waited for its turns is no time of its own, and both together took the whole pair's.
        ends = [p.started_at + p.wall_s for p in sides]
        at = min(p.started_at for p in sides) + pair.took_s if pair.by_turns else max(ends)
        values = {
            "pair_ratio": math.exp(pair.log_ratio),
            "base_epoch_s": math.exp(pair.base.z),
            "head_epoch_s": math.exp(pair.head.z),
            "pair_seed": pair.seed,
            "pair_head_first": pair.order == "BA",
            "pair_flags": len(pair.flags),
            "pair_counted": pair.counted,
        }
        yield from (MetricRow(name, float(value), pair.number, at) for name, value in values.items())
    decision = record.outcome.decision if record.outcome else None
    if decision is not None and decision.state is not None:
        state, at = decision.state, record.ended_at or time.time()
        figures = {"ratio": state.ratio, "ratio_low": state.low, "ratio_high": state.high, "pair_sd": state.sd}
        yield from (MetricRow(name, value, 0, at) for name, value in figures.items())
