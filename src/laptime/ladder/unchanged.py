"""Rungs that are what they stand on once more: what a timing chose for them is what stood there before."""

from __future__ import annotations

from collections.abc import Sequence

from laptime.catalogue import rung_spec
from laptime.records import RunRecord


def unchanged(group: Sequence[str], record: RunRecord, baseline: RunRecord) -> str | None:
    """Why a rung is no variant of its own; None where it changes something, or nobody knows.

    Such a one would join by chance, every second time, and its figures would be those of noise.

    Args:
        group: the rungs that it adds.
        record: what its process produced.
        baseline: the same of the baseline, whose loader has as many workers as the best so far without that rung.
    """
    reasons = [_reason(name, record, baseline) for name in group]
    return "; ".join(filter(None, reasons)) if record.status == "done" and all(reasons) else None


def no_change(first: RunRecord, second: RunRecord, baseline: RunRecord) -> str:
    """Why two lists of a pair are one: what one has more is what the other has; empty where they differ."""
    one, other = ({o.name for o in r.spec.optimizations} if r.spec else set[str]() for r in (first, second))
    if not (one < other or other < one):
        return ""
    return unchanged(sorted(one ^ other), second if one < other else first, baseline) or ""


def _reason(rung: str, record: RunRecord, baseline: RunRecord) -> str | None:
    name = rung_spec(rung).name
    chosen = next((o.options for o in record.settled if o.name == name), {})
    if name == "products" and chosen.get("layers") == "none":
        return "it would be the same once more: no layer gains as a product at this batch and precision"
    before = None if baseline.setup is None else baseline.setup.workers
    if name == "workers" and "count" in chosen and chosen["count"] == before:
        return f"it would be the same once more: loading is fastest with {before} loader workers, as many as before"
    return None
