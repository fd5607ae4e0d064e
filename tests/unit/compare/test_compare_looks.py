"""How the reports look: names are not torn, nothing is said twice, no interval is drawn that means nothing."""

from __future__ import annotations

from compare_examples import ladder, records
from rich.console import Console

from laptime.compare import compare
from laptime.compare.html import to_html
from laptime.compare.plots import speedup_svg
from laptime.compare.terminal import to_terminal


def test_names_break_at_their_hyphens_where_the_terminal_is_narrow() -> None:
    console = Console(width=80)
    with console.capture() as said:
        console.print(to_terminal(compare(ladder(), records()), 80))
    first, second = next(
        (line, after)
        for line, after in zip(*(said.get().splitlines()[n:] for n in (0, 1)), strict=False)
        if line.startswith("cpu-channels-")
    )
    assert (first.split()[0], second.split()[0]) == ("cpu-channels-", "last")


def test_what_is_said_of_the_fastest_is_said_once_and_no_unknown_interval_is_drawn() -> None:
    runs = [r for r in records() if r.spec and r.spec.variant in ("cpu-baseline", "cpu-resident")]
    found = compare(ladder(), runs)
    assert to_html(found, None, runs).count('<p class="said">cpu-resident too.</p>') == 2
    assert "interval unknown" not in speedup_svg(found)
    rows = [
        row if row.variant == "cpu-baseline" else row.model_copy(update={"speedup_low": 1e-3, "speedup_high": 2.0})
        for row in found.rows
    ]
    doubtful = found.model_copy(update={"rows": tuple(rows)})
    assert "interval unknown" in speedup_svg(doubtful)
