"""The gate in words: every sentence says ratio, interval, pairs, and what was not shown."""

from __future__ import annotations

import math

from laptime.errors import shorten
from laptime.gate.decision import Look, Verdict
from laptime.gate.records import CheckRecord, GateRecord, Kind, PairRecord

TITLES: dict[Kind, str] = {
    "not_regressed": "not regressed",
    "improved": "improved",
    "regressed": "regressed",
    "inconclusive": "inconclusive",
    "invalid": "invalid",
    "error": "error",
    "parity": "quality lost",
}


def percent(ratio: float) -> str:
    """A ratio as a change: 1.126 is +12.6 %, 0.9 is -10.0 %; beyond tenfold it is a factor."""
    return f"{(ratio - 1) * 100:+.1f} %" if ratio < 10 else "more than tenfold"


def _share(value: float, digits: int = 0) -> str:
    """A limit as it was given: 10 %, 2.5 %; with so many digits at least."""
    short, whole = f"{100 * value:.{digits}f}", f"{100 * value:g}"
    return f"{short if float(short) == float(whole) else whole} %"


def interval(look: Look) -> str:
    """The interval of the ratio, as changes."""
    return f"{percent(look.low)} to {percent(look.high)}"


def pairs(count: int) -> str:
    """A count of pairs."""
    return f"{count} pair" if count == 1 else f"{count} pairs"


def verdict_sentence(verdict: Verdict, record: GateRecord) -> str:
    """The verdict of the pairs, in one or two sentences."""
    look, limit = verdict.state, _share(record.policy.max_slowdown)
    if look is None:
        return f"After {pairs(verdict.pairs)} there is nothing to judge yet: four are the fewest."
    if verdict.kind == "regressed":
        return f"Head's epochs are slower: {percent(look.ratio)} ({interval(look)}, {pairs(look.n)})."
    if verdict.kind == "improved":
        return f"Head's epochs are faster: {percent(look.ratio)} ({interval(look)}, {pairs(look.n)})."
    if verdict.kind == "not_regressed":
        return (
            f"Head's epochs are not slower by {limit}: measured {percent(look.ratio)}, at most "
            f"{percent(look.pass_bound)} ({pairs(look.n)})."
        )
    found = f"{percent(look.ratio)} ({interval(look)}, {pairs(look.n)})"
    return f"The pairs do not decide: measured {found}; {_expected(verdict)}."


def _expected(verdict: Verdict) -> str:
    if verdict.expected is None:
        return "at this noise no count of pairs within reason would"
    return f"about {pairs(verdict.expected)} more would have, at this ratio and noise"


def progress(verdict: Verdict) -> str:
    """Where a running gate stands: the interval and the pairs still expected."""
    if verdict.state is None:
        return f"{pairs(verdict.pairs)}; nothing to estimate yet"
    now = f"{pairs(verdict.pairs)}: {percent(verdict.state.ratio)} ({interval(verdict.state)})"
    if verdict.decided:
        return f"{now}; {TITLES[verdict.kind]}"
    more = "more than within reason" if verdict.expected is None else f"about {verdict.expected} more"
    look = f"next look at {verdict.next_look}" if verdict.next_look else "beyond --max-pairs, so this was the last look"
    return f"{now}; {more} expected, {look}"


def not_shown(kind: Kind, record: GateRecord) -> tuple[str, ...]:
    """What the gate did not show, so that nobody reads more into it."""
    least, limit = record.policy.max_slowdown / 2, record.policy.max_slowdown
    found: list[str] = []
    if kind == "not_regressed":
        found.append(f"A slowdown below {_share(limit)} may still be there.")
    if kind == "inconclusive":
        found.append("That head is as fast as base was not shown, and neither was the contrary.")
    if kind == "regressed":
        found.append(f"Changes below {_share(least, digits=1)} are never called a regression.")
    if record.limit_train is not None and kind not in ("invalid", "error"):
        found.append(f"Epochs were shortened to {record.limit_train:,} samples; whole ones were not run.")
    if any(p.base.stand_in for p in record.pairs) and kind not in ("invalid", "error"):
        found.append("Quality was not judged: the data is a stand-in.")
    if record.noise is None and record.pairs:
        found.append("The noise of this machine was not known, so the pairs' own scatter stands for it.")
    return tuple(found)


def conditions(record: GateRecord) -> str:
    """Pairs, noise and machine in one line."""
    noise = f"known noise of a pair {_scatter(record.noise)}" if record.noise else "noise not known before"
    decision = record.outcome.decision if record.outcome else None
    scatter = f", {_scatter(decision.state.sd)} as judged" if decision and decision.state else ""
    flagged = sum(1 for p in record.pairs if p.flags)
    flags = f", {flagged} flagged as disturbed" if flagged else ""
    again = sum(1 for p in record.pairs if not p.counted)
    repeats = f", {again} repeated and not counted" if again else ""
    machine = record.machine.cpu or "machine not described"
    gpus = f", {record.machine.gpu_names}" if record.machine.gpus else ""
    count = record.machine.cores
    cores = f", {count} core{'' if count == 1 else 's'}" if count else ""
    turns = ", epochs by turns" if record.by_turns else ""
    return f"{pairs(len(record.pairs))}{turns}{flags}{repeats}; {noise}{scatter}; {machine}{cores}{gpus}"


def _scatter(value: float) -> str:
    """One digit behind the point, and of what would be 0.0 % two that mean something."""
    return f"{100 * value:.1f} %" if value >= 0.001 or value == 0 else f"{100 * value:.2g} %"


def seconds(value: float) -> str:
    """Milliseconds of an epoch, or of a shorter one three digits that mean something."""
    return f"{value:.3f}" if value >= 0.1 or value == 0 else f"{value:.3g}"


def figure(check: CheckRecord) -> tuple[str, str]:
    """Both sides' figures of a check."""
    return f"{check.base:,.4g} {check.unit}".strip(), f"{check.head:,.4g} {check.unit}".strip()


def short(value: object) -> str:
    """A value in a message."""
    return shorten(str(value), 80) or "none"


def ratio(pair: PairRecord) -> float:
    """A pair's ratio of head's time to base's."""
    return math.exp(pair.log_ratio)
