"""`laptime gate WORKLOAD --history`: earlier gates, and what base's epochs did meanwhile."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from laptime.gate.trend import Trend
    from laptime.places import Places
    from laptime.tracking.gates import PastGate

SCHEMA = "laptime.gate-history/1"
_SHOWN = 40


def show(workload: str, places: Places, uri: str | None, file: Path | None) -> int:
    """Prints the gates of the last 60 days, the trend of base and its changes; writes them where a file is named.

    Args:
        workload: whose gates.
        places: the stores of this checkout.
        uri: MLflow's tracking URI; None for this machine's gates alone.
        file: gets all of it as JSON.
    """
    from laptime.gate.history import History, nowhere
    from laptime.gate.track import stored_gates
    from laptime.gate.trend import trends
    from laptime.records import write_json

    elsewhere = stored_gates(workload, uri, lambda text: typer.echo(text, err=True)) if uri else nowhere
    gates = History(places.home / "gates", time.time(), elsewhere).gates(workload)
    found = trends(gates)
    if file is not None:
        told: dict[str, Any] = {"schema": SCHEMA, "workload": workload, "trends": [_data(t) for t in found]}
        write_json(file, told)
    if not gates:
        typer.echo(f"There are no gates of {workload} of the last 60 days here.")
        return 0
    for gate in reversed(gates[:_SHOWN]):
        typer.echo(_line(gate))
    if len(gates) > _SHOWN:
        typer.echo(f"({len(gates) - _SHOWN} older ones are not shown)")
    for trend in found:
        typer.echo("\n" + "\n".join(_words(trend)))
    return 0


def _line(gate: PastGate) -> str:
    from laptime.gate.words import TITLES, percent

    titles: dict[str, str] = {str(kind): title for kind, title in TITLES.items()}
    ratio = percent(math.exp(fmean(gate.log_ratios))) if gate.log_ratios else ""
    commits = f"{gate.base[:10] or '-':<10} {gate.head[:10] or '-':<10}"
    return f"{_day(gate)}  {commits}  {gate.mode:<4}  {titles.get(gate.verdict, gate.verdict):<14} {ratio:>8}"


def _words(trend: Trend) -> list[str]:
    from laptime.compare.words import seconds
    from laptime.gate.words import percent

    first, last = trend.seconds[0], trend.seconds[-1]
    count = "1 gate" if len(trend.gates) == 1 else f"{len(trend.gates)} gates"
    seen = f"{count}, base's epoch {seconds(first)} s in the first, {seconds(last)} s in the last"
    lines = [f"{trend.variant} (fingerprint {trend.fingerprint[:8]}): {seen}"]
    if trend.slope is not None:
        s = trend.slope
        lines.append(f"  trend: {percent(s.ratio)} in 30 days ({percent(s.low)} to {percent(s.high)})")
    for change in trend.changes:
        moved = percent(change.since_s / change.before_s)
        lines.append(
            f"  since {_day(change.gate)} (base {change.gate.base[:10] or 'unknown'}): {seconds(change.before_s)} s "
            f"became {seconds(change.since_s)} s ({moved})"
        )
    if not trend.changes:
        lines.append("  no change of level was found (about 16 gates are the fewest that can show one)")
    return lines


def _data(trend: Trend) -> dict[str, Any]:
    told = zip(trend.gates, trend.seconds, strict=True)
    return {
        "fingerprint": trend.fingerprint,
        "variant": trend.variant,
        "gates": [{**dataclasses.asdict(gate), "base_s": seconds} for gate, seconds in told],
        "slope": dataclasses.asdict(trend.slope) if trend.slope else None,
        "changes": [{"gate": c.gate.id, "before_s": c.before_s, "since_s": c.since_s} for c in trend.changes],
    }


def _day(gate: PastGate) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(gate.started_at))
