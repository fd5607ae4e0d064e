"""What people quote: where the fastest may be worse, the fastest that is shown not to be stands beside it."""

from __future__ import annotations

import pytest
from compare_examples import compare_records, ladder, record, records

from laptime.compare.comparison import Comparison, compare
from laptime.ladder.figures import headline_figures

BASE, KEPT, OPEN = (0.66, 0.655, 0.664), (0.659, 0.657, 0.662), (0.70, 0.58, 0.65)


def compared(**qualities: tuple[float, ...]) -> Comparison:
    """Variants of three rounds, each named one faster than the one before."""
    runs = [record("cpu-baseline", 85, q, n) for n, q in enumerate(BASE)]
    for place, (name, reached) in enumerate(qualities.items(), 1):
        runs += [record(f"cpu-{name}", 85 / 2**place, q, n) for n, q in enumerate(reached)]
    return compare_records(runs)


def test_beside_a_fastest_of_unclear_quality_stands_the_fastest_that_keeps_it():
    found = compared(slower=KEPT, kept=KEPT, open=OPEN)
    kinds = [(h.kind, h.variant, h.verdict) for h in found.headlines[:2]]
    assert kinds == [("fastest", "cpu-open", "unclear"), ("quality_kept", "cpu-kept", "kept")]
    assert found.headlines[1].sentence.startswith("Fastest with quality shown to be kept: cpu-kept trains 4.")
    figures = headline_figures(found)
    assert figures["speedup"] == pytest.approx(8, rel=0.2)
    assert figures["speedup_quality_kept"] == pytest.approx(4, rel=0.2)


def test_where_none_is_shown_to_keep_it_the_report_says_what_would_tell():
    found = compared(open=OPEN)
    assert found.headline("quality_kept").sentence == (
        "Fastest with quality shown to be kept: none that is faster than cpu-baseline; more rounds would tell "
        "(--repeats)."
    )
    assert "speedup_quality_kept" not in headline_figures(found)


@pytest.mark.parametrize("lost", [False, True])
def test_a_fastest_that_keeps_quality_needs_no_second_line(lost: bool) -> None:
    found = compared(kept=KEPT, **({"lost": (0.4, 0.41, 0.39)} if lost else {}))
    assert found.headlines[0].variant == "cpu-kept"
    assert found.headline("quality_kept") is None
    assert headline_figures(found)["speedup_quality_kept"] == found.headlines[0].speedup


def test_what_is_not_judged_has_no_figure_of_kept_quality():
    found = compare_records([record("cpu-baseline", 85, 0.1), record("cpu-fast", 40, 0.1)])
    assert found.headlines[0].verdict == "not judged"
    assert found.headline("quality_kept") is None
    assert "speedup_quality_kept" not in headline_figures(found)


@pytest.mark.parametrize("error", ["out of memory.", "interrupted"])
def test_a_fastest_of_which_processes_failed_says_so_in_the_same_sentence(error: str):
    runs = [record(name, seconds, 0.66, n) for name, seconds in (("cpu-baseline", 85), ("cpu-x", 40)) for n in range(3)]
    runs[4:] = [r.model_copy(update={"status": "failed", "error": error, "epochs": ()}) for r in runs[4:]]
    (first, *_) = compare_records(runs).headlines
    assert first.variant == "cpu-x"
    assert first.sentence.endswith(f"; not all of it ended: 2 of 3 processes: {error.rstrip('.')}.")
    (whole, *_) = compare_records(runs[:4]).headlines
    assert "not all" not in whole.sentence


def test_what_a_rung_brought_to_another_one_stays_of_the_rounds_where_pairs_tell_its_speed_up():
    plan, runs = ladder(), records()
    before = next(r for r in compare(plan, runs).rows if r.on not in (None, "cpu-baseline") and r.contribution)
    plan = plan.model_copy(update={"confirmed": {before.variant: (0.5, 0.5)}})
    after = compare(plan, runs).row(before.variant)
    assert after.speedup == pytest.approx(2)
    assert after.contribution == before.contribution
