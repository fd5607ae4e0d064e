"""Earlier gates as MLflow holds them, read through a client (which is passed in, not imported)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from laptime.tracking.whereabouts import all_experiments, found_runs, quoted

# A gate's noise needs the newest 200 pairs; a trend wants all gates that a busy main branch sees in 60 days.
_MOST_RUNS, _ALL_RUNS = 100, 2000
# A tag with a gate's pairs: a history of metrics is a question for each of them in each gate.
PAIRS = "laptime.pairs"
# MLflow's tags are cut there.
_LONGEST = 8000


@dataclass(frozen=True)
class PastGate:
    """A finished gate, as far as later ones need it.

    Attributes:
        id: of the gate, wherever it is stored.
        started_at: seconds since 1970.
        mode: `gate`, or `aa` for base against itself.
        base, head: their commits, empty outside version control.
        base_epoch_s: base's epoch in each counted pair.
        log_ratios: of each counted pair, in order.
    """

    id: str
    started_at: float
    mode: str
    verdict: str
    variant: str
    fingerprint: str
    base: str
    head: str
    base_epoch_s: tuple[float, ...]
    log_ratios: tuple[float, ...]


def read_gates(client: Any, workload: str, since: float, fingerprint: str = "") -> list[PastGate]:
    """The gates of a workload that began after `since` (seconds since 1970), the newest first.

    Args:
        client: an MlflowClient.
        workload: that was gated, whatever its experiment is called by now: all are asked.
        since: seconds since 1970.
        fingerprint: only the newest gates of this one, for their noise; empty for all. Each gate of a version without
            the tag `PAIRS` costs three queries.
    """
    query = f"tags.`laptime.kind` = 'gate' and tags.`laptime.workload` = '{quoted(workload)}'"
    query += f" and attributes.start_time >= {int(since * 1000)}"
    query += f" and tags.`laptime.fingerprint` = '{fingerprint}'" if fingerprint.isalnum() else ""
    most = _MOST_RUNS if fingerprint else _ALL_RUNS
    return [_past(client, run) for run in found_runs(client, all_experiments(client), query, most)]


def _past(client: Any, run: Any) -> PastGate:
    tags, params = run.data.tags, run.data.params
    pairs = _told(tags.get(PAIRS, "")) or _measured(client, run.info.run_id)
    return PastGate(
        id=tags.get("laptime.key", run.info.run_name),
        started_at=run.info.start_time / 1000,
        mode=params.get("mode", "gate"),
        verdict=tags.get("laptime.verdict", ""),
        variant=tags.get("laptime.variant", ""),
        fingerprint=tags.get("laptime.fingerprint", ""),
        base=params.get("base", ""),
        head=params.get("head", ""),
        base_epoch_s=tuple(seconds for _, seconds in pairs if seconds > 0),
        log_ratios=tuple(math.log(ratio) for ratio, _ in pairs if ratio > 0),
    )


def pairs_text(pairs: Iterable[tuple[float, float]]) -> str:
    """The tag `PAIRS`: of each counted pair head's epoch over base's, and base's in seconds. 24 take 600 characters."""
    return " ".join(f"{ratio:.12g}:{seconds:.8g}" for ratio, seconds in pairs)


def _told(text: str) -> list[tuple[float, float]]:
    """What the tag says; nothing where it is not there, was cut off or edited."""
    try:
        pairs = [(float(ratio), float(seconds)) for ratio, seconds in (pair.split(":") for pair in text.split())]
    except ValueError:
        return []
    return pairs if len(text) < _LONGEST and all(map(math.isfinite, chain.from_iterable(pairs))) else []


def _measured(client: Any, run_id: str) -> list[tuple[float, float]]:
    """The same from the metrics; 0 for what is missing."""
    counted, ratios, base = (_by_pair(client, run_id, n) for n in ("pair_counted", "pair_ratio", "base_epoch_s"))
    return [(ratios.get(n, 0.0), base.get(n, 0.0)) for n, value in sorted(counted.items()) if value]


def _by_pair(client: Any, run_id: str, name: str) -> dict[int, float]:
    return {metric.step: metric.value for metric in client.get_metric_history(run_id, name)}
