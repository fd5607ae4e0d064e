"""Writes a comparison's files, each beside its place and then renamed, so that nobody reads half a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laptime.compare.curves import curves
from laptime.compare.markdown import to_markdown
from laptime.compare.model import Comparison
from laptime.errors import RunError
from laptime.records import LadderRecord, RunRecord, write_json, write_text


def write_comparison(
    comparison: Comparison, ladder: LadderRecord | None, records: Sequence[RunRecord], folder: Path
) -> dict[str, Path]:
    """Writes `comparison.html`, `.json`, `.md`, `speedup.svg` and `curves.svg`.

    Returns:
        The files by name.

    Raises:
        RunError: the folder can't be written.
    """
    # matplotlib and jinja2 take half a second, which only writing is worth.
    from laptime.compare.html import to_html
    from laptime.compare.plots import curves_svg, speedup_svg
    from laptime.compare.tables import tables_beside

    texts = {
        "comparison.html": to_html(comparison, ladder, records, tables_beside(folder, comparison)),
        "comparison.md": to_markdown(comparison),
        "speedup.svg": speedup_svg(comparison),
        "curves.svg": curves_svg(comparison, curves(comparison, records)),
    }
    try:
        write_json(folder / "comparison.json", comparison)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise RunError(f"the comparison can't be written to {folder}: {error}; give another --out.") from error
    return {name: folder / name for name in ("comparison.json", *texts)}
