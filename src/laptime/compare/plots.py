"""The plots, as SVG text: same input, same bytes, whatever the day and the machine's fonts."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from laptime.compare import words
from laptime.compare.curves import Curve
from laptime.compare.model import Comparison, VariantRow
from laptime.compare.palette import MARKERS, ROLES, Series, part_colour, series_of
from laptime.compare.quality import LOWER_IS_BETTER, name_of

INK, MUTED, GRID, PAPER = (ROLES[name][0] for name in ("ink", "muted", "grid", "paper"))
LINE_IN = 0.34
_WIDE_NAME = 18
WIDE_IN = 6.4
PHONE_IN = 4.0

# Markers of a curve: hundreds lie upon each other, and each takes a line of the report's file.
_MOST_MARKERS = 50
# The least that an axis of learning curves spans, as a share of its middle.
_LEAST_SPAN = 0.01

# An interval that ends further out than this many times the fastest is cut there, with an arrow: two processes that
# disagree would otherwise squeeze all bars into nothing.
BEYOND = 1.5

# Where there is one to see: on a phone, and beside the baseline's name.
_INTERVAL = (" with 95 % interval", ", bars with 95 % interval")

Measure = Literal["quality", "loss"]
Over = Literal["seconds", "epochs"]

OVERS: tuple[Over, ...] = ("seconds", "epochs")
PANELS: tuple[tuple[Measure, Over], ...] = (
    ("quality", "seconds"),
    ("quality", "epochs"),
    ("loss", "seconds"),
    ("loss", "epochs"),
)

# Text stays text: small files, no dependence on installed fonts, and names with dollar signs are no formulas.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "laptime",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}


def speedup_svg(comparison: Comparison, width_in: float = WIDE_IN) -> str:
    """The ladder: a bar for each variant's speed-up with its interval, from the baseline down."""
    rows = [r for r in comparison.drawn if r.status != "left_out"]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        series = series_of(comparison)
        reach = BEYOND * max((r.speedup or 0.0 for r in rows), default=1.0)
        longest = max((min(r.speedup_high or r.speedup or 0.0, reach) for r in rows), default=1.0) or 1.0
        for place, row in enumerate(rows):
            _bar(axes, (place, row), (series[row.variant], longest), words.standing(row, comparison))
        axes.axvline(1.0, color=MUTED, linewidth=0.9, linestyle=(0, (2, 3)), zorder=1)
        axes.set_xlim(0, longest * (1.5 if any(map(_unknown, rows)) else 1.38))
        ticks = MaxNLocator(5, integer=longest >= 3).tick_values(0, longest)
        axes.set_xticks([t for t in ticks if t <= longest])
        over = f" over {words.clean(comparison.baseline)}" if width_in >= WIDE_IN else ""
        known = any(r.speedup_low is not None for r in rows if r.variant != comparison.baseline)
        # Long names leave the axes narrower than these words, which may reach below the names but not out of the plot.
        wide = max((len(r.variant) for r in rows), default=0) > _WIDE_NAME
        axes.set_xlabel(
            f"speed-up{over}{_INTERVAL[width_in >= WIDE_IN] if known else ''}", loc="right" if wide else "center"
        )
        _names(axes, [r.variant for r in rows], width_in)

    return _svg(draw, width_in, LINE_IN * len(rows) + 0.75)


def parts_svg(comparison: Comparison, width_in: float = WIDE_IN) -> str:
    """Where an epoch goes: seconds by part, stacked, a bar for each variant. Empty without recorded parts."""
    rows = [r for r in comparison.drawn if r.epoch_s is not None and r.parts]
    if not rows:
        return ""
    order = dict.fromkeys(name for r in rows for name in r.parts)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for place, row in enumerate(rows):
            start = 0.0
            for name in order:
                length = row.parts.get(name, 0.0) * (row.epoch_s or 0.0)
                style: dict[str, Any] = {"color": part_colour(name), "edgecolor": PAPER, "linewidth": 0.6}
                axes.barh(place, length, left=start, height=0.62, **style)
                start += length
            axes.annotate(
                f"{words.seconds(row.epoch_s)} s",
                (start, place),
                (5, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_xlim(0, max(r.epoch_s or 0.0 for r in rows) * 1.14)
        axes.set_xlabel("seconds of an epoch")
        _names(axes, [r.variant for r in rows], width_in)

    return _svg(draw, width_in, LINE_IN * len(rows) + 0.75)


def curve_svg(comparison: Comparison, found: Sequence[Curve], measure: Measure, over: Over) -> str:
    """One learning curve plot; empty where nothing was measured."""
    if measure not in _measures(comparison, found):
        return ""
    return _svg(lambda figure: _course(figure.add_subplot(), comparison, found, (measure, over)), 4.5, 3.0)


def curves_svg(comparison: Comparison, found: Sequence[Curve]) -> str:
    """All learning curves in one figure with a legend, for a file of its own."""
    measures = _measures(comparison, found)

    def draw(figure: Figure) -> None:
        for line, measure in enumerate(measures):
            for column, over in enumerate(OVERS):
                axes = figure.add_subplot(len(measures), 2, 2 * line + column + 1)
                _course(axes, comparison, found, (measure, over))
        if figure.axes:
            lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
            handles = [lines[words.clean(c.variant)] for c in found]
            figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)

    return _svg(draw, 9.0, 3.0 * max(len(measures), 1) + 0.25 * math.ceil(len(found) / 4) + 0.2)


def _bar(axes: Axes, placed: tuple[int, VariantRow], look: tuple[Series, float], standing: str) -> None:
    (place, row), (series, longest) = placed, look
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}  # the baseline's dotted line crosses no words
    if row.speedup is None:
        offset: Any = {"xytext": (5, 0), "textcoords": "offset points", "bbox": box}
        axes.annotate(standing, (0, place), va="center", color=MUTED, **offset)
        return
    worse = row.verdict == "worse"
    axes.barh(
        place,
        row.speedup,
        height=0.62,
        color="none" if worse else series.light,
        edgecolor=series.light,
        linewidth=1.2 if worse else 0,
        zorder=2,
    )
    end = row.speedup
    if row.speedup_low is not None and row.speedup_high is not None and not _unknown(row):
        high = min(row.speedup_high, longest)
        axes.plot([row.speedup_low, high], [place, place], color=INK, linewidth=1.1, zorder=3)
        for edge in (row.speedup_low, high) if high == row.speedup_high else (row.speedup_low,):
            axes.plot([edge, edge], [place - 0.13, place + 0.13], color=INK, linewidth=1.1, zorder=3)
        if high < row.speedup_high:
            axes.plot([high], [place], marker=">", markersize=3.5, color=INK, zorder=3)
        end = max(end, high)
    text = axes.annotate(
        words.ratio(row.speedup, "×"),
        (end, place),
        (6, 0),
        textcoords="offset points",
        va="center",
        weight="bold" if series.strong else "normal",
        bbox=box,
    )
    extra = "worse quality" if worse else "" if standing == "baseline" else _doubt(row)
    if extra:
        beside: Any = {"xycoords": text, "textcoords": "offset points", "va": "bottom", "bbox": box}
        axes.annotate(extra, (1, 0), (5, 0), color=MUTED, fontsize=8.5, **beside)


def _doubt(row: VariantRow) -> str:
    """Why a bar has no interval; nothing where it has one."""
    return "n=1" if row.speedup_low is None else "interval unknown" if _unknown(row) else ""


def _unknown(row: VariantRow) -> bool:
    """Whether a variant has an interval whose ends mean nothing: none is drawn, as none is written."""
    low, high = row.speedup_low, row.speedup_high
    return low is not None and high is not None and words.wide(low, high)


def _course(axes: Axes, comparison: Comparison, found: Sequence[Curve], what: tuple[Measure, Over]) -> None:
    measure, over = what
    series = series_of(comparison)
    is_loss = comparison.conditions.quality in LOWER_IS_BETTER
    factor = 100.0 if measure == "quality" and not is_loss else 1.0
    for curve in sorted(found, key=lambda c: series[c.variant].strong):
        drawn = series[curve.variant]
        axes.plot(
            curve.seconds if over == "seconds" else curve.epochs,
            [factor * v for v in (curve.quality if measure == "quality" else curve.loss)],
            color=drawn.light,
            linewidth=2.4 if drawn.strong else 1.2,
            marker=drawn.marker if drawn.marker in MARKERS else "o",
            markersize=4.5 if drawn.strong else 3.5,
            markevery=-(-len(curve.epochs) // _MOST_MARKERS),
            label=words.clean(curve.variant),
        )
    quality = f"test {words.clean(name_of(comparison.conditions.quality))}{'' if is_loss else ', %'}"
    name = quality if measure == "quality" else found[0].loss_name
    axes.set_title(name, loc="left", fontsize=9.5)
    axes.set_xlabel("training seconds" if over == "seconds" else "epochs")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.ticklabel_format(axis="y", useOffset=False)
    low, high = axes.get_ylim()
    least = _LEAST_SPAN * abs(low + high) / 2  # trainings that agree to the last digits are shown to agree
    if high - low < least:
        axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    _bare(axes, ("top", "right", "left"))


def _measures(comparison: Comparison, found: Sequence[Curve]) -> list[Measure]:
    """What there is to draw; a loss by which quality is judged is drawn once."""
    twice = comparison.conditions.quality == "loss" and any(c.quality == c.loss for c in found)
    measures: tuple[Measure, ...] = ("quality",) if twice else ("quality", "loss")
    return [m for m in measures if _measured(found, m)]


def _measured(found: Sequence[Curve], measure: Measure) -> bool:
    return any(math.isfinite(v) for c in found for v in (c.quality if measure == "quality" else c.loss))


def _names(axes: Axes, names: Sequence[str], width_in: float) -> None:
    room = 17 if width_in < WIDE_IN else 34
    axes.set_yticks(range(len(names)), [_two_lines(words.clean(n), room) for n in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    _bare(axes, ("top", "right", "left"))


def _two_lines(name: str, room: int) -> str:
    """Breaks a long name at a hyphen; what is longer than two lines is cut."""
    first, *more = textwrap.wrap(name, room) or [""]
    rest = "".join(more)
    return first if not rest else f"{first}\n{rest if len(rest) <= room else rest[: room - 1] + '…'}"


def _bare(axes: Axes, spines: Sequence[str]) -> None:
    for spine in spines:
        axes.spines[spine].set_visible(False)
    axes.tick_params(length=0)


def _svg(draw: Callable[[Figure], None], width_in: float, height_in: float) -> str:
    with rc_context(STYLE), warnings.catch_warnings():
        # Names in any script stay text and are drawn in the reader's fonts; only their width is guessed here.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(width_in, height_in), layout="constrained", facecolor=PAPER)
        FigureCanvasSVG(figure)
        draw(figure)
        for axes in figure.axes:
            axes.set_facecolor("none")
        text = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(text, format="svg", metadata=nothing)
    body = re.sub(r"font-family: [^;\"]*", "font-family: system-ui, sans-serif", text.getvalue())
    return "\n".join(line.rstrip() for line in body.splitlines()) + "\n"
