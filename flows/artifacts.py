"""What a flow run shows in Prefect's UI: progress, the table of variants, the comparison, a link to MLflow."""

from __future__ import annotations

import os
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from laptime.compare import advising, words
from laptime.compare.comparison import Comparison, VariantRow
from laptime.compare.markdown import to_markdown
from laptime.compare.quality import name_of
from laptime.ladder import Ladder
from laptime.places import Places
from laptime.records import Finding
from laptime.tracking.journal import read_state
from laptime.tracking.publish import ladder_key
from laptime.tracking.uri import is_http

_FINDINGS = 10


class Progress:
    """The share of a ladder's processes that are done; the total grows while the first round decides."""

    def __init__(self) -> None:
        self._artifact: UUID | None = None

    def show(self, done: int, total: int) -> None:
        """Shows how far the ladder is."""
        share = 100.0 * done / max(done, total)
        if self._artifact is None:
            found = create_progress_artifact(share, key="progress", description="processes of the ladder")
            self._artifact = cast("UUID", found)  # called outside an event loop, it is no coroutine
        else:
            update_progress_artifact(self._artifact, share)


def publish_artifacts(ladder: Ladder, places: Places) -> None:
    """Shows the results of a ladder that has been compared."""
    if ladder.comparison is None:
        return
    create_table_artifact(
        table(ladder.comparison), key="variants", description="The variants in the order of the ladder"
    )
    create_markdown_artifact(to_markdown(ladder.comparison), key="comparison", description=f"Ladder {ladder.record.id}")
    rows = advice_table(ladder)
    if rows:
        create_table_artifact(rows, key="advice", description="What to try next, the most worthwhile first")
    link = mlflow_link(ladder, places)
    if link:
        create_link_artifact(link, "The ladder in MLflow", key="mlflow", description="Parent run with all variants")


def table(comparison: Comparison) -> list[dict[str, str]]:
    """The variants as rows of words."""
    return [_row(row, comparison) for row in comparison.rows]


def advice_table(ladder: Ladder) -> list[dict[str, str]]:
    """The first findings over all variants, with what they should bring and what they brought."""
    advice = ladder.counsel.merged()
    return [_finding(found) for found in advice.findings[:_FINDINGS]] if advice else []


def _finding(found: Finding) -> dict[str, str]:
    seen, figure = (*found.evidence[:2], "", "")[:2]  # where it was seen stands before the figures
    return {
        "finding": found.what,
        "on": seen,
        "rests on": figure,
        "at": ", ".join(found.lines),
        "expected step": advising.expected(found),
        "expected gain": advising.gain(found),
        "measured": advising.measured(found.measured),
        "class": found.klass,
        "confidence": advising.confidence(found),
        "command": found.command,
    }


def _row(row: VariantRow, comparison: Comparison) -> dict[str, str]:
    reached, beside = words.quality_cell(row, comparison)
    return {
        "variant": row.variant,
        "status": words.standing(row, comparison),
        "s/epoch": f"{words.seconds(row.epoch_s)} ({words.time_span(row)})" if row.epoch_s is not None else "",
        "speed-up": _speedup(row, comparison),
        "samples/s": words.count(row.samples_per_s) if row.samples_per_s is not None else "",
        f"test {name_of(comparison.conditions.quality)}": f"{reached} ({beside})" if beside else "",
        "peak MiB": words.count(row.peak_memory_mib) if row.peak_memory_mib is not None else "",
        "remarks": row.error or row.reason,
    }


def _speedup(row: VariantRow, comparison: Comparison) -> str:
    """With its interval, which the baseline's own has none of."""
    if row.speedup is None:
        return ""
    beside = "" if row.variant == comparison.baseline else f" ({words.speedup_span(row)})"
    return f"{words.ratio(row.speedup)}{beside}"


def mlflow_link(ladder: Ladder, places: Places) -> str | None:
    """The page of the ladder's run, where a server shows it: the tracking server, or the one of `laptime up`."""
    uri = ladder.request.tracking_uri or places.mlflow_uri
    # In a container the server has another name than in a browser, so what is said apart wins.
    shown = os.environ.get("LAPTIME_MLFLOW_UI") or (uri if is_http(uri) else "")
    run_id = read_state(places.journal / f"{ladder.record.id}.jsonl").runs.get(ladder_key(ladder.record))
    if not shown or run_id is None:
        return None
    from laptime.tracking.mlflow import run_page

    return run_page(run_id, uri, shown)
