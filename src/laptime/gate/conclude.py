"""From a gate's pairs to its outcome. Pure, so that a replayed file says what the gate said."""

from __future__ import annotations

from collections.abc import Callable

from laptime.gate import words
from laptime.gate.checks import check_all, find_cause, quality_loss
from laptime.gate.decision import Verdict, decide
from laptime.gate.records import EXIT_CODES, GateRecord, Kind, Outcome, PairRecord, ProcessRecord

# What both processes of a pair must share, in words.
_SAME: tuple[tuple[str, Callable[[ProcessRecord], object]], ...] = (
    ("data", lambda p: p.data),
    ("machine", lambda p: p.hardware),
    ("spec", lambda p: p.spec),
    ("count of samples in an epoch", lambda p: sorted(set(p.samples))),
)


def conclude(record: GateRecord) -> Outcome:
    """Says what a gate's pairs show; a gate that is still running is concluded as if it ended here."""
    verdict = decide(record.log_ratios, record.noise, record.policy.policy())
    different = next((found for pair in record.pairs if (found := difference(pair))), None)
    if record.trouble is not None and record.trouble.kind != "inconclusive":
        return _outcome(record.trouble.kind, record.trouble.reason, record, None)
    if different:
        return _outcome("invalid", different, record, None)
    loss = quality_loss(record.counted) if verdict.kind in ("not_regressed", "improved") else None
    if loss is not None:
        return _outcome("parity", loss, record, verdict)
    sentence = words.verdict_sentence(verdict, record)
    if verdict.kind == "inconclusive" and record.trouble is not None:
        sentence = f"{record.trouble.reason} {sentence}" if verdict.pairs else record.trouble.reason
    return _outcome(verdict.kind, sentence, record, verdict)


def difference(pair: PairRecord) -> str | None:
    """Why the two processes of a pair can't be compared, None when they can."""
    for name, of in _SAME:
        if of(pair.base) != of(pair.head):
            what, base, head = _field(pair) if name == "spec" else (name, of(pair.base), of(pair.head))
            return (
                f"base and head differ in their {what} in pair {pair.number} ({words.short(base)} and "
                f"{words.short(head)}), so their times say nothing about the change: make both train the same."
            )
    return None


def _field(pair: PairRecord) -> tuple[str, object, object]:
    """What differs in the specs of a pair's processes: the first field that does, or the digests alone."""
    base, head = pair.base.trained, pair.head.trained
    name = next((n for n in {**base, **head} if base.get(n) != head.get(n)), None)
    return (f"spec's {name}", base.get(name), head.get(name)) if name else ("spec", pair.base.spec, pair.head.spec)


def _outcome(kind: Kind, sentence: str, record: GateRecord, verdict: Verdict | None) -> Outcome:
    alike = record.mode == "aa" and kind not in ("invalid", "error")
    return Outcome(
        kind=kind,
        exit_code=0 if alike else EXIT_CODES[kind],
        sentence=f"Base against itself, to measure the noise: {sentence}" if alike else sentence,
        decision=verdict,
        checks=check_all(record.counted) if verdict else (),
        cause=find_cause(record.counted) if kind == "regressed" else None,
        not_shown=words.not_shown(kind, record),
    )
