"""How the reports look: names are not torn, nothing is said twice, no interval is drawn that means nothing."""

from __future__ import annotations

from compare_examples import broken, compare_records, ladder, record, records
from rich.console import Console

from laptime.compare.comparison import compare
from laptime.compare.curves import curves
from laptime.compare.html import to_html
from laptime.compare.plots import curves_svg, speedup_svg
from laptime.compare.terminal import to_terminal
from laptime.compare.words import troubles


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
    again = '<p class="said">cpu-resident too.</p>'
    assert to_html(found, None, runs).count(again) == 1  # nothing is said of dead taps, which neither crops
    slow = [*runs, *(record("cpu-dead-taps", 90.0, 0.66, r, ("dead-taps",)) for r in range(3))]
    assert to_html(compare(ladder(), slow), None, slow).count(again) == 2
    assert "interval unknown" not in speedup_svg(found)
    rows = [
        row if row.variant == "cpu-baseline" else row.model_copy(update={"speedup_low": 1e-3, "speedup_high": 2.0})
        for row in found.rows
    ]
    doubtful = found.model_copy(update={"rows": tuple(rows)})
    assert "interval unknown" in speedup_svg(doubtful)


def test_hundreds_of_epochs_have_some_markers_each() -> None:
    """500 epochs of two variants made a file of 570 kB, most of it markers upon markers."""
    runs = [r for r in records() if r.spec and r.spec.variant in ("cpu-baseline", "cpu-resident")]
    few = curves_svg(compare(ladder(), runs), curves(compare(ladder(), runs), runs))
    last = runs[0].epochs[-1]
    more = [last.model_copy(update={"index": index, "train_s_so_far": None}) for index in range(500)]
    long = [r.model_copy(update={"epochs": tuple(more)}) for r in runs]
    found = curves(compare(ladder(), long), long)
    assert [len(c.epochs) for c in found] == [500, 500]
    drawn = curves_svg(compare(ladder(), long), found)
    assert few.count("<use") < drawn.count("<use") < 420
    assert len(drawn) < 100_000


def test_processes_that_failed_for_one_reason_are_told_together() -> None:
    runs = [r for n in (1, 2) for r in (record(f"cpu-{n}", 40, 0.66, 1), broken(f"cpu-{n}", "failed", "killed"))]
    runs += [record("cpu-3", 40, 0.66, 1), broken("cpu-3", "failed", "no room")]
    runs += [broken(f"cpu-{n}", "failed", "no GPU") for n in (4, 5)]
    found = compare_records([record("cpu-baseline", 85, 0.66), *runs])
    together = [
        (("cpu-1", "cpu-2"), "partly failed", "1 of 2 processes: killed"),
        (("cpu-3",), "partly failed", "1 of 2 processes: no room"),
        (("cpu-4", "cpu-5"), "failed", "no GPU"),
    ]
    assert troubles(found) == together
    page = to_html(found, None, runs)
    for names, standing, why in together:
        told = f"<b>{', '.join(names)}</b>{': ' if standing == 'partly failed' else ' failed: '}{why}"
        assert page.count(told) == 1


def test_what_was_seen_beside_several_variants_is_told_once() -> None:
    seen = {"cautions": ("another process is on its GPU",)}
    runs = [
        record(f"cpu-{name}", 40, 0.66).model_copy(update=seen) for name in ("baseline", "1", "2") for _ in range(2)
    ]
    told = [text for text in compare_records(runs).cautions if "GPU" in text]
    assert told == ["cpu-baseline, cpu-1, cpu-2: another process is on its GPU."]
