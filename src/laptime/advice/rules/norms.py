"""Norms that are written out: each of their operators goes through all activations, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LEAST_SHARE = 0.05
_PASSES = ("forward", "backward")
_MEANS = {"aten::mean", "aten::var_mean", "aten::std_mean"}
_DEVIATIONS = {"aten::std", "aten::std_mean"}
_BY_N_LESS_ONE = {"aten::var", "aten::var_mean", *_DEVIATIONS}
_ROOTS = {"aten::sqrt", "aten::rsqrt", "aten::pow"}
# The gradient of what is subtracted: what is normalized before a net has none, and may need its mean once more.
_LEARNT = "aten::neg"
# What it is made of, with the gradients of these.
_NAMES = "sub mul div add add_ neg pow square sum"
_PARTS = _MEANS | _BY_N_LESS_ONE | {f"aten::{name}" for name in _NAMES.split()}

_Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Remedy:
    """One operator for a norm.

    Attributes:
        affine: where weight and bias go.
        gone: of what the norm's parts take, what went with it (docs/log.md).
    """

    code: str
    affine: str
    gone: tuple[float, float]


_CHANNELS = _Remedy(
    "F.layer_norm(x.movedim(1, -1), x.shape[1:2], weight, bias).movedim(-1, 1)",
    "what comes out lies in channels_last, in which a CPU's convolutions are as fast or faster",
    (0.9, 2.5),
)
_BATCH = _Remedy(
    "F.batch_norm(x, running_mean, running_var, weight, bias, training=True)",
    "nn.BatchNorm1d to 3d hold all of these; the running variance is then that of n - 1",
    (0.6, 1.1),
)
_PLACES = _Remedy(
    "F.batch_norm(x.flatten(0, -2), running_mean, running_var, weight, bias, training=True).view_as(x)",
    _BATCH.affine,
    (0.6, 1.3),
)
_UNBIASED = (
    "x.var() and x.std() divide by n - 1 unless they are told otherwise, this by n, and its eps is added to the "
    "variance: all but the same numbers"
)


def written_norms(s: Signals) -> Outcome:
    """One operator computes the same numbers, and goes through the activations a few times instead of twenty."""
    if s.device == "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    passes = [(r, [tuple(of) for of in shapes_of(r)]) for r in rows if r.region in _PASSES]
    normed = _normed([(r, of) for r, of in passes if of])
    parts = [(r, whole) for r, of in passes if (whole := _part_of(r, of, normed))]
    spent = sum(r.self_ms for r, _ in parts)
    if spent < _LEAST_SHARE * step:
        return None
    first, whole = parts[0]
    remedy = normed[whole]
    unbiased = any(_is(r, _BY_N_LESS_ONE) for r, _ in parts)
    return Proposal(
        "written-norms",
        "A norm is written out, and each of its operators goes through all activations: let "
        f"`{remedy.code}` do it in one.",
        (
            f"its parts, as {first.name} on {first.shapes}, take {ms(spent)} of {ms(step)} ms a step "
            f"({percent(spent / step)}), in {sum(r.calls for r, _ in parts):.0f} calls",
            remedy.affine,
            *([_UNBIASED] if unbiased else []),
        ),
        (remedy.gone[0] * spent, min(remedy.gone[1] * spent, step)),
        0.8,
        code=remedy.code,
        klass="model" if unbiased else "exact",
        lines=lines_of(*(r.source for r, _ in parts if r.region == "forward")),
    )


def _normed(passes: Sequence[tuple[OperatorRow, list[_Shape]]]) -> dict[_Shape, _Remedy]:
    """Shapes that are normalized, with what does that in one operator.

    Their mean is subtracted, and they are divided by a root, or multiplied with one over it, that lies as the mean.
    A softmax has no mean, a gate no root, data no gradient; RMSNorm, for which a CPU has no operator, no difference.
    """
    found: dict[_Shape, _Remedy] = {}
    names = {of: {n for r, (first, *_) in passes if first == of for n in (r.name, *r.chain)} for _, (of, *_) in passes}
    scaled = {(of[0], of[1]) for r, of in passes if r.name in ("aten::div", "aten::mul") and len(of) == 2}
    for row, of in passes:
        if row.name != "aten::sub" or len(of) != 2 or (of[0], of[1]) not in scaled:
            continue
        whole, part = of
        rooted = any(names[small] & _ROOTS and _sides(small) == _sides(part) for small in names)
        remedy = _remedy(whole, part)
        if remedy and _LEARNT in names[whole] and names[whole] & _MEANS and (rooted or names[whole] & _DEVIATIONS):
            found[whole] = remedy
    return found


def _remedy(whole: _Shape, part: _Shape) -> _Remedy | None:
    """By the axes along which the part has one place: the last ones, the second, all others than that."""
    part = (1,) * (len(whole) - len(part)) + part
    axes = [axis for axis, (n, m) in enumerate(zip(whole, part, strict=False)) if m == 1 < n]
    every = range(len(whole))
    if len(part) != len(whole) or not axes:
        return None
    if axes == [1] and len(whole) > 2:
        return _CHANNELS
    if axes == [axis for axis in every if axis != 1]:
        return _BATCH
    if axes == [axis for axis in every[:-1] if whole[axis] > 1]:
        return _PLACES
    return _of_last(axes[0]) if axes == [*every[axes[0] :]] and axes[0] else None


def _of_last(first: int) -> _Remedy:
    return _Remedy(
        f"F.layer_norm(x, x.shape[{first}:], weight, bias)",
        "weight and bias of these axes; F.group_norm and F.instance_norm take one of each channel",
        (0.6, 1.5),
    )


def _part_of(row: OperatorRow, of: list[_Shape], normed: dict[_Shape, _Remedy]) -> _Shape:
    """The normalized shape that an operator goes through; an addition of two is a residual's."""
    whole = next((shape for shape in of if shape in normed), ())
    return whole if _is(row, _PARTS) and not (row.name == "aten::add" and of == [whole, whole]) else ()


def _is(row: OperatorRow, names: set[str]) -> bool:
    return not names.isdisjoint((row.name, *row.chain))


def _sides(shape: _Shape) -> list[int]:
    return [n for n in shape if n > 1]
