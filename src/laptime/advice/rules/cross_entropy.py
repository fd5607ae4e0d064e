"""A cross-entropy that is written out: passes over the scores of all classes that one operator does without."""

from __future__ import annotations

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LEAST_SHARE = 0.05
_PASSES = ("forward", "backward")
# By how it is spelled, what it is made of beyond what F.cross_entropy does, with the gradients of these.
_OF_SOFTMAX = {f"aten::{name}" for name in ("log", "div", "add", "clamp")}
_BY_LABELS = _OF_SOFTMAX | {f"aten::{name}" for name in ("one_hot", "mul", "sum", "neg", "copy_")}
_BY_EXP = _OF_SOFTMAX | {f"aten::{name}" for name in ("exp", "sum", "sub", "neg", "mul", "max", "amax", "add_")}
# Of what these take, what went with one operator (docs/log.md).
_GONE = (0.5, 1.2)

_Shape = tuple[int, ...]
_Row = tuple[OperatorRow, list[_Shape]]


def written_cross_entropy(s: Signals) -> Outcome:
    """One operator goes through the scores twice in forward, and writes their gradient alone."""
    if s.device == "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    by_scores: dict[_Shape, list[_Row]] = {}
    for row in rows:
        of = [tuple(sizes) for sizes in shapes_of(row)]
        if of and row.region in _PASSES:
            by_scores.setdefault(of[0], []).append((row, of))
    parts = [row for scores, on_them in by_scores.items() for row in _parts(scores, on_them)]
    spent = sum(r.self_ms for r in parts)
    if spent < _LEAST_SHARE * step:
        return None
    return Proposal(
        "written-cross-entropy",
        "A cross-entropy is written out, and each of its operators goes through the scores of all classes: let "
        "`F.cross_entropy` do it, with the scores themselves and the numbers of the classes.",
        (
            f"its parts, as {parts[0].name} on {parts[0].shapes}, take {ms(spent)} of {ms(step)} ms a step "
            f"({percent(spent / step)}), in {sum(r.calls for r in parts):.0f} calls",
            "it needs no small number within the logarithm; label_smoothing= is for labels that are smoothed, and "
            "F.log_softmax(scores, -1) for the logarithm alone",
        ),
        (_GONE[0] * spent, min(_GONE[1] * spent, step)),
        0.7,
        code="F.cross_entropy(scores, labels)",
        klass="exact",
        lines=lines_of(*(r.source for r in parts if r.region == "forward")),
    )


def _parts(scores: _Shape, on_them: list[_Row]) -> list[OperatorRow]:
    made = _made_of(scores, on_them)
    scaled = ("aten::div", "aten::mul")  # by one number: what any scores may be, before
    return [r for r, of in on_them if not made.isdisjoint((r.name, *r.chain)) and (len(of) > 1 or r.name not in scaled)]


def _made_of(scores: _Shape, on_them: list[_Row]) -> set[str]:
    """Operators of a cross-entropy on scores of this shape; none where there is no such loss.

    Scores are told from other exponentials by the one place that is picked of each row, or by a logarithm. What a
    softmax is multiplied with, but by no labels, is an entropy or a distillation, which needs all of them.
    """
    names = {name for row, _ in on_them for name in (row.name, *row.chain)}
    products = any(row.name == "aten::mul" and of == [scores, scores] for row, of in on_them)
    normalized = any(row.name == "aten::div" and of[1:] == [(*scores[:-1], 1)] for row, of in on_them)
    labelled = products and "aten::scatter_" in names and not any(n.startswith("aten::nll_loss") for n in names)
    if normalized and {"aten::exp", "aten::sum"} <= names and names & {"aten::log", "aten::gather", "aten::index"}:
        return _BY_EXP
    if labelled and names & {"aten::_log_softmax", "aten::log"}:
        return _BY_LABELS
    return _OF_SOFTMAX if {"aten::log", "aten::_softmax"} <= names and not products else set()
