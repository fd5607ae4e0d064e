"""The comparison as one HTML file: no script, no font, no address outside it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from laptime.catalogue import OPTIMIZATIONS
from laptime.compare import ablation, advising, operators, payback, plots, steps, words
from laptime.compare.curves import curves
from laptime.compare.headlines import certainty, quality_phrase, together
from laptime.compare.model import Comparison, VariantRow
from laptime.compare.palette import PARTS, series_of, variables
from laptime.compare.quality import LOWER_IS_BETTER, name_of
from laptime.compare.tables import COLUMNS
from laptime.records import LadderRecord, RunRecord


def _without_controls(value: Any) -> Any:
    """Escaping leaves control characters and marks that turn the writing round as they are."""
    return words.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def to_html(
    comparison: Comparison,
    ladder: LadderRecord | None,
    records: Sequence[RunRecord],
    profiled: Mapping[str, Sequence[tuple[str, Sequence[str]]]] | None = None,
) -> str:
    """Renders the page; all text is cleaned and escaped, only the plots' own markup is not.

    Args:
        comparison: what the page is of.
        ladder: its plan, where it is of one.
        records: for the curves.
        profiled: by variant, title and lines of the tables that torch's profiler made.
    """
    environment = Environment(
        loader=PackageLoader("laptime.compare", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        w=words,
        worth=ablation,
        payback=payback,
        inside=steps,
        ops=operators,
        adv=advising,
        standing=words.standing,
        certainty=certainty,
        together=together,
        optimization=_optimizations(),
    )
    page: str = environment.get_template("comparison.html.j2").render(
        c=comparison,
        quality=name_of(comparison.conditions.quality),
        quality_in_points=comparison.conditions.quality not in LOWER_IS_BETTER,
        base=comparison.row(comparison.baseline),
        best=comparison.headline("fastest"),
        others=[h for h in comparison.headlines if h.kind != "fastest"],
        gains=ladder.probe.gains if ladder else {},
        profiled=profiled or {},
        profiler_columns=COLUMNS,
        conditions=words.conditions(comparison.conditions, _headline_n(comparison)),
        series=series_of(comparison),
        light=variables(comparison, dark=False),
        dark=variables(comparison, dark=True),
        troubles=[t for t in words.troubles(comparison) if t[1] != "partly failed"],
        partial=[r for r in comparison.rows if r.error and r.epoch_s is not None],
        phrase=lambda row: _phrase(comparison, row),
        ladders=_widths(comparison, plots.speedup_svg),
        **_figures(comparison, records),
    )
    return page


def inline(svg: str, comparison: Comparison, name: str) -> Markup:
    """Makes a plot part of the page: no prolog, ids of its own, colours that follow the page's scheme."""
    if not svg:
        return Markup("")
    body = svg[svg.index("<svg") :]
    mark = hashlib.sha256(name.encode()).hexdigest()[:6]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{mark}-\1"', body)
    body = re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>{mark}-", body)
    # Sizes come from the viewBox, so that the plot is as wide as its place.
    body = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r'<svg \1aria-hidden="true"', body, count=1)
    body = body.replace("font-family: system-ui, sans-serif", "font-family: inherit")
    colours = {value: f"var(--{key})" for key, value in variables(comparison, dark=False).items()}
    known = re.compile("|".join(map(re.escape, colours)))
    body = re.sub(r'style="[^"]*"', lambda m: known.sub(lambda c: colours[c.group()], m.group()), body)
    return Markup(body)  # noqa: S704 (made by matplotlib, which escapes every name in it)


def _figures(comparison: Comparison, records: Sequence[RunRecord]) -> dict[str, Any]:
    found = curves(comparison, records)
    panels = [
        (measure, over, inline(plots.curve_svg(comparison, found, measure, over), comparison, measure + over))
        for measure, over in plots.PANELS
    ]
    drawn = [c.variant for c in found]
    used = dict.fromkeys(name for r in comparison.rows for name in r.parts)
    return {
        "panels": [(measure, over, svg) for measure, over, svg in panels if svg],
        "drawn": drawn,
        "parts": _widths(comparison, plots.parts_svg),
        "part_names": [(name, f"part-{name}" if name in PARTS else "part-rest") for name in used],
    }


def _widths(comparison: Comparison, plot: Callable[[Comparison, float], str]) -> list[tuple[str, Markup]]:
    """A plot for a laptop and one for a phone: text that is scaled down can't be read."""
    widths = (("wide", plots.WIDE_IN), ("phone", plots.PHONE_IN))
    drawn = [(name, inline(plot(comparison, inches), comparison, plot.__name__ + name)) for name, inches in widths]
    return [(name, svg) for name, svg in drawn if svg]


def _headline_n(comparison: Comparison) -> int:
    best = comparison.headline("fastest")
    return best.n if best else 0


def _phrase(comparison: Comparison, row: VariantRow) -> str:
    base = comparison.row(comparison.baseline)
    return quality_phrase(base, row, comparison.conditions.quality) if base else ""


def _optimizations() -> dict[str, tuple[str, str, str]]:
    """Title, class and explanation of each optimization of the catalogue."""
    return {o.name: (o.title, o.klass, o.explanation) for o in OPTIMIZATIONS}
