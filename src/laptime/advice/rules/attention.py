"""Attention whose weights are written out: each operator on them goes through a matrix of all pairs of places."""

from __future__ import annotations

import math
from collections.abc import Iterable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import is_matrix_work, shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LEAST_SHARE = 0.10
_PRODUCTS = ("aten::bmm", "aten::baddbmm")
_DROPPED = ("aten::bernoulli_", "aten::native_dropout")
_EXP = "aten::exp"  # of a softmax by hand
_FUSED = "scaled_dot_product_attention"
# Of what is done to the weights beside products, what a step lost with the fused kernel (docs/log.md).
_WITHOUT_THEM = (0.5, 1.5)


def attention(s: Signals) -> Outcome:
    """The fused kernel in the place of written-out weights; a CPU has none where weights are dropped."""
    if s.device == "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    on_them = written_out(rows, step)
    if not on_them:
        return None
    spent, dropped = sum(r.self_ms for r in on_them), _are_dropped(on_them)
    return Proposal(
        "attention/dropout" if dropped else "attention",
        _WITH_DROPOUT if dropped else _BY_HAND,
        (
            f"operators on weights for all pairs, as {on_them[0].name} on {on_them[0].shapes}, take {ms(spent)} of "
            f"{ms(step)} ms a step ({percent(spent / step)}), products beside them",
        ),
        (_WITHOUT_THEM[0] * spent, min(_WITHOUT_THEM[1] * spent, step)),
        0.6,
        code=_CODE + ("  # in torch's own layers: layer.self_attn.dropout = 0.0" if dropped else ""),
        klass="statistical" if dropped else "exact",
        lines=lines_of(*(r.source for r in on_them)),
    )


_CODE = "F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
_BY_HAND = (
    "Attention writes out its weights, for each pair of places: let scaled_dot_product_attention go through them in "
    "blocks, with a mask or is_causal."
)
_WITH_DROPOUT = (
    "Attention drops some of its weights, and a CPU has no fused kernel for that, so it writes out all of them: drop "
    "elsewhere (the output, the layers between), and let scaled_dot_product_attention do the rest."
)


def written_out(rows: tuple[OperatorRow, ...], step: float) -> list[OperatorRow]:
    """Operators on an attention's weights, other than products, where the fused kernel would spare them; else none."""
    weights = _weights(rows)
    found = [r for r in rows if not is_matrix_work(r) and not weights.isdisjoint(map(tuple, shapes_of(r)))]
    if sum(r.self_ms for r in found) < _LEAST_SHARE * step or _has_a_learnt_bias(found):
        return []
    # In a net of several kinds what is written out may be none of the one that is fused.
    fused = any(_FUSED in name for r in rows for name in (r.name, *r.chain))
    return [] if fused and not _are_dropped(found) else found


def _are_dropped(on_them: Iterable[OperatorRow]) -> bool:
    return any(r.name.startswith(_DROPPED) for r in on_them)


def _weights(rows: tuple[OperatorRow, ...]) -> set[tuple[int, ...]]:
    """Shapes of softmaxes over what a product of blocks made, and the product's: [B, h, T, S], [B * h, T, S]."""
    products = [shapes_of(r)[-2:] for r in rows if r.name in _PRODUCTS]
    made = {(a[0], a[1], b[2]) for a, b in (p for p in products if len(p) == 2) if len(a) == len(b) == 3}
    found = set[tuple[int, ...]]()
    for row in rows:
        of = shapes_of(row)[:1] if row.name.endswith("softmax") or row.name == _EXP else []
        for sizes in of:
            flat = (math.prod(sizes[:-2]), *sizes[-2:])
            if len(sizes) > 2 and flat in made:
                found |= {tuple(sizes), flat}
    return found


def _has_a_learnt_bias(rows: Iterable[OperatorRow]) -> bool:
    """Its gradient is a sum over the weights' batch; the fused kernel has none to give.

    A softmax by hand sums, too, so there a bias is what of another shape is added.
    """
    rows = list(rows)
    summed = any(r.name == "aten::sum" and r.region == "backward" for r in rows)
    added = any(r.name.startswith("aten::add") and len(set(map(tuple, shapes_of(r)))) > 1 for r in rows)
    return summed and (added or all(r.name != _EXP for r in rows))
