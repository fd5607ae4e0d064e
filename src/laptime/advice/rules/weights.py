"""A penalty on weights that is part of the loss: passes over all weights in forward and backward."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import is_convolution, is_matrix_work, map_and_kernel, shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LEAST_SHARE = 0.05
# Of all weights, those that are squared and added up: a penalty is on most of them, a norm of a layer on one.
_LEAST_SQUARED = 0.5
_PASSES = ("forward", "backward")
_SQUARES = ("aten::pow", "aten::square", "aten::mul")
# Of what is done to weights in forward and backward, what went with the optimizer's decay (docs/log.md).
_DECAYED = (0.5, 1.4)

_Shape = tuple[int, ...]


def weight_penalty(s: Signals) -> Outcome:
    """The optimizer's own decay makes the same gradient while it updates, and reads no weight once more for it."""
    if s.device == "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    weights = _weights(rows)
    squared = {of for of in weights if _is_squared(of, rows)}
    on_them = [r for r in rows if r.region in _PASSES and _touches(r, squared)]
    spent = sum(r.self_ms for r in on_them)
    if spent < _LEAST_SHARE * step or _size(squared) < _LEAST_SQUARED * _size(weights):
        return None
    return Proposal(
        "weight-penalty",
        "The loss adds up the squares of the weights, which takes passes over all of them in forward and backward: let "
        "the optimizer decay them.",
        (
            f"operators on weights, as {on_them[0].name} on {on_them[0].shapes}, take {ms(spent)} of {ms(step)} ms a "
            f"step ({percent(spent / step)})",
            "of SGD and Adam weight_decay=2 * factor makes the same gradient as factor times the sum of squares; AdamW "
            "decays otherwise; the loss is reported without the penalty",
        ),
        (_DECAYED[0] * spent, min(_DECAYED[1] * spent, step)),
        0.6,
        code="torch.optim.Adam(net.parameters(), weight_decay=2 * factor)  # in the place of factor * sum(w ** 2)",
        klass="exact",
        lines=lines_of(*(r.source for r in on_them if r.region == "forward")),
    )


def _weights(rows: Iterable[OperatorRow]) -> set[_Shape]:
    """Shapes of kernels and of linear layers' matrices, less those that activations have, too.

    A product makes a weight's gradient for each use of it; where products make more of its shape, as of a covariance,
    these are activations.
    """
    uses, made = defaultdict[_Shape, float](float), defaultdict[_Shape, float](float)
    activations = set[_Shape]()
    for row in rows:
        of = [tuple(sizes) for sizes in shapes_of(row)]
        linear = row.name in ("aten::addmm", "aten::mm") and len(of) > 1 and len(of[-1]) == 2
        if linear:
            made[of[-2][0], of[-1][1]] += row.calls
        if row.region != "forward":
            continue
        if is_convolution(row) and map_and_kernel(row):
            uses[of[1]] += row.calls
            activations.add(of[0])
        elif linear:
            uses[of[-1][::-1]] += row.calls
            activations.add(of[-2])
    return {of for of, calls in uses.items() if made[of] < calls + 0.5} - activations


def _is_squared(of: _Shape, rows: Iterable[OperatorRow]) -> bool:
    """Whether tensors of this shape are squared, by a power or by themselves, and added up in forward.

    Backward takes a power, too, and a row of both may count as the backward's. What has a mean or meets one number for
    each of its rows is normalized; its squares are no penalty.
    """
    on_it = [r for r in rows if r.region in _PASSES and _touches(r, {of})]
    if any("aten::mean" in (r.name, *r.chain) or _meets_smaller(r) for r in on_it):
        return False
    squares = [r for r in on_it if r.name in _SQUARES and (r.name != "aten::mul" or shapes_of(r)[1:] == [[*of]])]
    return bool(squares) and any(r.name == "aten::sum" and r.region == "forward" for r in on_it)


def _meets_smaller(row: OperatorRow) -> bool:
    first, *others = shapes_of(row)
    return any(len(other) == len(first) and other != first for other in others)


def _touches(row: OperatorRow, shapes: set[_Shape]) -> bool:
    return not is_matrix_work(row) and not shapes.isdisjoint(map(tuple, shapes_of(row)[:1]))


def _size(shapes: Iterable[_Shape]) -> int:
    return sum(map(math.prod, shapes))
