"""Advice in words: Markdown and the terminal's text, predicted beside measured, names that do no harm."""

from __future__ import annotations

import os
from pathlib import Path

from advice_examples import cpu

from laptime.advice import to_markdown, to_text
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


def test_names_are_harmless():
    evil = of(cpu(subject="\x1b[31m<script>|`*x*@you")).model_copy(update={"step_ms": None})
    assert "\x1b" not in to_text(evil)
    shown = to_markdown(evil)
    assert "<script>" not in shown
    assert "@you" not in shown
