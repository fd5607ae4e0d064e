"""The table of remedies that were run: which count, and how far the middle of a prediction was off."""

from __future__ import annotations

from pathlib import Path

import pytest

from laptime.records import Advice, Finding, Measured, write_json
from laptime.variants import resolve

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def verified(script):
    return script("verified")


def found(name: str, gain: tuple[float, float], measured: Measured | None) -> Finding:
    low, high = gain
    expected = (100 * (1 - high), 100 * (1 - low))
    return Finding(
        id=name, what="", step_ms_now=100.0, step_ms_expected=expected, gain=gain, variant=f"+{name}", measured=measured
    )


def test_all_that_was_run_stands_in_the_table(verified, tmp_path):
    told = {
        "cpu-baseline-0": (
            found(
                "a", (0.1, 0.3), Measured(gain=0.25, gain_low=0.2, gain_high=0.3, n=3, quality="quality kept: it is")
            ),
            found("b/c", (0.4, 0.4), Measured(gain=0.5, n=1)),
            found("never", (0.1, 0.2), None),
        ),
        "cpu-resident-0": (
            found("c", (0.1, 0.1), Measured(gain=-0.1, n=1)),
            found("d", (0.1, 0.1), Measured(error="it failed")),
        ),
    }
    for folder, findings in told.items():
        (tmp_path / folder).mkdir()
        write_json(tmp_path / folder / "advice.json", Advice(subject=folder.removesuffix("-0"), findings=findings))
    text = verified.table(list(verified.remedies(tmp_path)))
    assert "| `cpu-baseline` | a | `+a` | 10% to 30% of 100.0 ms | 25% (20% to 30%) | 20% | kept: it is |" in text
    assert "| `cpu-baseline` | b/c | `+b/c` | 40% to 40% of 100.0 ms | 50% | 20% | not said |" in text
    assert "| `cpu-resident` | d | `+d` | 10% to 10% of 100.0 ms | not measured: it failed | – | – |" in text
    assert "never" not in text
    # Off by 20, 20 and 200 %: the wrong sign counts, what never ran does not. What failed is not faster.
    assert text.endswith("2 of 4 remedies are faster; the middle is off by 20% of the gain in the median.\n")


def test_without_remedies_no_figure_is_made_up_and_nothing_is_shown(verified):
    assert verified.table([]).count("\n") == 2
    assert not verified.good([])


@pytest.mark.parametrize(
    ("gains", "good"),
    [
        ((0.2, 0.2, 0.2, 0.2, -0.1), True),
        ((0.2, 0.2, 0.2, -0.1, -0.1), False),  # three of five are faster
        ((0.2, 0.2, 0.2, None, None), False),  # what failed counts
        ((0.1, 0.1, 0.1, 0.2, 0.2), False),  # the middle of 0.2 is twice the gain
        ((0.17, 0.17, 0.17), True),
        ((None,), False),
    ],
)
def test_both_goals_decide_the_exit_code(verified, gains, good):
    measured = [Measured(error="it failed") if g is None else Measured(gain=g, n=3) for g in gains]
    rows = [("cpu-baseline", found("a", (0.1, 0.3), m)) for m in measured]
    assert verified.good(rows) is good


def test_the_variants_are_those_of_one_ladder(verified):
    for name in verified.VARIANTS:
        assert resolve(name).device == "cpu"
