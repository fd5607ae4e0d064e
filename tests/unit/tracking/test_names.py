"""Every name that a ladder and its variants have in MLflow stands in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from tracking_samples import MemoryStore, a_ladder, a_record, write_run

from laptime.compare.model import VariantRow
from laptime.ladder.figures import variant_figures
from laptime.records import Rung
from laptime.tracking.base import RunStart
from laptime.tracking.publish import FILES, LATE, ladder_started, variant_recorded
from laptime.tracking.rows import QUALITY, SUMMARY, TIMING
from laptime.tracking.steps import _PARTS

PAGE = Path(__file__).parents[3] / "docs" / "tracking.md"


def test_all_names_stand_in_the_documentation(tmp_path: Path) -> None:
    store, record = MemoryStore(), a_record("cpu-a")
    ladder = a_ladder()
    write_run(tmp_path, record)
    ladder_started(store, ladder)
    variant_recorded(store, ladder, Rung(variant="cpu-a", on="cpu-baseline", adds="resident"), [record], tmp_path)
    starts = [run["start"] for run in store.runs.values()]
    logged = {name for start in starts if isinstance(start, RunStart) for name in (*start.tags, *start.params)}
    assert {"laptime.spec", "data_digest", "adds"} <= logged
    names = {*logged, *QUALITY, *TIMING, *SUMMARY, *_PARTS, *variant_figures(row_of_all())}
    names |= {name for name in (*FILES, *LATE) if "." in name}
    assert names - set(re.findall(r"`([\w.]+)`", PAGE.read_text(encoding="utf-8"))) == set()


def row_of_all() -> VariantRow:
    """A variant of which the comparison knows all numbers."""
    row = VariantRow(variant="cpu-a", status="done")
    return row.model_copy(update={name: 1.0 for name in VariantRow.model_fields if getattr(row, name) is None})
