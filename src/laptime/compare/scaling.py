"""What several ranks are worth: their throughput over that of one, by rank."""

from __future__ import annotations

from collections.abc import Sequence

from laptime.catalogue import OPTIMIZATIONS, find_optimization, options_of, parse_optimization
from laptime.compare.model import Scaling, VariantRow
from laptime.compare.rows import Runs
from laptime.errors import LaptimeError
from laptime.spec import OptimizationSpec

_TIMED = {("products", "layers"), ("workers", "count")}
_PARALLEL = {o.name for o in OPTIMIZATIONS if o.stage == "parallel"}


def scalings(runs: dict[str, Runs], rows: Sequence[VariantRow]) -> tuple[Scaling, ...]:
    """The scaling of each variant on several ranks that has a time; none where every variant has one rank.

    The reference is the same list of optimizations on one rank, else the fastest variant on one rank.
    """
    ranks = {name: max((r.ranks for r in found.done), default=1) for name, found in runs.items()}
    one = [r for r in rows if ranks.get(r.variant, 1) == 1 and r.samples_per_s]
    several = [r for r in rows if ranks.get(r.variant, 1) > 1 and r.samples_per_s]
    fastest = max(one, key=lambda r: r.samples_per_s or 0.0, default=None)
    found = []
    for row in several:
        same = next((r for r in one if _alone(runs[r.variant]) == _alone(runs[row.variant])), None)
        against = same or fastest
        if against is not None:
            found.append(_scaling(row, ranks[row.variant], against, same is not None))
    return tuple(found)


def _scaling(row: VariantRow, ranks: int, against: VariantRow, same: bool) -> Scaling:
    gain = (row.samples_per_s or 0.0) / (against.samples_per_s or 1.0)
    return Scaling(
        variant=row.variant,
        ranks=ranks,
        kind="weak" if any(o.get("scaling") == "weak" for o in _options(row)) else "strong",
        samples_per_s=row.samples_per_s or 0.0,
        against=against.variant,
        same_list=same,
        gain=gain,
        efficiency=gain / ranks,
    )


def _alone(runs: Runs) -> frozenset[str]:
    """The optimizations without the exchange, each with all its options.

    As the runs settled them: a rung stands as it was before its run, the variants on several ranks take what it left.
    """
    settled = next((r.settled for r in runs.done if r.settled), runs.rung.optimizations)
    return frozenset(_whole(o.text()) for o in settled if o.name not in _PARALLEL)


def _whole(text: str) -> str:
    """An optimization with its defaults written out; of another version of the catalogue as it stands."""
    try:
        spec = parse_optimization(text)
    except LaptimeError:
        return text
    # What a timing chose differs from run to run and is no other list.
    chosen = {k: v for k, v in options_of(spec).items() if (spec.name, k) not in _TIMED}
    return OptimizationSpec(name=spec.name, options=chosen).text()


def _options(row: VariantRow) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for text in row.optimizations:
        name = text.partition(":")[0]
        if name in _PARALLEL and any(o.name == "scaling" for o in find_optimization(name).options):
            found.append(dict(options_of(parse_optimization(text))))
    return found
