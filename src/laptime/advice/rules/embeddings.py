"""Tables of embeddings of which a batch reads a few rows, and gradients and updates go through all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import is_matrix_work, shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LEAST_SHARE = 0.05
# Of a table's rows, those that a batch reads; with more of them there is little to leave out.
_MOST_READ = 0.1
# What a dense gradient begins as.
_ZEROS = ("aten::fill_", "aten::zero_", "aten::zeros")
# Of what dense gradients and updates take, what went with sparse ones (docs/log.md).
_SPARSE = (0.75, 1.0)


def dense_embeddings(s: Signals) -> Outcome:
    """Gradients of the rows that were read alone, and an optimizer that updates those alone."""
    if s.device == "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    zeros = {tuple(of) for r in rows if r.region == "backward" and r.name in _ZEROS for of in shapes_of(r)[:1]}
    tables = zeros - _multiplied(rows)
    read = {of: count for of, count in _read(rows).items() if of in tables and count <= _MOST_READ * of[0]}
    dense = [r for r in rows if r.region in ("backward", "optimizer") and read.keys() & {*map(tuple, shapes_of(r)[:1])}]
    spent = sum(r.self_ms for r in dense)
    if not read or spent < _LEAST_SHARE * step:
        return None
    largest = max(read, key=math.prod)
    return Proposal(
        "dense-embeddings",
        "A batch reads few rows of an embedding, and its gradient and its update go through all rows: make gradients "
        "sparse, and take an optimizer that updates the rows that were read alone.",
        (
            f"of {largest[0]:,} rows of {largest[1]} numbers a step reads {read[largest]:,} at most",
            f"operators on all rows of such tables take {ms(spent)} of {ms(step)} ms a step ({percent(spent / step)})",
            "Adagrad, and SGD without momentum and decay, do the same as with dense gradients; SparseAdam leaves the "
            "moments of other rows as they are, which is another training",
        ),
        (_SPARSE[0] * spent, _SPARSE[1] * spent),
        0.6,
        code="nn.Embedding(..., sparse=True) with torch.optim.SparseAdam, Adagrad or SGD for the tables",
        klass="statistical",
        lines=lines_of(*(r.source for r in rows if r.name == "aten::embedding")),
    )


def _read(rows: Iterable[OperatorRow]) -> dict[tuple[int, ...], int]:
    """By shape of a table [rows, numbers], how many of its rows a step reads at most."""
    found: dict[tuple[int, ...], int] = defaultdict(int)
    for row in rows:
        of = shapes_of(row)
        looked_up = "aten::embedding" in (row.name, *row.chain) or row.name == "aten::_embedding_bag"
        if looked_up and len(of) > 1 and len(of[0]) == 2:
            found[of[0][0], of[0][1]] += math.ceil(row.calls) * math.prod(of[1])
    return dict(found)


def _multiplied(rows: Iterable[OperatorRow]) -> set[tuple[int, ...]]:
    """Shapes of what stands in matrix products, as it lies or transposed.

    A language model's head, which may be the table itself, has gradients and updates of all rows; by shapes the two
    can't be told apart.
    """
    found = [tuple(of) for r in rows if is_matrix_work(r) for of in shapes_of(r)]
    return {*found, *(of[::-1] for of in found)}
