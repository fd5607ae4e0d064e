"""Earlier gates on this machine: their noise, and how the rule would have fared on pairs without a change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from laptime.errors import LaptimeError
from laptime.gate.decision import decide
from laptime.gate.noise import FEWEST, OLDEST_S, known_noise
from laptime.gate.policy import Policy
from laptime.gate.records import GateRecord, read_gate

_MOST_PAIRS = 200
_BLOCK = 2


@dataclass(frozen=True)
class History:
    """Gates as files in a folder, one each; what can't be read is passed over, for it only lacks then."""

    folder: Path
    now: float

    def gates(self, fingerprint: str) -> Iterator[GateRecord]:
        """The gates of a fingerprint that are young enough, the newest first."""
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            try:
                record = read_gate(path)
            except LaptimeError:
                continue
            if record.fingerprint == fingerprint and self.now - record.started_at <= OLDEST_S:
                yield record

    def noise(self, fingerprint: str) -> tuple[float | None, str]:
        """The known noise s0 from pairs of base against base and of gates that did not regress."""
        found: list[float] = []
        for record in self.gates(fingerprint):
            if record.mode == "aa" or (record.outcome and record.outcome.kind == "not_regressed"):
                found += record.log_ratios
        found = found[:_MOST_PAIRS]
        noise = known_noise(found)
        if noise is None:
            return None, f"{len(found)} earlier pairs of this fingerprint, {FEWEST} are needed"
        return noise, f"{len(found)} earlier pairs of this fingerprint"

    def keep(self, record: GateRecord) -> Path:
        """Adds a gate."""
        from laptime.records import write_json

        path = self.folder / f"{record.id}.json"
        write_json(path, record)
        return path


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
