"""What to try next, with the gain that each should bring: rules over records, traces and probes, without torch."""

from __future__ import annotations

from collections.abc import Mapping

from laptime.advice.judge import ask, judge
from laptime.advice.rules import RULES
from laptime.advice.sources import signals_of
from laptime.advice.text import to_markdown, to_text
from laptime.records import ProbeRecord, RunRecord
from laptime.records.advice import Advice, RuleHistory
from laptime.records.trace import TraceSummary

__all__ = ["RULES", "advise", "signals_of", "to_markdown", "to_text"]


def advise(
    record: RunRecord | None = None,
    trace: TraceSummary | None = None,
    history: Mapping[str, RuleHistory] | None = None,
    probe: ProbeRecord | None = None,
) -> Advice:
    """Advises on a run, on a trace, or on a run with its trace.

    Args:
        record: what was counted; None for a trace of somebody's own loop.
        trace: of the same variant.
        history: how each rule's proposals have fared, by the rule's name.
        probe: what a probe on this machine measured.
    """
    signals = signals_of(record, trace, probe)
    return judge(ask(RULES, signals), signals, history or {})
