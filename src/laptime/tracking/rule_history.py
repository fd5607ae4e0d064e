"""How advice has fared: each remedy that was run is a run of its own in the tracking store, and read back from there.

A run of kind `advice` stands below its ladder: params `advice.rule`, `advice.finding`, `variant`, `proposed`; metrics
`advice_gain_predicted` (the middle of the range) and `advice_gain_measured`, each with `_low` and `_high`. Without the
latter the remedy failed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from statistics import median

from laptime.errors import LaptimeError
from laptime.records import Finding, LadderRecord, RuleHistory
from laptime.tracking.base import MetricRow, RunStart, Tracker
from laptime.tracking.owner import this_process
from laptime.tracking.publish import ladder_key
from laptime.tracking.uri import check_uri, sqlite_file

KIND = "advice"
RULE, PREDICTED, MEASURED = "advice.rule", "advice_gain_predicted", "advice_gain_measured"
# Newest first: more would cost time, and rules change.
MOST = 1000

Told = tuple[Mapping[str, str], Mapping[str, float]]


def advice_verified(tracker: Tracker, ladder: LadderRecord, variant: str, finding: Finding) -> None:
    """Tells what became of a finding whose remedy was run.

    Args:
        tracker: where to.
        ladder: whose parent run is there already.
        variant: that the finding is about.
        finding: with what was measured.
    """
    measured = finding.measured
    if measured is None:
        return
    name = f"{variant}/{finding.id}"
    key = f"{ladder_key(ladder)}/{KIND}/" + re.sub(r"[^\w.:/+=-]", "_", name)
    at = ladder.ended_at or time.time()
    tags = {
        "laptime.kind": KIND,
        "laptime.workload": ladder.workload,
        "laptime.variant": variant,
        "laptime.rule": finding.rule,
        "laptime.machine": ladder.probe.machine.fingerprint,
        "laptime.error": measured.error,
        **this_process().tags(),
    }
    params = {
        RULE: finding.rule,
        "advice.finding": finding.id,
        "workload": ladder.workload,
        "variant": variant,
        "proposed": finding.variant,
    }
    tracker.start_run(
        RunStart(
            key=key,
            name=f"advice {name}",
            experiment=ladder.workload,
            started_at=at,
            parent=ladder_key(ladder),
            tags={k: v for k, v in tags.items() if v},
            params=params,
        )
    )
    figures = _figures(finding)
    tracker.log_metrics(key, [MetricRow(k, v, 0, at) for k, v in figures.items()])
    tracker.end_run(key, "FINISHED" if MEASURED in figures else "FAILED", at)


def _figures(finding: Finding) -> dict[str, float]:
    measured, (low, high) = finding.measured, finding.gain
    assert measured is not None
    found = {
        PREDICTED: (low + high) / 2,
        f"{PREDICTED}_low": low,
        f"{PREDICTED}_high": high,
        MEASURED: measured.gain,
        f"{MEASURED}_low": measured.gain_low,
        f"{MEASURED}_high": measured.gain_high,
        "advice_quality_kept": measured.quality_kept,
        "advice_rounds": measured.n,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def rule_history(uri: str, say: Callable[[str], None]) -> dict[str, RuleHistory]:
    """Each rule's record over the verified advice that a tracking store holds, of all workloads and machines.

    Costs one query; a store that does not exist yet costs nothing, and one that does not answer leaves all rules
    without a record, which is said.

    Args:
        uri: the tracking URI.
        say: takes a sentence.
    """
    try:
        checked = check_uri(uri)
        file = sqlite_file(checked)
        if file is not None and not file.is_file():
            return {}
        from laptime.tracking.mlflow import runs_of_kind

        return histories(runs_of_kind(KIND, checked, MOST))
    except LaptimeError as error:
        say(f"Advice is given without its rules' record: {error}")
        return {}


def histories(told: Iterable[Told]) -> dict[str, RuleHistory]:
    """Counts by rule.

    Args:
        told: params and metrics of each verified finding; a remedy that failed has no measured gain, counts as tried
            and says nothing about the error.
    """
    by_rule: dict[str, list[Mapping[str, float]]] = {}
    for params, metrics in told:
        if RULE in params:
            by_rule.setdefault(params[RULE], []).append(metrics)
    return {rule: _history(rows) for rule, rows in sorted(by_rule.items())}


def _history(rows: list[Mapping[str, float]]) -> RuleHistory:
    gains = [(row[PREDICTED], row[MEASURED]) for row in rows if PREDICTED in row and MEASURED in row]
    return RuleHistory(
        tried=len(rows),
        faster=sum(measured > 0 for _, measured in gains),
        error=median(abs(predicted - measured) for predicted, measured in gains) if gains else None,
    )
