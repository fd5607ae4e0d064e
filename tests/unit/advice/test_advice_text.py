"""Advice in words: Markdown and the terminal's text, predicted beside measured, names that do no harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from advice_examples import cpu

from laptime.advice import to_markdown, to_text
from laptime.advice.figures import ms
from laptime.advice.judge import ask, judge
from laptime.advice.rules import RULES
from laptime.records.advice import Measured, RuleHistory

_GOLDEN = Path(__file__).parents[2] / "golden" / "advice.md"


def of(signals, history=None):
    return judge(ask(RULES, signals), signals, history or {})


def measured_advice():
    found = of(
        cpu(wait_ms=12.0, optimizer_ms=40.0, process_cpu_ms=190.0, passes=None),
        {"optimizer": RuleHistory(tried=8, faster=7, ratio=1.3, compared=6)},
    )
    first, second, *rest = found.findings
    said = Measured(step_ms=71.2, step_ms_before=100.4, gain=0.291, n=3, quality_kept=True)
    after = (first.model_copy(update={"measured": said, "history": RuleHistory(tried=8, faster=7, error=0.12)}),)
    failed = second.model_copy(update={"measured": Measured(error="it ran out of memory"), "lines": ("a_b.py:3",)})
    return found.model_copy(update={"findings": (*after, failed, *rest), "notices": ("<b>@all</b> | [x](y)",)})


def test_the_markdown_is_the_golden_one():
    text = to_markdown(measured_advice())
    if os.environ.get("LAPTIME_GOLDEN"):
        _GOLDEN.write_text(text, encoding="utf-8")
    assert text == _GOLDEN.read_text(encoding="utf-8")


def test_predicted_stands_beside_measured():
    text = to_text(measured_advice())
    assert (
        "predicted 30 % to 42 % less, measured 29 % less (71.2 instead of 100 ms a step, n = 3); quality kept" in text
    )
    assert "not measured: it ran out of memory" in text
    slower = measured_advice().findings[0]
    worse = slower.model_copy(update={"measured": Measured(gain=-0.05)})
    assert "measured 5.0 % more; quality not judged" in to_text(of(cpu()).model_copy(update={"findings": (worse,)}))


@pytest.mark.parametrize(
    ("value", "text"), [(28.44, "28.4"), (1.0, "1.0"), (0.3131, "0.31"), (0.0131, "0.013"), (0, "0.0")]
)
def test_short_steps_are_no_0_ms(value, text):
    """Of a step of 0.13 ms it said: 0.0 to 0.0 ms a step instead of 0.1."""
    assert ms(value) == text


def test_a_tiny_nets_advice_has_figures():
    found = of(cpu(step_ms=0.13, wait_ms=0.004, optimizer_ms=0.03, forward_ms=0.04, backward_ms=0.03, passes=None))
    assert found.findings
    assert "0.0 " not in found.verdict, found.verdict
    assert " 0.00 " not in to_text(found)


def test_names_are_harmless():
    evil = of(cpu(subject="\x1b[31m<script>|`*x*@you")).model_copy(update={"step_ms": None})
    assert "\x1b" not in to_text(evil)
    shown = to_markdown(evil)
    assert "<script>" not in shown
    assert "@you" not in shown
