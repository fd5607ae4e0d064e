"""Runs what findings propose beside the variant that they are about: predicted gain beside measured.

Each remedy and what it is measured against run over some rounds: on a CPU that holds both by turns, an epoch of one and
then of the other, elsewhere one process after the other, every other round backwards. So slow minutes of a shared
machine hit both sides. All are short: whole warm-up, two counted epochs at most. A remedy that changes what is learnt
and is faster has one whole training after them, where nothing else tells its quality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from laptime.catalogue import DEVICES
from laptime.ladder.climb import ratio_of
from laptime.ladder.counted import short
from laptime.ladder.estimate import process_s
from laptime.ladder.outcome import lacks_training, outcome
from laptime.ladder.pairs import can_take_turns
from laptime.ladder.remedies import Group, Remedy, Rounds, alike, broken, group_of
from laptime.ladder.turn import Turn, in_round
from laptime.records import Advice, Measured
from laptime.variants import Variant

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder

# The fewest rounds from which a bootstrap over processes gives an interval that can be read.
ROUNDS = 3
# Findings of one variant, the first by rank that have something to run, where nobody says how many.
MOST = 3


class Verification:
    """The turns that verify a ladder's advice.

    Args:
        ladder: whose turns they are.
        advice: by the variant that it is about; a variant twice over costs its turns twice.
        most: findings of one variant; None for all.
    """

    def __init__(self, ladder: Ladder, advice: Mapping[str, Advice], most: int | None = MOST) -> None:
        self.ladder = ladder
        self.groups = [group_of(ladder, ladder.variants[name], given, most) for name, given in advice.items()]

    def told(self) -> Iterator[str]:
        """What is to be run and how long it should take, and where nothing is, why."""
        some = [group for group in self.groups if group.remedies]
        if some:
            yield self._expected(some)
        nothing: dict[str, list[str]] = {}
        for group in self.groups:
            if group.code:
                yield (
                    f"Not run, since they are changes of your code, on {group.advised.name}: {', '.join(group.code)}; "
                    "once made, each is measured by the command that stands with the advice."
                )
            if not group.remedies and not group.code:
                nothing.setdefault(next(iter(group.refused.values()), group.verdict), []).append(group.advised.name)
        yield from (f"Nothing to verify on {', '.join(names)}: {why}" for why, names in nothing.items())

    def _expected(self, some: list[Group]) -> str:
        """By what the advised variants took."""
        turns, seconds, few, whole = 0, 0.0, short(self.ladder), self.ladder.record.epochs
        for group in some:
            pairs, alone = self._sides(group)
            turns += ROUNDS * (len(pairs) + len(alone))
            seconds += ROUNDS * 2 * len(pairs) * self._process_s(group, few)
            seconds += ROUNDS * len(alone) * self._process_s(group, min(whole, few))
        trainings = self._untrained()
        seconds += sum(self._process_s(group, whole) for group, _ in trainings)
        more = f" (whole trainings among them: up to {len(trainings)})" if trainings else ""
        what = ", ".join(f"{len(group.remedies)} on {group.advised.name}" for group in some)
        return (
            f"Verifying what advice proposes ({what}): {turns + len(trainings)} turns{more}, "
            f"about {seconds / 60:.1f} minutes."
        )

    def turns(self) -> Iterator[Turn]:
        """Yields the turns; a side that fails runs no further round, for it would fail again."""
        rounds = [(group, place) for group in self.groups if group.remedies for place in range(ROUNDS)]
        for number, (group, place) in enumerate(rounds):
            after = sum(self._turns_a_round(later) for later, _ in rounds[number + 1 :])
            yield from self._round(group, place, after + len(self._untrained()))
        trainings = self._untrained()
        for number, (_, remedy) in enumerate(trainings):
            yield self.ladder.verify(remedy.variant, None, len(trainings) - number)

    def _turns_a_round(self, group: Group) -> int:
        return sum(len(side) for side in self._sides(group))

    def _sides(self, group: Group) -> tuple[list[Remedy], list[Variant]]:
        """The turns of a round: remedies by turns with the advised variant, and what runs by itself."""
        pairs = [r for r in group.remedies if self._paired(group, r)]
        alone = [group.advised, *(r.variant for r in group.remedies if r not in pairs)]
        return pairs, [v for v in alone if not self._earlier(v, group)] if len(alone) > 1 else []

    def _paired(self, group: Group, remedy: Remedy) -> bool:
        return can_take_turns(self.ladder, group.advised, remedy.variant)

    def _earlier(self, variant: Variant, group: Group) -> list[Rounds]:
        """The rounds of the same training in an earlier group; a CPU drifts, so there both sides are neighbours."""
        if DEVICES[variant.device] == "cpu":
            return []
        before = self.groups[: self.groups.index(group)]
        sides = [(g.advised, g.rounds) for g in before if g.remedies]
        sides += [(r.variant, r.rounds) for g in before for r in g.remedies]
        return [rounds for other, rounds in sides if alike(other, variant)]

    def _round(self, group: Group, place: int, after: int) -> Iterator[Turn]:
        """One round of a group, before some more turns: pairs first, and in turn what can't be one of a pair."""
        order = [r for r in in_round([None, *group.remedies], place) if not (r and broken(r.rounds))]
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
            if broken(group.rounds):
                return
            variant, rounds = (remedy.variant, remedy.rounds) if remedy else (group.advised, group.rounds)
            ran = next((r[place] for r in self._earlier(variant, group) if place in r), None)
            if ran is None:
                yield self.ladder.verify(variant, (place, ROUNDS), after + len(alone) - number)
            rounds[place] = ran or self.ladder.verified[-1]

    def _untrained(self) -> list[tuple[Group, Remedy]]:
        """Remedies that are to have a whole training; of those that are the same training one."""
        found: list[tuple[Group, Remedy]] = []
        for group in self.groups:
            for remedy in group.remedies:
                known = any(alike(remedy.variant, other.variant) for _, other in found)
                if not known and lacks_training(self.ladder, group, remedy):
                    found.append((group, remedy))
        return found

    def _process_s(self, group: Group, epochs: int) -> float:
        """Seconds that a process of the advised variant takes; a remedy's is taken to be as long."""
        done = next(
            r for r in self.ladder.runs if r.spec and r.spec.variant == group.advised.name and r.status == "done"
        )
        return process_s(done, epochs)

    def results(self) -> dict[str, dict[str, Measured]]:
        """What has been measured so far, by variant and finding; nothing for a finding whose turns were cut off."""
        found: dict[str, dict[str, Measured]] = {}
        for group in self.groups:
            mine = {name: Measured(error=reason) for name, reason in group.refused.items()}
            for remedy in group.remedies:
                measured = outcome(self.ladder, group, remedy)
                if measured is not None:
                    mine |= {finding.id: measured for finding in remedy.findings}
            found[group.advised.name] = mine
        return found

    def tried(self) -> set[tuple[str, str]]:
        """Variant and id of the findings whose remedy ran, be it to a failure, beside an advised variant that held."""
        return {
            (group.advised.name, finding.id)
            for group in self.groups
            for remedy in group.remedies
            for finding in remedy.findings
            if (remedy.pairs or remedy.rounds) and not broken(group.rounds)
        }
