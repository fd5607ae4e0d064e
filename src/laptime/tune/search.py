"""The search for the fastest variant within a budget: one change after another, each beside the best list so far."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from laptime.compare.quality import rules_of
from laptime.compare.searching import cells
from laptime.durations import in_time
from laptime.errors import UsageError
from laptime.ladder.climb import Both, Climb, standing_of
from laptime.ladder.counted import SHORT, epochs_of
from laptime.ladder.first_round import NOT_TRIED
from laptime.ladder.plan import rung_of
from laptime.ladder.request import check_variant
from laptime.ladder.run import Ladder
from laptime.ladder.seeds import Found
from laptime.ladder.turn import Turn
from laptime.ladder.unchanged import no_change
from laptime.records import Outcome, SearchMove, SearchRecord
from laptime.tune.beside import beside, ratio_between, why_without
from laptime.tune.budget import Budget
from laptime.tune.foresight import too_short
from laptime.tune.moves import Around, Move, moves_from
from laptime.tune.opened import Best, Open
from laptime.tune.order import Order, close_ones
from laptime.tune.overrun import Overrun
from laptime.tune.quality import Budgeted, can_judge, is_faster, learning_alike
from laptime.tune.verdict import CLEAR, GIVEN_UP, LEAST, MOST, verdict
from laptime.variants import TUNED, Variant, baseline_of


class Search:
    """The first round of a ladder that is led by a search: baseline, where the search begins, what it finds.

    It begins with the optimized list of the catalogue, as far as this machine and workload have use for it. Each move
    is measured beside the best so far by pairs of processes, on a CPU by turns: a first pair says in which order, the
    next ones whether it is shown to be faster, and a whole training whether what is learnt is not worse, where it
    changes that. It ends where no move is left, or where the budget has no time for another beside the comparison that
    follows.

    Args:
        ladder: whose first round it is.
        warned: whether it has been said that its budget is too small.
    """

    def __init__(self, ladder: Ladder, warned: bool = False) -> None:
        self.ladder = ladder
        device = ladder.plan.device
        self.base = baseline_of(device)
        self.name = f"{device}-{TUNED}"
        self.budget = Budget(ladder)
        self.overrun = Overrun(ladder, self.budget, warned)
        self.trainings = Budgeted(ladder, self.base, self.budget)
        self.best = Best((), self.base)
        self.start = self.base
        self.tried: set[str] = set()
        self.first: dict[str, float] = {}
        self.checked: set[str] = set()
        self.epochs = SHORT
        self.moves = 0  # that are open

    def turns(self) -> Iterator[Turn]:
        """Yields the turns."""
        ladder = self.ladder
        assert ladder.request.budget is not None
        self._note(SearchRecord(budget_s=ladder.request.budget))
        yield ladder.enter(self.base, rung_of(self.base, on=None))
        self.budget.took_s[self.base.name] = ladder.record.turns_s[0]
        if ladder.runs[-1].status != "done":
            ladder.leave_out(self.name, NOT_TRIED)
            self._note(self._record.model_copy(update={"ended": NOT_TRIED}))
            return
        self.overrun.after_baseline(self.base)
        yield from self._begin()
        yield from self._passes()
        yield from self._end()

    @property
    def _record(self) -> SearchRecord:
        found = self.ladder.record.search
        assert found is not None
        return found

    def _note(self, record: SearchRecord) -> None:
        self.ladder.record = self.ladder.record.model_copy(update={"search": record})

    def _begin(self) -> Iterator[Turn]:
        """The optimized list of the catalogue, without what changes what is learnt where that makes it worse.

        The baseline where neither is faster and as good.
        """
        ladder = self.ladder
        if ladder.plan.adaptive:
            baseline = standing_of(self.base, ladder.runs, ladder.record.quality)
            (whole, rung), *_ = Climb(ladder.plan, baseline, rules_of(ladder.record, ladder.runs)).optimized()
            yield ladder.enter(whole, rung)
            yield from self._begin_with(whole)
            rest = learning_alike(whole)
            if (
                self.start is self.base
                and ladder.runs[-1].status == "done"
                and rest.optimizations
                and rest.name != whole.name
            ):
                self.overrun.second_list(rest, whole)
                yield ladder.enter(rest, rung_of(rest, on=None))
                yield from self._begin_with(rest)
        self._note(self._record.model_copy(update={"start": self.start.name, "spent_s": self.budget.spent_s()}))
        first = next(r for r in ladder.runs if r.spec and r.spec.variant == self.start.name)
        self.epochs = epochs_of(first)
        self.budget.settle(first, self.epochs)

    def _begin_with(self, variant: Variant) -> Iterator[Turn]:
        """Begins with a variant whose first process has just ended, where that is better than the baseline's."""
        first = self.ladder.runs[-1]
        self.budget.took_s[variant.name] = self.ladder.record.turns_s[self.ladder.number - 1]
        if not is_faster(self.ladder, first):
            return
        self.budget.settle(first, epochs_of(first))
        known = self.ladder.variants[variant.name]
        good, said = yield from self.trainings.begins(known, first)
        told = "; ".join(filter(None, (self._record.start_quality, said)))
        self._note(self._record.model_copy(update={"start_quality": told}))
        if good:
            self.best, self.start = Best(variant.optimizations, known), variant

    def _passes(self) -> Iterator[Turn]:
        """A first pair of each move, then more of what seems best; what came close once more where the list changed."""
        order = Order(self.ladder, self.start.name)
        while True:
            moves = self._open(order)
            if not moves and (close := close_ones(self._record.moves)):
                self.tried -= close
                moves = self._open(order)
            if not moves:
                self._stop("no change was left to try", moves)
                return
            step = self._next(moves)
            if step is None:
                self._stop(self._spent(), moves)
                return
            yield from step

    def _next(self, moves: list[Open]) -> Iterator[Turn] | None:
        """More pairs of what seems best, or the first of another; None where there is time for neither.

        What has had a first pair is decided on at last with as few as may decide: else the rest would bring nothing.
        """
        holds = self.budget.holds
        fresh = next((m for m in moves if m.told.first is None), None)
        known = (m for m in moves if m.told.first is not None and holds(m.least))
        best = min(known, key=lambda m: m.first, default=None)
        looks = fresh is not None and holds(LEAST + 1)
        if best is not None and (not looks or best.first < CLEAR):
            return self._try(best)
        return self._look(fresh) if looks and fresh is not None else None

    def _open(self, order: Order) -> list[Open]:
        around = self._around()
        moves = order.ordered(moves_from(self.best.chosen, around), self.best.chosen, around)
        able = [(move, predicted) for move, predicted in moves if move.text not in self.tried and self._able(move)]
        unjudged = tuple(move.text for move, _ in able if not self._judged(move))
        self._note(self._record.model_copy(update={"unjudged": unjudged}))
        self.moves = len(able) - len(unjudged)
        return [
            Open(move, SearchMove(change=move.text, klass=move.klass, predicted=gain, first=self.first.get(move.text)))
            for move, gain in able
            if self._judged(move)
        ]

    def _around(self) -> Around:
        ladder, record = self.ladder, self.ladder.record
        samples = min(record.limit_train or record.data.train_count, record.data.train_count)
        first = ladder.runs[0].spec
        assert first is not None
        cores = record.probe.machine.cores
        return Around(ladder.plan, cores, samples, first.batch_size, first.workload)

    def _judged(self, move: Move) -> bool:
        """Whether it changes nothing that is learnt, or that can be judged."""
        return move.learns_alike or move.back or can_judge(self.ladder)

    def _able(self, move: Move) -> bool:
        """Whether it fits this machine, and is not the baseline."""
        try:
            check_variant(self.ladder.request, self._candidate(move), self.ladder.record.data)
        except UsageError:
            return False
        return bool(move.after)  # the baseline has been measured

    def _candidate(self, move: Move) -> Variant:
        text = move.text if move.text[0] in "+-" else f"+{move.text}"
        return Variant(f"{self.name}{text}", self.base.device, move.after)

    def _look(self, one: Open) -> Iterator[Turn]:
        """The first pair of a move."""
        first, second = yield from self._pair(self._candidate(one.move), one.move, 0)
        ratio = ratio_between(first, second)
        if ratio is None:
            self._told(one.told.model_copy(update={"reason": why_without(first, second)}))
            return
        self.first[one.move.text] = ratio
        same = no_change(first, second, self.ladder.runs[0])
        if same or ratio > GIVEN_UP:
            self._told(one.told.model_copy(update={"first": ratio, "outcome": "not faster", "reason": same}))

    def _try(self, one: Open) -> Iterator[Turn]:
        """Measures a move by pairs after its first, says what came of it, and goes on from what is faster."""
        move, told, candidate = one.move, one.told, self._candidate(one.move)
        outcome: Outcome | None = None
        while outcome is None:
            first, second = yield from self._pair(candidate, move, len(told.ratios))
            ratio = ratio_between(first, second)
            if ratio is None:
                outcome, told = "failed", told.model_copy(update={"reason": why_without(first, second)})
                break
            update = {"ratios": (*told.ratios, ratio), "by_turns": second.beside is not None}
            told = told.model_copy(update=update)
            candidate = replace(candidate, optimizations=second.settled or candidate.optimizations)
            outcome = verdict(told.ratios)
            if outcome is None and not self.budget.holds(1):
                outcome, told = "not shown", told.model_copy(update={"reason": "no time for more pairs"})
        if outcome == "faster" and can_judge(self.ladder) and not move.learns_alike:
            found: Found = yield from self.trainings.of(candidate)
            outcome, told = found.outcome, told.model_copy(update={"reason": found.said})
        self._told(told.model_copy(update={"outcome": outcome}))
        if outcome == "faster":
            self.best = Best(move.after, replace(candidate, name=self.name))
            self.tried.update(move.reverse)

    def _pair(self, candidate: Variant, move: Move, repeat: int) -> Generator[Turn, None, Both]:
        """A pair, as the move's first where its list has had none: that is checked against the baseline."""
        written, begun = "+".join(o.text() for o in move.after), self.ladder.number
        place = (repeat + (written in self.checked), self.budget.turns_left(self.moves))
        self.checked.add(written)
        both = yield from beside(self.ladder, (self.best.variant, candidate), place, self.epochs)
        self.budget.paired(begun)
        return both

    def _told(self, move: SearchMove) -> None:
        self.tried.add(move.change)
        told = {"moves": (*self._record.moves, move), "spent_s": self.budget.spent_s()}
        self._note(self._record.model_copy(update=told))
        self.ladder.say("  " + ", ".join(filter(None, cells(move))))

    def _spent(self) -> str:
        if self.first or self._record.moves:
            return "the rest of the budget is for what follows"
        why = too_short(self.ladder.request.budget or 0.0, f"what follows takes about {in_time(self.budget.after_s())}")
        self.overrun.tell(f"{why}.")
        return why

    def _stop(self, why: str, left: list[Open]) -> None:
        for one in left:
            if one.told.first is not None:
                reason = "no time for more than a first pair"
                self._told(one.told.model_copy(update={"outcome": "not shown", "reason": reason}))
        untried = tuple(one.move.text for one in left if one.told.first is None)
        self._note(self._record.model_copy(update={"ended": why, "untried": untried}))

    def _end(self) -> Iterator[Turn]:
        """What was found takes its place in the ladder, and is measured beside where the search began once more."""
        record = self._record
        kept = [move.change for move in record.moves if move.adopted]
        if kept:
            yield from self._entered(kept)
        self._note(self._record.model_copy(update={"spent_s": self.budget.spent_s()}))

    def _entered(self, kept: list[str]) -> Iterator[Turn]:
        ladder = self.ladder
        found = replace(self.best.variant, name=self.name)
        reason = f"found by a search that began with {self.start.name}: {', '.join(kept)}"
        self._note(self._record.model_copy(update={"variant": self.name}))
        rung = rung_of(found, on=self.start.name).model_copy(update={"reason": reason})
        yield ladder.enter(found, rung)
        if ladder.runs[-1].status != "done":
            return
        # Without what this machine chose by timing: another chooses for itself.
        written = "+".join([self.base.name, *(o.text() for o in self.best.chosen)])
        self._note(self._record.model_copy(update={"list": written}))
        start = ladder.variants[self.start.name]
        for repeat in range(MOST):
            place = (repeat, MOST - repeat - 1 + len(ladder.variants) * (ladder.preset.repeats - 1))
            first, second = yield from beside(ladder, (start, ladder.variants[self.name]), place, self.epochs)
            ratio = ratio_between(first, second)
            if ratio is not None:
                confirmed = (*self._record.confirmed, ratio)
                self._note(self._record.model_copy(update={"confirmed": confirmed}))
