"""Earlier gates, from this machine's folder and from MLflow: their noise, and how the rule would have fared on them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from laptime.errors import LaptimeError
from laptime.gate.decision import decide, robust
from laptime.gate.noise import FEWEST, OLDEST_S, known_noise
from laptime.gate.policy import Policy
from laptime.gate.records import GateRecord, read_gate
from laptime.records import write_json
from laptime.tracking.gates import PastGate

_MOST_PAIRS = 200
_BLOCK = 2
# Of base today against base in earlier gates: fewer say nothing, and less than a tenth is the weather.
_FEWEST_GATES = 3
_WORTH_A_NOTICE = math.log(1.10)
_TOO_FAR = 3.0

Elsewhere = Callable[[str], Sequence[PastGate]]
"""Earlier gates of a fingerprint (empty for all) that other machines or checkouts have stored, the newest first."""


def nowhere(fingerprint: str) -> Sequence[PastGate]:
    """No other place is asked."""
    return ()


@dataclass(frozen=True)
class History:
    """Gates as files in a folder, one each, and those stored elsewhere; what can't be read only lacks then.

    Attributes:
        folder: of this machine.
        now: seconds since 1970.
        elsewhere: asked once a call.
    """

    folder: Path
    now: float
    elsewhere: Elsewhere = nowhere

    def gates(self, workload: str = "", fingerprint: str = "") -> list[PastGate]:
        """The gates that are young enough, each once, the newest first; of a workload or a fingerprint where named."""
        known = {gate.id: gate for gate in (*self.elsewhere(fingerprint), *self._here(workload))}
        wanted = [g for g in known.values() if not fingerprint or g.fingerprint == fingerprint]
        young = [g for g in wanted if self.now - g.started_at <= OLDEST_S]
        return sorted(young, key=lambda g: (g.started_at, g.id), reverse=True)

    def noise(self, fingerprint: str) -> tuple[float | None, str]:
        """The known noise s0 from pairs of base against base and of gates that did not regress."""
        found: list[float] = []
        for past in self.gates(fingerprint=fingerprint):
            if past.mode == "aa" or past.verdict == "not_regressed":
                found += past.log_ratios
        found = found[:_MOST_PAIRS]
        noise = known_noise(found)
        if noise is None:
            return None, f"{len(found)} earlier pairs of this fingerprint, {FEWEST} are needed"
        return noise, f"{len(found)} earlier pairs of this fingerprint"

    def health(self, record: GateRecord) -> str:
        """A sentence where base takes another time today than it used to here, else empty."""
        past = [g for g in self.gates(fingerprint=record.fingerprint) if g.id != record.id and g.base_epoch_s]
        today = [p.base.z for p in record.counted]
        if len(past) < _FEWEST_GATES or not today:
            return ""
        before = [median(math.log(seconds) for seconds in g.base_epoch_s) for g in past]
        centre, spread = robust(before)
        shift = median(today) - centre
        if abs(shift) < max(_WORTH_A_NOTICE, _TOO_FAR * spread):
            return ""
        return (
            f"Base's epochs take {(math.exp(shift) - 1) * 100:+.0f} % against {len(past)} earlier gates here: either "
            "this machine is not what it was, or base is not (laptime gate --history shows since when)."
        )

    def keep(self, record: GateRecord) -> Path:
        """Adds a gate."""
        path = self.folder / f"{record.id}.json"
        write_json(path, record)
        return path

    def _here(self, workload: str) -> Iterator[PastGate]:
        for path in self.folder.glob("*.json"):
            try:
                if self.now - path.stat().st_mtime > OLDEST_S:
                    continue  # years of gates would be read for those of the last weeks
                record = read_gate(path)
            except (LaptimeError, OSError):
                continue
            if not workload or record.workload == workload:
                yield past_of(record)


def past_of(record: GateRecord) -> PastGate:
    """A gate's record as later gates see it."""
    return PastGate(
        id=record.id,
        started_at=record.started_at,
        mode=record.mode,
        verdict=record.outcome.kind if record.outcome else "",
        variant=record.variant,
        fingerprint=record.fingerprint,
        base=record.base.sha,
        head=record.head.sha,
        base_epoch_s=tuple(math.exp(p.base.z) for p in record.counted),
        log_ratios=tuple(record.log_ratios),
    )


def resampled(
    log_ratios: Sequence[float], noise: float | None, policy: Policy, gates: int = 10_000, seed: int = 0
) -> Counter[str]:
    """Verdicts of gates drawn from pairs without a change, in blocks of two so that each holds both orders.

    Args:
        log_ratios: of consecutive pairs, at least four.
        noise: as the gate would know it.
        policy: the rule.
        gates: how many are drawn.
        seed: of the draw.
    """
    blocks = [log_ratios[i : i + _BLOCK] for i in range(0, len(log_ratios) - _BLOCK + 1, _BLOCK)]
    draw, needed = random.Random(seed), -(-policy.looks[-1] // _BLOCK)  # noqa: S311 - a simulation, no secret
    found: Counter[str] = Counter()
    for _ in range(gates):
        drawn = [d for _ in range(needed) for d in draw.choice(blocks)]
        found[decide(drawn, noise, policy).kind] += 1
    return found
