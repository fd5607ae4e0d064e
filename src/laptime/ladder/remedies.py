"""What findings propose, as variants that this machine can run beside the one that is advised on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laptime.catalogue import DEVICES, combine, parse_optimization
from laptime.devices import choose_device
from laptime.errors import UsageError
from laptime.ladder.climb import Both
from laptime.ladder.request import check_variant
from laptime.records import Advice, Finding, RunRecord
from laptime.variants import Variant, resolve

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder

# A round's records by number.
Rounds = dict[int, RunRecord]


@dataclass
class Remedy:
    """A remedy, the findings that propose it, and what its rounds produced.

    Attributes:
        rounds: of processes one after the other.
        pairs: the advised variant and the remedy, of rounds by turns.
    """

    variant: Variant
    findings: list[Finding]
    rounds: Rounds = field(default_factory=dict)
    pairs: list[Both] = field(default_factory=list)

    @property
    def learns_alike(self) -> bool:
        """Whether it leaves alone what is learnt, so that a few epochs tell its quality."""
        return all(finding.klass in ("exact", "numeric") for finding in self.findings)


@dataclass
class Group:
    """A variant that is advised on, beside its remedies.

    Attributes:
        verdict: the headline of its advice.
        refused: why a finding's remedy can't be run here, by the finding's id.
        code: findings whose remedy is a change of the user's code, by their ids.
    """

    advised: Variant
    verdict: str = ""
    remedies: list[Remedy] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    rounds: Rounds = field(default_factory=dict)


def group_of(ladder: Ladder, advised: Variant, advice: Advice, most: int | None) -> Group:
    """A variant with the remedies of its first findings that have something to run; of all where `most` is None."""
    group = Group(advised, advice.verdict, code=tuple(f.id for f in advice.findings if f.measured_by))
    for finding in [f for f in advice.findings if f.variant][:most]:
        try:
            variant = _variant(ladder, finding, advised)
        except UsageError as error:
            group.refused[finding.id] = f"it can't be run here: {error}"
            continue
        same = next((r for r in group.remedies if alike(r.variant, variant)), None)
        if same is None:
            group.remedies.append(Remedy(variant, [finding]))
        else:
            same.findings.append(finding)
    return group


def broken(rounds: Rounds) -> RunRecord | None:
    """The first record that is not done."""
    return next((r for r in rounds.values() if r.status != "done"), None)


def alike(one: Variant, other: Variant) -> bool:
    """Whether two variants are the same training, whatever they are called."""
    return one.device == other.device and one.optimizations == other.optimizations


def _variant(ladder: Ladder, finding: Finding, advised: Variant) -> Variant:
    """What a finding proposes: on the ladder's own list where it builds on a variant of the ladder.

    Raises:
        UsageError: no such variant, this machine can't hold it, or it is what ran already.
    """
    base, *added = finding.variant.split("+")
    known = ladder.variants.get(base)
    written_out = base.endswith("-baseline") and len(added) > 1
    if written_out and _names(resolve("+".join([base, *added[:-1]]))) == _names(advised):
        # In that form the advised variant has lost what its first process chose by timing.
        known, added = advised, added[-1:]
    if known is None:
        variant = resolve(finding.variant, ladder.plan.refused, ladder.request.workload)
    else:
        chosen = combine(known.optimizations, *map(parse_optimization, added))
        variant = Variant(finding.variant, known.device, chosen)
    choose_device(DEVICES[variant.device])
    check_variant(ladder.request, variant, ladder.record.data)
    if alike(variant, advised):
        raise UsageError(f"{variant.name} is what {advised.name} stands for already.")
    return variant


def _names(variant: Variant) -> tuple[str, list[str]]:
    return variant.device, [o.name for o in variant.optimizations]
