"""GELU that is written out: each of its operators goes through all activations, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LEAST_SHARE = 0.10
_PASSES = ("forward", "backward")
# What it is made of, with the gradients of these.
_NAMES = "pow mul mul_ add add_ tanh tanh_backward erf exp div neg rsub"
_PARTS = frozenset(f"aten::{name}" for name in _NAMES.split())
# A written-out GELU multiplies by three numbers, and so does its gradient; a squared error of a tanh by one.
_LEAST_MULTIPLIED = 4
# Of what its parts take, what went with one operator (docs/log.md).
_BY_TANH, _BY_ERF = (0.4, 0.9), (0.8, 1.2)


def written_gelu(s: Signals) -> Outcome:
    """One operator computes the same numbers, and keeps its input alone."""
    if s.device == "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    passes = [r for r in rows if r.region in _PASSES and r.name in _PARTS and shapes_of(r)]
    by_erf = _shapes(passes, "aten::erf")
    by_tanh = {of for of in _shapes(passes, "aten::tanh") & _shapes(passes, "aten::pow") if _is_scaled(of, passes)}
    parts = [r for r in passes if tuple(shapes_of(r)[0]) in by_erf | by_tanh]
    spent = sum(r.self_ms for r in parts)
    if spent < _LEAST_SHARE * step:
        return None
    code = 'F.gelu(x, approximate="tanh")' if by_tanh else "F.gelu(x)"
    low, high = _BY_TANH if by_tanh else _BY_ERF
    known_as = '; transformers has it as "gelu_pytorch_tanh", and written out as "gelu_new"' if by_tanh else ""
    return Proposal(
        "written-gelu",
        f"GELU is written out, and each of its operators goes through all activations: let `{code}` do it in one"
        f"{known_as}.",
        (
            f"its parts, as {parts[0].name} on {parts[0].shapes}, take {ms(spent)} of {ms(step)} ms a step "
            f"({percent(spent / step)}), in {sum(r.calls for r in parts):.0f} calls",
        ),
        (low * spent, min(high * spent, step)),
        0.7,
        code=code,
        klass="exact",
        lines=lines_of(*(r.source for r in parts if r.region == "forward")),
    )


def _shapes(rows: Iterable[OperatorRow], name: str) -> set[tuple[int, ...]]:
    return {tuple(shapes_of(r)[0]) for r in rows if r.name == name}


def _is_scaled(of: tuple[int, ...], rows: Iterable[OperatorRow]) -> bool:
    """Whether what goes through tanh is multiplied by numbers as often as a GELU is."""
    on_it = [(r, shapes_of(r)) for r in rows if shapes_of(r)[0] == [*of]]
    curved = sum(r.calls for r, _ in on_it if r.name == "aten::tanh")
    return sum(r.calls for r, shapes in on_it if r.name == "aten::mul" and len(shapes) == 1) >= (
        _LEAST_MULTIPLIED * curved
    )
