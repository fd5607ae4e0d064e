"""Earlier gates as MLflow holds them, read through a client (which is passed in, not imported)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# A gate's noise needs the newest 200 pairs; a trend wants all gates that a busy main branch sees in 60 days.
_MOST_RUNS, _ALL_RUNS = 100, 2000


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
        workload: name of the experiment.
        since: seconds since 1970.
        fingerprint: only the newest gates of this one, for their noise; empty for all. Each gate costs three queries.
    """
    experiment = client.get_experiment_by_name(workload)
    if experiment is None:
        return []
    query = f"tags.`laptime.kind` = 'gate' and attributes.start_time >= {int(since * 1000)}"
    query += f" and tags.`laptime.fingerprint` = '{fingerprint}'" if fingerprint.isalnum() else ""
    most = _MOST_RUNS if fingerprint else _ALL_RUNS
    place, newest, token = [experiment.experiment_id], ["attributes.start_time DESC"], None
    runs: list[Any] = []
    while token or not runs:
        page = client.search_runs(place, query, max_results=_MOST_RUNS, order_by=newest, page_token=token)
        runs += page
        token = page.token if len(runs) < most else None
        if not page:
            break
    return [_past(client, run) for run in runs]


def _past(client: Any, run: Any) -> PastGate:
    tags, params = run.data.tags, run.data.params
    rows = {name: _by_pair(client, run.info.run_id, name) for name in ("pair_counted", "pair_ratio", "base_epoch_s")}
    counted = [number for number, value in sorted(rows["pair_counted"].items()) if value]
    return PastGate(
        id=tags.get("laptime.key", run.info.run_name),
        started_at=run.info.start_time / 1000,
        mode=params.get("mode", "gate"),
        verdict=tags.get("laptime.verdict", ""),
        variant=tags.get("laptime.variant", ""),
        fingerprint=tags.get("laptime.fingerprint", ""),
        base=params.get("base", ""),
        head=params.get("head", ""),
        base_epoch_s=tuple(rows["base_epoch_s"][n] for n in counted if n in rows["base_epoch_s"]),
        log_ratios=tuple(math.log(rows["pair_ratio"][n]) for n in counted if rows["pair_ratio"].get(n, 0.0) > 0),
    )


def _by_pair(client: Any, run_id: str, name: str) -> dict[int, float]:
    return {metric.step: metric.value for metric in client.get_metric_history(run_id, name)}
