"""Runs what findings propose beside the variant that they are about: predicted gain beside measured.

Each remedy and what it is measured against run over some rounds: on a CPU that holds both by turns, an epoch of one and
then of the other, elsewhere one process after the other, every other round backwards. So slow minutes of a shared
machine hit both sides. All are short: whole warm-up, two counted epochs at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laptime.catalogue import DEVICES, combine, parse_optimization
from laptime.compare.quality import judge, rules_of, scores_of
from laptime.compare.statistics import Bootstrap, Laps, epoch_seconds, mean_ratio, median
from laptime.devices import choose_device
from laptime.errors import UsageError
from laptime.ladder.climb import Both, ratio_of
from laptime.ladder.pairs import can_take_turns
from laptime.ladder.request import check_variant
from laptime.records import Advice, Finding, Measured, RunRecord
from laptime.variants import Variant, resolve

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

# The fewest rounds from which a bootstrap over processes gives an interval that can be read.
ROUNDS = 3
# Findings of one variant, the first by rank that have something to run.
MOST = 3

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


@dataclass
class Group:
    """A variant that is advised on, beside its remedies.

    Attributes:
        refused: why a finding's remedy can't be run here, by the finding's id.
    """

    advised: Variant
    remedies: list[Remedy] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    rounds: Rounds = field(default_factory=dict)


class Verification:
    """The turns that verify a ladder's advice.

    Args:
        ladder: whose turns they are.
        advice: by the variant that it is about; a variant twice over costs its turns twice.
    """

    def __init__(self, ladder: Ladder, advice: Mapping[str, Advice]) -> None:
        self.ladder = ladder
        self.groups = [self._group(ladder.variants[name], given) for name, given in advice.items()]

    def turns(self) -> Iterator[Turn]:
        """Yields the turns; a side that fails runs no further round, for it would fail again."""
        rounds = [(group, place) for group in self.groups if group.remedies for place in range(ROUNDS)]
        for number, (group, place) in enumerate(rounds):
            after = sum(self._turns_a_round(later) for later, _ in rounds[number + 1 :])
            yield from self._round(group, place, after)

    def _turns_a_round(self, group: Group) -> int:
        """A turn for each remedy, and one for the advised variant where a remedy does not train beside it."""
        paired = [self._paired(group, remedy) for remedy in group.remedies]
        return len(paired) + (not all(paired))

    def _paired(self, group: Group, remedy: Remedy) -> bool:
        return can_take_turns(self.ladder, group.advised, remedy.variant)

    def _round(self, group: Group, place: int, after: int) -> Iterator[Turn]:
        """One round of a group, before some more turns: pairs first, and in turn what can't be one of a pair."""
        order = [r for r in _in_turn(group, place) if not (r and _broken(r.rounds))]
        left = after + self._turns_a_round(group) + 1
        for remedy in order:
            if remedy and self._paired(group, remedy):
                left -= 1
                yield self.ladder.verify(remedy.variant, (place, ROUNDS), left, beside=group.advised)
                advised, found = self.ladder.verified[-2:]
                if ratio_of((advised, found)) is not None:
                    remedy.pairs.append((advised, found))
        alone = [r for r in order if r is None or len(r.pairs) <= place]
        if alone == [None]:
            return
        for number, remedy in enumerate(alone):
            if _broken(group.rounds):
                return
            yield self.ladder.verify(
                remedy.variant if remedy else group.advised, (place, ROUNDS), after + len(alone) - number
            )
            (remedy or group).rounds[place] = self.ladder.verified[-1]

    def results(self) -> dict[str, dict[str, Measured]]:
        """What has been measured so far, by variant and finding; nothing for a finding whose turns were cut off."""
        found: dict[str, dict[str, Measured]] = {}
        for group in self.groups:
            mine = {name: Measured(error=reason) for name, reason in group.refused.items()}
            for remedy in group.remedies:
                for finding in remedy.findings:
                    measured = self._measured(group, remedy, finding)
                    if measured is not None:
                        mine[finding.id] = measured
            found[group.advised.name] = mine
        return found

    def tried(self) -> set[tuple[str, str]]:
        """Variant and id of the findings whose remedy ran, be it to a failure, beside an advised variant that held."""
        return {
            (group.advised.name, finding.id)
            for group in self.groups
            for remedy in group.remedies
            for finding in remedy.findings
            if (remedy.pairs or remedy.rounds) and not _broken(group.rounds)
        }

    def _group(self, advised: Variant, advice: Advice) -> Group:
        group = Group(advised)
        for finding in [f for f in advice.findings if f.variant][:MOST]:
            try:
                variant = self._variant(finding, advised)
            except UsageError as error:
                group.refused[finding.id] = f"it can't be run here: {error}"
                continue
            same = next((r for r in group.remedies if r.variant.optimizations == variant.optimizations), None)
            if same is None:
                group.remedies.append(Remedy(variant, [finding]))
            else:
                same.findings.append(finding)
        return group

    def _variant(self, finding: Finding, advised: Variant) -> Variant:
        """What a finding proposes: on the ladder's own list where it builds on a variant of the ladder.

        Raises:
            UsageError: no such variant, this machine can't hold it, or it is what ran already.
        """
        base, *added = finding.variant.split("+")
        known = self.ladder.variants.get(base)
        written_out = base.endswith("-baseline") and len(added) > 1
        if written_out and _names(resolve("+".join([base, *added[:-1]]))) == _names(advised):
            # In that form the advised variant has lost what its first process chose by timing.
            known, added = advised, added[-1:]
        if known is None:
            variant = resolve(finding.variant, self.ladder.plan.refused, self.ladder.request.workload)
        else:
            chosen = combine(known.optimizations, *map(parse_optimization, added))
            variant = Variant(finding.variant, known.device, chosen)
        choose_device(DEVICES[variant.device])
        check_variant(self.ladder.request, variant, self.ladder.record.data)
        if variant.device == advised.device and variant.optimizations == advised.optimizations:
            raise UsageError(f"{variant.name} is what {advised.name} stands for already.")
        return variant

    def _measured(self, group: Group, remedy: Remedy, finding: Finding) -> Measured | None:
        if remedy.pairs:
            return self._by_turns(remedy.pairs).model_copy(
                update={"quality_kept": self._quality_kept(remedy.pairs, finding)}
            )
        for name, side in ((group.advised.name, group.rounds), (remedy.variant.name, remedy.rounds)):
            broken = _broken(side)
            if broken is not None:
                return Measured(error=f"{name} {broken.status}: {broken.error}")
        pairs = {r: (group.rounds[r], remedy.rounds[r]) for r in sorted(group.rounds.keys() & remedy.rounds.keys())}
        timed = {r: pair for r, pair in pairs.items() if all(record.laps for record in pair)}
        if not timed:
            return Measured(error="no epoch was kept, since each of them compiled anew") if pairs else None
        return self._gain(timed).model_copy(update={"quality_kept": self._quality_kept(list(pairs.values()), finding)})

    def _by_turns(self, pairs: Sequence[Both]) -> Measured:
        """What the remedy brings by the ratios of epochs in turn."""
        ratio = mean_ratio([ratio for pair in pairs if (ratio := ratio_of(pair)) is not None])
        before = median([lap for advised, _ in pairs for lap in advised.laps])
        steps = pairs[0][0].epochs[0].steps
        return Measured(
            step_ms=before * ratio.point / steps * 1000 if steps else None,
            step_ms_before=before / steps * 1000 if steps else None,
            gain=1 - ratio.point,
            gain_low=None if ratio.high is None else 1 - ratio.high,
            gain_high=None if ratio.low is None else 1 - ratio.low,
            n=ratio.n,
        )

    def _gain(self, timed: Mapping[int, tuple[RunRecord, RunRecord]]) -> Measured:
        """What epochs of the same samples took on both sides, by the rounds that both came through."""
        before, after = (
            Laps(name, tuple(timed), tuple(pair[side].laps for pair in timed.values()))
            for side, name in enumerate(("advised", "remedy"))
        )
        ratio = Bootstrap(seed=self.ladder.record.seed).ratio(before, after)
        # Both by the advised variant's steps: a remedy may have another batch.
        steps = next(iter(timed.values()))[0].epochs[0].steps
        return Measured(
            step_ms=epoch_seconds(after) / steps * 1000 if steps else None,
            step_ms_before=epoch_seconds(before) / steps * 1000 if steps else None,
            gain=1 - 1 / ratio.point,
            gain_low=None if ratio.low is None else 1 - 1 / ratio.low,
            gain_high=None if ratio.high is None else 1 - 1 / ratio.high,
            n=ratio.n,
        )

    def _quality_kept(self, pairs: Sequence[tuple[RunRecord, RunRecord]], finding: Finding) -> bool | None:
        """By the comparison's rule; a remedy that changes what is learnt is judged only after a whole training."""
        ladder = self.ladder.record
        short = any(len(record.epochs) < ladder.epochs for pair in pairs for record in pair)
        if short and finding.klass not in ("exact", "numeric"):
            return None
        before, after = (scores_of([pair[side] for pair in pairs], ladder.quality) for side in (0, 1))
        verdict = judge(before, after, rules_of(ladder)).verdict
        return {"kept": True, "better": True, "worse": False}.get(verdict)


def _names(variant: Variant) -> tuple[str, list[str]]:
    return variant.device, [o.name for o in variant.optimizations]


def _in_turn(group: Group, place: int) -> list[Remedy | None]:
    """One round: the advised variant (None) and its remedies, every other round from the end."""
    order: list[Remedy | None] = [None, *group.remedies]
    return order if place % 2 == 0 else order[::-1]


def _broken(rounds: Rounds) -> RunRecord | None:
    return next((r for r in rounds.values() if r.status != "done"), None)
