"""The comparison as one HTML file: no script, no font, no address outside it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from laptime.catalogue import OPTIMIZATIONS
from laptime.compare import ablation, advising, operators, payback, plots, searching, steps, words
from laptime.compare.curves import curves
from laptime.compare.headlines import certainty, quality_phrase, together
from laptime.compare.model import Comparison, VariantRow
from laptime.compare.palette import PARTS, Series, series_of, variables
from laptime.compare.quality import LOWER_IS_BETTER, name_of
from laptime.compare.tables import COLUMNS
from laptime.records import LadderRecord, RunRecord

_UNIT = re.compile(r"(?<=\d) (?=(?:pp|ms|s|MiB)\b|%)")


def _without_controls(value: Any) -> Any:
    """Escaping leaves control characters and marks that turn the writing round as they are.

    A number and its unit stay on one line.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _UNIT.sub("\N{NO-BREAK SPACE}", words.clean(value))


def _kept(name: str, most: int = 28) -> Markup:
    """A name that does not break at its hyphens, unless it is too long for a phone."""
    text = words.clean(name)
    return Markup("<bdi>{}</bdi>").format(text) if len(text) <= most else Markup.escape(text)


def _times(text: str) -> str:
    """A ratio as the page writes it: 1.57×, where a terminal has 1.57x."""
    return re.sub(r"(?<=\d)x(?![\w])", "×", text)


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
        looked=searching,
        inside=steps,
        ops=operators,
        adv=advising,
        standing=words.standing,
        certainty=certainty,
        together=together,
        optimization=_optimizations(),
    )
    environment.filters["times"] = _times
    troubles = words.troubles(comparison)
    page: str = environment.get_template("comparison.html.j2").render(
        c=comparison,
        quality=name_of(comparison.conditions.quality),
        quality_in_points=comparison.conditions.quality not in LOWER_IS_BETTER,
        base=comparison.row(comparison.baseline),
        best=comparison.headline("fastest"),
        others=[h for h in comparison.told if h.kind != "fastest"],
        gains=ladder.probe.gains if ladder else {},
        profiled=profiled or {},
        profiler_columns=COLUMNS,
        conditions=words.conditions(comparison.conditions, comparison.processes),
        series=series_of(comparison),
        light=variables(comparison, dark=False),
        dark=variables(comparison, dark=True),
        troubles=[t for t in troubles if t[1] != words.PARTLY],
        partial=[(names, why) for names, standing, why in troubles if standing == words.PARTLY],
        phrase=lambda row: _phrase(comparison, row),
        kept=_kept,
        verbatim=lambda text: Markup.escape(words.clean(text)),  # to be copied, or in columns
        coded=_coded,
        marker=lambda variant: _marker(series_of(comparison)[variant]),
        ladders=_widths(comparison, plots.speedup_svg),
        **_figures(comparison, records),
    )
    return page


def _coded(text: str) -> Markup:
    """A sentence in which what stands between backticks is code, to be copied as it is; the rest is as any other."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them stands for itself
        return Markup.escape(_without_controls(text))
    pieces = (Markup("<code>{}</code>").format(words.clean(p)) if i % 2 else p for i, p in enumerate(parts))
    return Markup().join(_without_controls(piece) for piece in pieces)


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


# The shapes of matplotlib's markers in a square of 10, as the legend of the curves shows them.
_SHAPES = {
    "o": "M5 1A4 4 0 1 1 5 9A4 4 0 1 1 5 1Z",
    "s": "M1 1H9V9H1Z",
    "^": "M5 1L9 9H1Z",
    "v": "M5 9L9 1H1Z",
    "<": "M1 5L9 1V9Z",
    ">": "M9 5L1 1V9Z",
    "D": "M5 0L10 5L5 10L0 5Z",
    "P": "M3.5 0H6.5V3.5H10V6.5H6.5V10H3.5V6.5H0V3.5H3.5Z",
    "X": "M0 2.5L2.5 0L5 2.5L7.5 0L10 2.5L7.5 5L10 7.5L7.5 10L5 7.5L2.5 10L0 7.5L2.5 5Z",
    "h": "M5 0L9.3 2.5V7.5L5 10L.7 7.5V2.5Z",
}


def _marker(series: Series) -> Markup:
    """A variant's marker in its colour."""
    shape = f'<path d="{_SHAPES[series.marker]}" style="fill: var(--{series.variable})"/>'
    return Markup(f'<svg viewBox="0 0 10 10" aria-hidden="true">{shape}</svg>')  # noqa: S704 (no text in it)


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


def _phrase(comparison: Comparison, row: VariantRow) -> str:
    base = comparison.row(comparison.baseline)
    return quality_phrase(base, row, comparison.conditions.quality) if base else ""


def _optimizations() -> dict[str, tuple[str, str, str]]:
    """Title, class and explanation of each optimization of the catalogue."""
    return {o.name: (o.title, o.klass, o.explanation) for o in OPTIMIZATIONS}
