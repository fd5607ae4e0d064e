"""Colours of the plots and the page: an accent for the headline, grey for the baseline, blues between.

Order carries the ramp, so it needs no hue to be told apart, and orange beside blue stays apart for every
common kind of colour blindness. Markers and labels repeat what colour says.
"""

from __future__ import annotations

from dataclasses import dataclass

from laptime.compare.model import Comparison

# Light and dark values of each role; the plots are drawn in the light ones and the page swaps them for
# variables.
ROLES: dict[str, tuple[str, str]] = {
    "ink": ("#1a1d21", "#eceef1"),
    "muted": ("#626a73", "#9aa3ad"),
    "grid": ("#e4e7eb", "#2c323a"),
    "paper": ("#fefefe", "#14171b"),
    "accent": ("#c4420d", "#ff8f4f"),
    "baseline": ("#868e97", "#7d868f"),
}
# Their palest ends stand out from the paper by 3 to 1, as WCAG asks of what is drawn.
RAMP = (("#6896c4", "#16365c"), ("#3f6c9a", "#cfe2f5"))

# Parts of an epoch; data stands out since it is what one can take away.
PARTS: dict[str, str] = {
    "first_batch": "#efd9a7",
    "data": "#d9a441",
    "copy": "#b9643a",
    "step": "#54699c",
    "forward": "#2f5f93",
    "backward": "#7ba7d4",
    "optimizer": "#4f9a84",
    "read": "#a8699b",
    "rest": "#b4bac1",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")


@dataclass(frozen=True)
class Series:
    """How a variant is drawn, everywhere.

    Attributes:
        variable: the CSS variable that the page uses for it.
    """

    variable: str
    light: str
    dark: str
    marker: str
    strong: bool


def series_of(comparison: Comparison) -> dict[str, Series]:
    """Colour and marker of each variant; the baseline and the headline are the strong ones."""
    best = comparison.headline("fastest")
    headline = best.variant if best else None
    plain = [r.variant for r in comparison.rows if r.variant not in (comparison.baseline, headline)]
    found = {}
    for place, row in enumerate(comparison.rows):
        marker = MARKERS[place % len(MARKERS)]
        if row.variant in (comparison.baseline, headline):
            role = "baseline" if row.variant == comparison.baseline else "accent"
            found[row.variant] = Series(role, *ROLES[role], marker, strong=True)
        else:
            at = plain.index(row.variant) / max(len(plain) - 1, 1)
            light, dark = (_between(*ends, at) for ends in RAMP)
            found[row.variant] = Series(f"s{place}", light, dark, marker, strong=False)
    return found


def variables(comparison: Comparison, dark: bool) -> dict[str, str]:
    """The CSS variables of one colour scheme, by name."""
    chosen = {name: pair[dark] for name, pair in ROLES.items()}
    series = {s.variable: s.dark if dark else s.light for s in series_of(comparison).values()}
    return chosen | series | {f"part-{name}": colour for name, colour in PARTS.items()}


def part_colour(name: str) -> str:
    """The colour of a part of an epoch; what a user's own loop calls otherwise is grey."""
    return PARTS.get(name, PARTS["rest"])


def _between(start: str, end: str, at: float) -> str:
    pairs = [(int(start[i : i + 2], 16), int(end[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * at):02x}" for a, b in pairs)
