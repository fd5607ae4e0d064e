"""A ladder on its way: plan, run variant by variant, compare, publish. What the command line and the flows share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from laptime.compare.comparison import compare
from laptime.compare.model import Comparison
from laptime.compare.write import write_comparison
from laptime.ladder.advising import Counsel, mine_of
from laptime.ladder.counted import are_open
from laptime.ladder.ending import ended_in_journal, sent
from laptime.ladder.first_round import first_round, what_failed
from laptime.ladder.pairs import left_open, run_pair
from laptime.ladder.plan import Plan
from laptime.ladder.process import Process, process_of, set_aside
from laptime.ladder.request import LadderRequest, claim_out, fitted_preset, tracking_uri
from laptime.ladder.turn import Kind, Turn, in_round
from laptime.launchers import launch
from laptime.launchers.base import RECORD, Hooks, failed, ignore
from laptime.places import Places
from laptime.records import Dropped, LadderRecord, LeftOut, Rung, RunRecord, write_json
from laptime.tracking import Journal
from laptime.tracking.courier import Courier
from laptime.tracking.publish import ladder_started, variant_retracted
from laptime.tracking.sync import target_of
from laptime.tracking.tries import process_told
from laptime.variants import Variant

Say = Callable[[str], None]
Ending = Literal["done", "failed", "interrupted"]


class Ladder:
    """A ladder that is being run; its state stands in `folder/ladder.json` after each turn.

    Attributes:
        before: of a ladder that is gone on with, the turns that had ended at its earlier start: they are made again
            from their records, so that all decisions come out as they were. None for a new one.
        finished: number of the last turn that ended well, whatever its process did; it stays behind where the ladder
            itself has failed.
        no_turns: whether two processes have failed to take turns, so that no two are asked to any more.
        courier: sends the journal between processes; None where only the end sends it.
        lead: what the first round is made of, up to the variants that later rounds repeat.
        clock: seconds, by which it notes what its turns took.
    """

    def __init__(self, request: LadderRequest, record: LadderRecord, plan: Plan, places: Places) -> None:
        self.request, self.record, self.plan, self.places = request, record, plan, places
        self.folder = Path(request.out).resolve() if request.out else places.runs / record.id
        self.preset = fitted_preset(request, record.data)
        self.variants: dict[str, Variant] = {}
        self.runs: list[RunRecord] = []
        self.trials: list[RunRecord] = []
        self.verified: list[RunRecord] = []
        self.number = self.finished = 0
        self.no_turns = False
        self.before: int | None = None
        self.courier: Courier | None = None
        self.lead: Callable[[Ladder], Iterator[Turn]] = first_round
        self.clock: Callable[[], float] = time.monotonic
        self._told: list[RunRecord] = []
        self._trying: tuple[Variant, ...] = ()
        self.journal: Journal | None = None
        self.comparison: Comparison | None = None
        self.files: dict[str, Path] = {}
        self.say: Say = ignore
        self.counsel = Counsel(self)

    def start(self, journal: Journal | None = None) -> None:
        """Makes the folder and the journal, or goes on with one that is held already."""
        if self.before is None:
            claim_out(self.folder, self.record)
        os.environ["LAPTIME_COMMIT"] = self.record.commit or ""  # for the records that workers write
        self._save()
        target = target_of(tracking_uri(self.request, self.places), self.places)
        self.journal = journal or Journal(self.places.journal / f"{self.record.id}.jsonl", target)
        ladder_started(self.journal, self.record, self.folder, settled=not are_open(self.request))

    def turns(self) -> Iterator[Turn]:
        """Yields what to run next, one at a time; `run` must have been called before the next is asked for."""
        self.deliver()  # takes seconds, in which whoever interrupts interrupts a ladder
        yield from self.lead(self)
        waiting = [(r, name) for r in range(1, self.preset.repeats) for name in in_round(self.variants, r)]
        total = self.number + len(waiting)
        for repeat, name in waiting:
            if not self._failed(name):
                yield self._turn(name, repeat, total)
        yield from left_open(self)
        yield from self.counsel.turns()

    def enter(self, variant: Variant, rung: Rung) -> Turn:
        """Takes a variant into the ladder; its first turn."""
        self.variants[variant.name] = variant
        rungs = list(self.record.rungs)
        # Run again after its parts, it still stands before them.
        parts = [i for i, r in enumerate(rungs) if r.variant.startswith(f"{variant.name}-without-")]
        rungs.insert(min(parts, default=len(rungs)), rung)
        self.record = self.record.model_copy(update={"rungs": tuple(rungs)})
        return self._turn(variant.name, 0, self._planned)

    @property
    def _planned(self) -> int:
        """Turns as far as they can be told: after the rungs come the optimized variant, and one without a part."""
        known = len(self.plan.fixed) + len(self.plan.rungs) + self.plan.adaptive + bool(self.plan.rungs)
        return max(len(self.variants), known) * self.preset.repeats + len(self.trials)

    def trial(self, variant: Variant) -> Turn:
        """One more process of a variant, to decide what joins."""
        self._trying = (self._known(variant),)
        return self._turn(variant.name, 0, self._planned + 1, "trial")

    def pair(self, best: Variant, variant: Variant, left: int | None = None, epochs: int = 0) -> Turn:
        """One process each of a variant and the best, by turns; after the rounds `left` pairs are still to come."""
        self._trying = (self._known(best), self._known(variant))
        total = self._planned + 1 if left is None else self.number + left
        return replace(self._turn(variant.name, 0, total, "trial"), beside=best.name, epochs=epochs)

    def _known(self, variant: Variant) -> Variant:
        """A variant with what its first process chose by timing."""
        known = self.variants.get(variant.name, variant)
        same = {o.name for o in known.optimizations} == {o.name for o in variant.optimizations}
        return known if same else variant

    def search(self, variant: Variant, place: tuple[int, int], epochs: int, beside: Variant | None = None) -> Turn:
        """One process that tells what a change of a search brings, or a pair of them.

        Args:
            variant: with the change.
            place: how many its pairs were before this one, and about how many turns are still to come.
            epochs: that are counted.
            beside: what it is measured against, in the same turn.
        """
        self._trying = (beside, variant) if beside else (variant,)
        self.number += 1
        (repeat, left), name = place, beside.name if beside else ""
        total = self.number + left
        return Turn(variant.name, repeat, self.number, total, self.preset.repeats, "search", name, epochs)

    def verify(self, variant: Variant, place: tuple[int, int] | None, left: int, beside: Variant | None = None) -> Turn:
        """One process that tells what a finding's remedy brings, or a pair of them.

        Args:
            variant: the remedy, or what it is measured against.
            place: the round, from 0, and how many there are; None for a whole training.
            left: turns of this kind that are still to come, this one with them.
            beside: what it is measured against, in the same turn.
        """
        self._trying = (beside, variant) if beside else (variant,)
        self.number += 1
        (repeat, repeats), name = place or (0, 1), beside.name if beside else ""
        kind: Kind = "verify" if place else "training"
        return Turn(variant.name, repeat, self.number, self.number + left - 1, repeats, kind, name)

    def _turn(self, name: str, repeat: int, total: int, kind: Kind = "round") -> Turn:
        self.number += 1
        return Turn(name, repeat, self.number, max(self.number, total), self.preset.repeats, kind)

    def run(self, turn: Turn, hooks: Hooks) -> RunRecord:
        """Runs one turn to its record, whatever becomes of it; of a pair to both, and gives the second's."""
        begun = self.clock()
        record = run_pair(self, turn, self._trying, hooks) if turn.beside else self._run_one(turn, hooks)
        took = self.record.turns_s
        if len(took) < turn.number:  # of one that is taken from its record it stands there already
            took = (*took, self.clock() - begun)
        ended = max(self.record.turns, turn.number)
        self.record = self.record.model_copy(update={"turns": ended, "turns_s": took})
        self._save()
        self.deliver()
        self.finished = turn.number
        return record

    def _run_one(self, turn: Turn, hooks: Hooks) -> RunRecord:
        aside = turn.kind != "round"
        variant = self._trying[0] if aside and self._trying else self.variants[turn.variant]
        process = process_of(self, turn, variant)
        records = self.records_of(turn)
        left = None if self.before is None else process.left_before(self.before)
        if left is not None:
            hooks.say(f"{turn}: taken from its record.")
        record = left or self._launched(process, records, hooks)
        process.clear()
        records.append(record)
        if not aside:
            self._settle(record)
            if left is None or turn.number > (self.before or 0):
                self._tell(record)
            self._told.append(record)
        return record

    def records_of(self, turn: Turn) -> list[RunRecord]:
        """Where the records of a turn of this kind are kept, the latest last."""
        return {"round": self.runs, "trial": self.trials, "search": self.trials}.get(turn.kind, self.verified)

    def deliver(self) -> None:
        """Sends what the journal holds, where the store answers at once; nothing is timed meanwhile."""
        if self.courier is not None:
            self.courier.deliver()

    def _tell(self, record: RunRecord) -> None:
        """Puts a process into the journal as soon as it has ended: whatever ends the ladder, that is not lost."""
        if self.journal is not None and record.spec is not None:
            mine = mine_of(self.runs, record.spec.variant)
            self.record = process_told(self.journal, self.record, mine, self.folder, self.before is not None)

    def _launched(self, process: Process, records: list[RunRecord], hooks: Hooks) -> RunRecord:
        begin = time.time()
        try:
            return launch(self.request.launcher, process.spec, process.folder, hooks)
        except BaseException:
            records.append(failed(process.spec, "interrupted").model_copy(update={"started_at": begin}))
            write_json(process.folder / RECORD, records[-1])
            raise

    def leave_out(self, variant: str, reason: str) -> None:
        """Notes a rung that is not run after all."""
        left = (*self.record.left_out, LeftOut(variant=variant, reason=reason))
        self.record = self.record.model_copy(update={"left_out": left})
        self._save()

    def drop(self, dropped: Dropped) -> None:
        """Notes a part that leaves the optimized variant; what the others are worth without it is not known then."""
        self.record = self.record.model_copy(update={"dropped": (*self.record.dropped, dropped), "worths": {}})

    def retract(self, name: str) -> None:
        """Takes a variant back that the first round has changed or made needless; what it ran becomes a trial."""
        self.variants.pop(name)
        rungs = tuple(r for r in self.record.rungs if r.variant != name)
        mine = mine_of(self.runs, name)
        if self.journal is not None:  # again where the ladder is gone on with: it may have been ended before this
            variant_retracted(self.journal, self.record, name)
        counts = {**self.record.retracted, name: self.record.retracted.get(name, 0) + 1}
        self.record = self.record.model_copy(update={"rungs": rungs, "retracted": counts})
        self.runs = [r for r in self.runs if r not in mine]
        self.trials += mine
        set_aside(self.folder, name, self.number, self.journal)
        self._save()

    def _settle(self, record: RunRecord) -> None:
        """Later rounds repeat what the first one fixed, down to the layers that a timing chose."""
        if record.spec is not None and record.settled:
            variant = self.variants[record.spec.variant]
            self.variants[variant.name] = replace(variant, optimizations=record.settled)

    def compare(self) -> Comparison:
        """Compares what has run and writes the report's files into the folder."""
        self.record = self.record.model_copy(update={"ended_at": time.time()})
        self.comparison = compare(self.record, self.runs, self.counsel.traces, self.counsel.advice)
        self.files = write_comparison(self.comparison, self.record, self.runs, self.folder)
        self._save()
        return self.comparison

    def close(self, ending: Ending) -> None:
        """Ends it in the journal, and last in its own file: safe to repeat, which whoever was cut off in here needs."""
        if self.journal is None or self.record.status != "running":
            return
        ended = self.record.model_copy(update={"status": ending, "ended_at": time.time()})
        self.counsel.settle()
        ended_in_journal(self, self.journal, ended, self._told)
        self.record = ended
        self._save()
        self.journal.close()
        if ending == "interrupted" and self.counsel.verified():
            # The report is from before the verification. Last, since whoever interrupts may not wait for it.
            self.compare()

    def publish(self, say: Say = ignore) -> None:
        """Copies the journal into MLflow; raises TrackingError where it does not answer (the journal keeps all)."""
        sent(self, say)

    def exit_code(self) -> int:
        """0, or 1 where the baseline or all contenders failed."""
        done = {r.spec.variant for r in self.runs if r.spec is not None and r.status == "done"}
        baseline = self.plan.fixed[0].name
        contenders = [name for name in self.variants if name != baseline]
        return 0 if baseline in done and (not contenders or done - {baseline}) else 1

    def complaint(self) -> str:
        """Why the ladder failed, in one sentence."""
        first = next((r for r in self.runs if r.status != "done" and r.spec is not None), None)
        if first is None or first.spec is None:
            return "no variant was run."
        return what_failed(self, first, first.spec.variant)

    def _failed(self, name: str) -> bool:
        return any(r.spec is not None and r.spec.variant == name and r.status != "done" for r in self.runs)

    def replace_rung(self, rung: Rung) -> None:
        """Notes what was decided about a rung."""
        rungs = tuple(rung if r.variant == rung.variant else r for r in self.record.rungs)
        self.record = self.record.model_copy(update={"rungs": rungs})
        self._save()

    def _save(self) -> None:
        write_json(self.folder / "ladder.json", self.record)
