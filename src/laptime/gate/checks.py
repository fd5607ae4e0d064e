"""Beside the epoch: memory, steps, waiting, compilation, the first step, quality, and what a regression is made of.

None of these ever makes a gate `regressed`: they are shown, and a loss of quality makes it `parity`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from laptime.gate.decision import decide
from laptime.gate.policy import Policy
from laptime.gate.records import Cause, CheckRecord, PairRecord, ProcessRecord
from laptime.gate.student import quantile

MEMORY_LIMIT = 1.05
STARTUP = Policy(max_slowdown=0.20)
# One percentage point, or one percent of a loss, as in the comparison of variants: two seeds of one training differ by
# about as much.
QUALITY_TOLERANCE = 0.01
_FEWEST = 4
_CERTAIN = 0.01

Of = Callable[[ProcessRecord], float | None]


@dataclass(frozen=True)
class Quality:
    """What a training is judged by, and its name in reports."""

    name: str
    of: Of


LOSS, ERROR = Quality("test loss", lambda p: p.test_loss), Quality("test error", lambda p: p.test_error)
# Of these less is better, and they have no scale of their own.
_LESS = (LOSS, ERROR)
QUALITIES = (
    Quality("test score", lambda p: p.test_score),
    ERROR,
    Quality("test accuracy", lambda p: p.test_accuracy),
    Quality("test mAP at 0.5", lambda p: p.test_map50),
    LOSS,
)


def check_all(pairs: Sequence[PairRecord]) -> tuple[CheckRecord, ...]:
    """All figures that both sides of every pair have; none without pairs."""
    found = (
        _memory(pairs),
        _startup(pairs),
        _plain(pairs, "step, median", "ms", lambda p: p.step_ms),
        _plain(pairs, "step, 99 of 100 below", "ms", lambda p: p.step_p99_ms),
        _plain(pairs, "waiting for data", "%", _waiting),
        _plain(pairs, "compilation", "s", lambda p: p.compile_s),
        _not_more(pairs, "recompilations", lambda p: p.recompiles),
        _not_more(pairs, "waits for the GPU in a step", lambda p: p.syncs_per_step),
        _quality(pairs),
    )
    return tuple(check for check in found if check is not None)


def find_cause(pairs: Sequence[PairRecord]) -> Cause | None:
    """The part of the epoch that grew most, by its median over pairs; None without a breakdown or without growth."""
    names = {name for pair in pairs for name in (*pair.base.parts_s, *pair.head.parts_s)}
    parts = {name: _part(pairs, name) for name in sorted(names)}
    growth = {name: head - base for name, (base, head) in parts.items()}
    total = sum(seconds for seconds in growth.values() if seconds > 0)
    if not total:
        return None
    part = max(growth, key=lambda name: growth[name])
    base_s, head_s = parts[part]
    return Cause(part=part, base_s=base_s, head_s=head_s, share=growth[part] / total)


def quality_loss(pairs: Sequence[PairRecord]) -> str | None:
    """One sentence where head's quality is shown to be worse by more than the tolerance, or gone; else None.

    Quality is the first of an own score or error, accuracy, mean average precision and loss that base has in every
    pair; it is gone where head has it not in all. The mean of what is lost, pair by pair, must exceed
    the tolerance, and a bound at 1 % must exclude that nothing is.
    """
    found = _qualities(pairs)
    if found is None:
        return _gone(pairs)
    if len(pairs) < _FEWEST or any(p.base.stand_in for p in pairs):
        return None
    quality, sides = found
    losses = [_lost(quality, base, head) for base, head in zip(*sides, strict=True)]
    mean = fmean(losses)
    low = mean - quantile(_CERTAIN, len(losses) - 1) * stdev(losses) / math.sqrt(len(losses))
    if mean <= QUALITY_TOLERANCE or low <= 0:
        return None
    by = f"{mean * 100:.1f} % above" if quality in _LESS else f"{mean * 100:.1f} percentage points below"
    return (
        f"head is not slower, but its {quality.name} is {by} base's over {len(losses)} pairs, more than the tolerance "
        f"of {QUALITY_TOLERANCE * 100:g}: see what it no longer learns."
    )


def quality_kept(pairs: Sequence[PairRecord]) -> tuple[bool | None, str]:
    """Whether head's quality is base's, None where that is not shown, and what that rests on in words, if anything."""
    found = _qualities(pairs)
    if any(p.base.stand_in for p in pairs):
        return None, ""
    if found is None:
        return (False, "quality lost") if _gone(pairs) else (None, "")
    quality, sides = found
    values = [median(side) for side in sides]
    words = f"{quality.name} {values[1]:.4g}, from {values[0]:.4g}"
    if quality_loss(pairs):
        return False, f"quality lost: {words}"
    lost = fmean(_lost(quality, base, head) for base, head in zip(*sides, strict=True))
    return (True, f"quality kept: {words}") if lost <= QUALITY_TOLERANCE else (None, f"quality unclear: {words}")


def _qualities(pairs: Sequence[PairRecord]) -> tuple[Quality, tuple[list[float], list[float]]] | None:
    """What both sides of all pairs are judged by, and its values; None where head lacks it, or base has none."""
    quality = _judged_by(pairs)
    found = _both(pairs, quality.of) if quality else None
    return (quality, found) if quality and found and all(map(math.isfinite, found[1])) else None


def _judged_by(pairs: Sequence[PairRecord]) -> Quality | None:
    return next((q for q in QUALITIES if pairs and all(_known(q.of(p.base)) for p in pairs)), None)


def _gone(pairs: Sequence[PairRecord]) -> str | None:
    """One sentence where base has a quality that head has not: a loss that is not a number arrives as none, too."""
    had = _judged_by(pairs)
    if had is None:
        return None
    return (
        f"head is not slower, but has no {had.name} any more, where base has one in every pair: either it diverges "
        "(nan) or no longer measures it; look into its log, or let it measure what base does."
    )


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _lost(quality: Quality, base: float, head: float) -> float:
    if quality not in _LESS:
        return base - head
    return (head - base) / abs(base) if base else head - base


def _quality(pairs: Sequence[PairRecord]) -> CheckRecord | None:
    found = _qualities(pairs)
    if found is None:
        return None
    quality, (base, head) = found
    scale, unit = (1, "") if quality in _LESS else (100, "%")
    return CheckRecord(name=quality.name, unit=unit, base=scale * median(base), head=scale * median(head))


def _both(pairs: Sequence[PairRecord], of: Of) -> tuple[list[float], list[float]] | None:
    base, head = [of(p.base) for p in pairs], [of(p.head) for p in pairs]
    known = [[v for v in side if v is not None] for side in (base, head)]
    return (known[0], known[1]) if pairs and all(len(k) == len(pairs) for k in known) else None


def _plain(pairs: Sequence[PairRecord], name: str, unit: str, of: Of) -> CheckRecord | None:
    found = _both(pairs, of)
    return CheckRecord(name=name, unit=unit, base=median(found[0]), head=median(found[1])) if found else None


def _memory(pairs: Sequence[PairRecord]) -> CheckRecord | None:
    found = _plain(pairs, "peak memory", "MiB", lambda p: p.peak_memory_mib)
    if found is None:
        return None
    return found.model_copy(update={"limit": "+5 %", "ok": found.head <= MEMORY_LIMIT * found.base})


def _not_more(pairs: Sequence[PairRecord], name: str, of: Of) -> CheckRecord | None:
    """Exact: the same data in the same order make the same graphs and the same waits."""
    found = _plain(pairs, name, "", of)
    return found and found.model_copy(update={"limit": "not more", "ok": found.head <= found.base})


def _startup(pairs: Sequence[PairRecord]) -> CheckRecord | None:
    """A gate of its own, with a wider limit: starting a process scatters more than an epoch does."""
    found = _both(pairs, lambda p: p.startup_s if p.startup_s else None)
    if found is None:
        return None
    ratios = [math.log(head / base) for base, head in zip(*found, strict=True)]
    slower = decide(ratios, None, STARTUP).kind == "regressed"
    return CheckRecord(
        name="time to the first step",
        unit="s",
        base=median(found[0]),
        head=median(found[1]),
        limit="+20 %",
        ok=not slower,
    )


def _waiting(process: ProcessRecord) -> float | None:
    wait = process.parts_s.get("data")
    return 100 * wait / median(process.epoch_s) if wait is not None else None


def _part(pairs: Sequence[PairRecord], name: str) -> tuple[float, float]:
    return (
        median([p.base.parts_s.get(name, 0.0) for p in pairs]),
        median([p.head.parts_s.get(name, 0.0) for p in pairs]),
    )
