"""How advice has fared: each remedy that was run is a run of its own in the tracking store, and read back from there.

A run of kind `advice` stands below its ladder: params `advice.rule`, `advice.finding`, `variant`, `proposed`; metrics
`advice_gain_predicted` (the middle of the range), `advice_gain_own` (that of the rule's own, before its history scaled
it) and `advice_gain_measured`, each with `_low` and `_high`. Without the last the remedy failed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from laptime.errors import LaptimeError
from laptime.records import Finding, LadderRecord, RuleHistory
from laptime.tracking.base import MetricRow, RunStart, Tracker
from laptime.tracking.outage import Outage
from laptime.tracking.owner import this_process
from laptime.tracking.publish import ladder_key
from laptime.tracking.uri import check_uri, sqlite_file

KIND = "advice"
RULE, MACHINE = "advice.rule", "laptime.machine"
PREDICTED, OWN, MEASURED = "advice_gain_predicted", "advice_gain_own", "advice_gain_measured"
QUALITY = "advice_quality_kept"
# Newest first: more would cost time, and rules change.
MOST = 1000
# What a rule said may be of a rule that has changed since: so many of the last ones tell how far it is off, and how
# sure it is.
LAST = 20
# From so many proposals on a machine on, its own speak for it alone.
ENOUGH = 4

Told = tuple[Mapping[str, str], Mapping[str, float]]


@dataclass(frozen=True)
class Below:
    """The run, a ladder's or a gate's, that a verified finding stands below, and which is there already.

    Attributes:
        key: the run's.
        workload: in whose experiment it is.
        machine: fingerprint of the one that measured.
        at: when it ended, in seconds since the epoch.
    """

    key: str
    workload: str
    machine: str
    at: float


def below_ladder(ladder: LadderRecord) -> Below:
    """The parent run of a ladder."""
    return Below(ladder_key(ladder), ladder.workload, ladder.probe.machine.fingerprint, ladder.ended_at or time.time())


def advice_verified(tracker: Tracker, below: Below, variant: str, finding: Finding) -> None:
    """Tells what became of a finding whose remedy was run.

    Args:
        tracker: where to.
        below: where in it.
        variant: that the finding is about.
        finding: with what was measured.
    """
    measured = finding.measured
    if measured is None:
        return
    name = f"{variant}/{finding.id}"
    key = f"{below.key}/{KIND}/" + re.sub(r"[^\w.:/+=-]", "_", name)
    tags = {
        "laptime.kind": KIND,
        "laptime.workload": below.workload,
        "laptime.variant": variant,
        "laptime.rule": finding.rule,
        MACHINE: below.machine,
        "laptime.error": measured.error,
        **this_process().tags(),
    }
    params = {
        RULE: finding.rule,
        "advice.finding": finding.id,
        "workload": below.workload,
        "variant": variant,
        "proposed": finding.variant,
    }
    tracker.start_run(
        RunStart(
            key=key,
            name=f"advice {name}",
            experiment=below.workload,
            started_at=below.at,
            parent=below.key,
            tags={k: v for k, v in tags.items() if v},
            params=params,
        )
    )
    figures = _figures(finding)
    tracker.log_metrics(key, [MetricRow(k, v, 0, below.at) for k, v in figures.items()])
    tracker.end_run(key, "FINISHED" if MEASURED in figures else "FAILED", below.at)


def _figures(finding: Finding) -> dict[str, float]:
    measured = finding.measured
    assert measured is not None
    found = {
        **_range(PREDICTED, finding.gain),
        **_range(OWN, finding.own_gain or finding.gain),
        MEASURED: measured.gain,
        f"{MEASURED}_low": measured.gain_low,
        f"{MEASURED}_high": measured.gain_high,
        QUALITY: measured.quality_kept,
        "advice_rounds": measured.n,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _range(name: str, ends: tuple[float, float]) -> dict[str, float]:
    return {name: sum(ends) / 2, f"{name}_low": ends[0], f"{name}_high": ends[1]}


def rule_history(uri: str, outage: Outage, machine: str = "", but: str = "") -> dict[str, RuleHistory]:
    """Each rule's record over the verified advice that a tracking store holds, of all workloads; see `histories`.

    Costs one query, two where there are very many; a store that does not exist yet costs nothing, and one that does not
    answer leaves all rules without a record, which is said.

    Args:
        uri: the tracking URI.
        outage: is told where that store does not answer.
        machine: fingerprint of the one that is advised on.
        but: id of the ladder that asks. One that is gone on with has told what it had verified, and is to propose what
            it had proposed.
    """
    try:
        checked = check_uri(uri)
        file = sqlite_file(checked)
        if file is not None and not file.is_file():
            return {}
        return histories(_told(checked, machine), machine, but)
    except LaptimeError as error:
        outage.tell(error, "Advice is given without its rules' record")
        return {}


def _told(uri: str, machine: str) -> list[Told]:
    """The newest of all, and older ones of a machine that others have crowded out of them, the newest first."""
    from laptime.tracking.mlflow import runs_of_kind

    found: list[Told] = [*runs_of_kind(KIND, uri, MOST)]
    if machine and len(found) == MOST:
        there = {labels.get("laptime.key") for labels, _ in found}
        own = runs_of_kind(KIND, uri, MOST, **{MACHINE: machine})
        found += [row for row in own if row[0].get("laptime.key") not in there]
    return found


def histories(told: Iterable[Told], machine: str = "", but: str = "") -> dict[str, RuleHistory]:
    """Counts by rule: over the proposals on a machine where there are enough of them, else over those on all.

    Args:
        told: labels and metrics of each verified finding, the newest first; a remedy that failed has no measured gain,
            counts as tried and says nothing about the error. One that was measured on too noisy a machine to tell what
            was said from nothing counts nowhere.
        machine: the fingerprint.
        but: id of a ladder whose proposals do not count.
    """
    by_rule: dict[str, list[Told]] = {}
    for labels, metrics in told:
        if RULE in labels and not (but and labels.get("laptime.key", "").startswith(f"{but}/")):
            by_rule.setdefault(labels[RULE], []).append((labels, metrics))
    return {rule: _of_machine(rows, machine) for rule, rows in sorted(by_rule.items())}


def _of_machine(rows: list[Told], machine: str) -> RuleHistory:
    telling = [(labels, metrics) for labels, metrics in rows if _tells(metrics)]
    own = [metrics for labels, metrics in telling if machine and labels.get(MACHINE) == machine]
    if len(own) >= ENOUGH:
        return _history(own).model_copy(update={"here": True})
    return _history([metrics for _, metrics in telling])


def _tells(row: Mapping[str, float]) -> bool:
    """Whether a verification says anything of its rule: one that may be off by more than the rule promised doesn't."""
    low, high = row.get(f"{MEASURED}_low"), row.get(f"{MEASURED}_high")
    if low is None or high is None:
        return True
    return (high - low) / 2 <= row.get(OWN, row.get(PREDICTED, 0.0))


def _history(rows: list[Mapping[str, float]]) -> RuleHistory:
    ran = [row for row in rows if PREDICTED in row and MEASURED in row]
    # Runs of earlier versions lack it: their rules said less, and would scale what is said now.
    said = [(row[OWN], row[MEASURED]) for row in ran if row.get(OWN, 0.0) > 0]
    ratios = [max(measured, 0.0) / own for own, measured in said][:LAST]
    newest = rows[:LAST] if len(rows) > LAST else []
    return RuleHistory(
        tried=len(rows),
        faster=sum(map(_faster, rows)),
        last=len(newest),
        last_faster=sum(map(_faster, newest)),
        error=median(abs(row[PREDICTED] - row[MEASURED]) for row in ran) if ran else None,
        ratio=median(ratios) if ratios else None,
        compared=len(ratios),
    )


def _faster(row: Mapping[str, float]) -> bool:
    return PREDICTED in row and row.get(MEASURED, 0.0) > 0 and row.get(QUALITY) != 0
