"""The table of remedies that were run: which count, and how far the middle of a prediction was off."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from laptime.records import Advice, Finding, Measured, write_json

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "benchmarks"))
    return importlib.import_module("verified")


def found(name: str, gain: tuple[float, float], measured: Measured | None) -> Finding:
    low, high = gain
    expected = (100 * (1 - high), 100 * (1 - low))
    return Finding(
        id=name, what="", step_ms_now=100.0, step_ms_expected=expected, gain=gain, variant=f"+{name}", measured=measured
    )


def test_all_that_was_run_stands_in_the_table(verified, tmp_path):
    told = {
        "cpu-baseline-0": (
            found("a", (0.1, 0.3), Measured(gain=0.25, gain_low=0.2, gain_high=0.3, n=3)),
            found("b", (0.4, 0.4), Measured(gain=0.5, n=1)),
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
    text = verified.table(verified.remedies(tmp_path))
    assert "| `cpu-baseline` | `+a` | 10% to 30% of 100.0 ms | 25% (20% to 30%) | 20% |" in text
    assert "| `cpu-resident` | `+d` | 10% to 10% of 100.0 ms | not measured: it failed | – |" in text
    assert "never" not in text
    # Off by 20, 20 and 200 %: the wrong sign counts, what never ran does not.
    assert text.endswith("2 of 3 remedies are faster; the middle is off by 20% of the gain in the median.\n")


def test_without_remedies_no_figure_is_made_up(verified, tmp_path):
    assert verified.table(verified.remedies(tmp_path)).count("\n") == 2
