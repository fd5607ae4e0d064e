"""A gate on its way: unmeasured processes, pairs in turned orders, looks at planned counts, a verdict in every case."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol

from laptime.gate import words
from laptime.gate.conclude import conclude, difference
from laptime.gate.decision import Verdict, decide
from laptime.gate.noise import pairs_needed
from laptime.gate.policy import FEWEST
from laptime.gate.process import Trained
from laptime.gate.records import GATE_SCHEMA, TURNS_SCHEMA, GateRecord, PairRecord, Side, Trouble
from laptime.gate.sides import SideError
from laptime.host.memory import allowed_memory
from laptime.host.variables import slowing
from laptime.launchers.base import ignore
from laptime.launchers.pair import MOST_MEMORY
from laptime.launchers.turns import TurnsError

# Shorter epochs are worth no gate: docs/gate.md.
_SHORT_S, _FEW_STEPS = 2, 50

Train = Callable[[Side, int], Trained]
TrainBoth = Callable[[Side, Side, int], tuple[Trained, Trained]]


class KnownNoise(Protocol):
    """Finds the noise of a fingerprint in earlier gates: s0, or None, and where it is from."""

    def __call__(self, fingerprint: str) -> tuple[float | None, str]:
        """Looks it up."""
        ...


@dataclass(frozen=True)
class Told:
    """What a gate tells while it runs; the clock is given, so that tests need no time."""

    say: Callable[[str], None] = ignore
    save: Callable[[GateRecord], None] = ignore
    clock: Callable[[], float] = time.monotonic


@dataclass
class Gate:
    """A gate that is being run; `record` is whole after each pair.

    Attributes:
        train: trains one process of a side with a seed; raises SideError.
        by_turns: trains one of each side at the same time, epochs by turns; used where both can do that.
        noise: finds the known noise once the fingerprint is known.
        fingerprint: says what decides speed and noise here.
        first_seed: of the unmeasured processes; each pair takes the next.
        max_aa: pairs of base against itself, which no look ends; 0 for a gate.
    """

    record: GateRecord
    train: Train
    by_turns: TrainBoth
    noise: KnownNoise
    fingerprint: Callable[[Trained], str]
    told: Told = field(default_factory=Told)
    first_seed: int = 0
    max_aa: int = 0
    _together: bool = field(default=False, init=False)
    _alone: Trained | None = field(default=None, init=False)

    def run(self) -> GateRecord:
        """Runs to a verdict. An interruption is noted in the record, and raised again."""
        try:
            self._make_ready()
            if self.record.trouble is None:
                self._measure()
        except SideError as error:
            # Base has come through once before head is ever started, so a crash of head is head's own.
            self._stop("error" if error.side == "head" else "invalid", str(error), error.log)
        except KeyboardInterrupt:
            self._end("interrupted")
            raise
        self._end("done")
        return self.record

    def _make_ready(self) -> None:
        """One unmeasured process of each side fills caches, and tells what a pair costs and where this runs."""
        self.told.say("One unmeasured process of each side")
        base = self.train("base", self.first_seed)
        head = self.train("head", self.first_seed)
        pair = PairRecord(
            number=0, order="AB", seed=self.first_seed, base=base.process, head=head.process, counted=False
        )
        self._together = self._can_take_turns(base, head)
        self._alone = base
        self._know_noise()
        self._update(
            schema_=TURNS_SCHEMA if self._together else GATE_SCHEMA,
            machine=base.machine,
            pair_s=pair.took_s,
        )
        different = difference(pair)
        if different:
            self._stop("invalid", different.replace("in pair 0", "before the first pair"))
            return
        for text in slowing(base.machine.variables, base.machine.cores):
            self._notice(text)
        self._note_short(base)
        self._weigh_budget()

    def _can_take_turns(self, base: Trained, head: Trained) -> bool:
        """Whether both asked for turns, and there is memory for both at the same time."""
        if not (base.by_turns and head.by_turns):
            return False
        needed = base.memory_mib + head.memory_mib
        room = allowed_memory() / (1 << 20)
        if needed > MOST_MEMORY * room:
            self._notice(
                f"Both sides together would take {needed:,.0f} of {room:,.0f} MiB: their processes run one after the "
                "other, and a pair sees more of the machine's drift than with epochs by turns."
            )
            return False
        return True

    def _note_short(self, base: Trained) -> None:
        shortest, steps = min(base.process.epoch_s), base.process.steps
        if shortest < _SHORT_S:
            self._notice(
                f"Epochs of {shortest:.2f} s are short: below {_SHORT_S} s the clock sees more of the machine than of "
                "head."
            )
        elif 0 < steps < _FEW_STEPS:
            self._notice(
                f"Epochs of {steps} steps are short: below {_FEW_STEPS} a step that was held up weighs more than a "
                "change."
            )

    def _weigh_budget(self) -> None:
        """Says before spending it whether the budget can do."""
        record, cost = self.record, self.record.pair_s or 0.0
        affordable = min(record.policy.looks[-1], math.floor(record.budget_s / cost)) if cost else 0
        if self.max_aa:
            return
        if cost * FEWEST > record.budget_s:
            self._stop(
                "inconclusive",
                f"The budget of {record.budget_s:.0f} s holds no {FEWEST} pairs at {cost:.1f} s each: give --budget "
                f"{math.ceil(cost * record.policy.looks[-1] / 60)}m, or shorten epochs with --limit-train.",
            )
            return
        self.told.say(f"A pair takes about {cost:.1f} s, so the budget holds {affordable}.")
        if record.noise is None:
            self.told.say(
                f"The noise of a pair is not known here ({record.noise_source}), so the pairs' own scatter stands for "
                f"it, and whether the budget can do shows after {FEWEST} of them; laptime gate {record.workload} "
                "--aa 20 measures it."
            )
            return
        low, high = pairs_needed(record.noise, record.policy.policy())
        if low > affordable:
            self._advise(
                f"At the known noise of {record.noise * 100:.1f} % a pair this gate needs about {low} to {high} pairs, "
                f"and its budget holds {affordable}: it is advisory, and a verdict is not to be expected."
            )

    def _measure(self) -> None:
        """Pairs until a look decides, the plan ends, or the next look can't be reached within the budget."""
        begin, verdict = self.told.clock(), self._verdict()
        while not self._finished(verdict):
            if not self.max_aa and not self._reaches_next_look(verdict, self.told.clock() - begin):
                self._stop("inconclusive", f"The budget of {self.record.budget_s:.0f} s ended before the next look.")
                return
            self._pair()
            if difference(self.record.pairs[-1]):
                return  # what can't be compared does not become comparable
            verdict = self._verdict()
            self.told.say(words.progress(verdict))
            if verdict.pairs == FEWEST and not self._finished(verdict) and not self.max_aa:
                self._weigh_scatter(verdict, self.told.clock() - begin)

    def _weigh_scatter(self, verdict: Verdict, spent_s: float) -> None:
        """Says before spending the rest whether the pairs so far scatter too much for the budget."""
        record, state, cost = self.record, verdict.state, self._cost_s()
        if record.advisory or state is None or not cost:
            return
        left = math.floor((record.budget_s - spent_s) / cost)
        affordable = min(record.policy.looks[-1], verdict.pairs + max(0, left))
        low, high = pairs_needed(state.sd, record.policy.policy())
        # A difference that is large beside the scatter, too, is shown by fewer.
        soon = verdict.expected is not None and verdict.pairs + verdict.expected <= affordable
        if low > affordable and not soon:
            self._advise(
                f"The first {verdict.pairs} pairs scatter by {state.sd * 100:.1f} %: at that a gate needs about {low} "
                f"to {high} of them, and this one's budget holds {affordable}: it is advisory, and a verdict is not to "
                "be expected without a quieter machine, longer epochs, or more --budget and --max-pairs."
            )

    def _advise(self, text: str) -> None:
        self._update(advisory=text)
        self.told.say(text)

    def _finished(self, verdict: Verdict) -> bool:
        if self.max_aa:
            return verdict.pairs >= self.max_aa
        return verdict.decided or verdict.next_look is None

    def _reaches_next_look(self, verdict: Verdict, spent_s: float) -> bool:
        """Pairs that lead to no look would be wasted."""
        missing = (verdict.next_look or verdict.pairs) - verdict.pairs
        return spent_s + missing * self._cost_s() <= self.record.budget_s

    def _cost_s(self) -> float:
        """What a pair takes here, by those that were run."""
        return median([p.took_s for p in self.record.pairs] or [self.record.pair_s or 0.0])

    def _pair(self) -> None:
        """One pair; one that was disturbed is repeated once, and the second counts whatever was seen."""
        pair = self._one_pair()
        if pair.flags:
            self.told.say(f"Pair {pair.number} is repeated: {'; '.join(pair.flags)}.")
            self._add(pair.model_copy(update={"counted": False}))
            pair = self._one_pair()
        self._add(pair)

    def _one_pair(self) -> PairRecord:
        counted = len(self.record.counted)
        order: Literal["AB", "BA"] = "AB" if counted % 2 == 0 else "BA"
        seed = self.first_seed + counted + 1
        sides: tuple[Side, Side] = ("base", "head") if order == "AB" else ("head", "base")
        number = len(self.record.pairs) + 1
        both = self._by_turns(sides, seed, number) if self._together else None
        if both is None:
            found = {side: self.train(side, seed) for side in sides}
            flags = tuple(f"{side}: {flag}" for side in sides for flag in found[side].flags)
        else:
            found, flags = dict(zip(sides, both, strict=True)), both[0].flags
        base, head = found["base"].process, found["head"].process
        return PairRecord(
            number=number,
            order=order,
            seed=seed,
            base=base,
            head=head,
            flags=flags,
            by_turns=both is not None,
            together_s=both[0].together_s if both else None,
        )

    def _by_turns(self, sides: tuple[Side, Side], seed: int, number: int) -> tuple[Trained, Trained] | None:
        """Both by turns; None where that fails, and from there on they run one after the other.

        Each has come through alone, so a failure beside the other may be of the two together (memory, a port, a file
        that both write) and no fault of the side that it hits. If it is, it comes again alone.
        """
        try:
            return self.by_turns(*sides, seed)
        except (SideError, TurnsError) as error:
            self._together = False
            self._notice(
                f"Pair {number} could not be trained by turns ({str(error).rstrip('.')}): from it on the two processes "
                "of a pair run one after the other."
            )
            self._know_noise()
            return None

    def _know_noise(self) -> None:
        """Looks the noise up for the way in which pairs are trained from here on."""
        assert self._alone is not None
        found = self.fingerprint(self._alone.model_copy(update={"by_turns": self._together}))
        noise, source = self.noise(found)
        self._update(fingerprint=found, noise=noise, noise_source=source)

    def _verdict(self) -> Verdict:
        return decide(self.record.log_ratios, self.record.noise, self.record.policy.policy())

    def _add(self, pair: PairRecord) -> None:
        self._update(pairs=(*self.record.pairs, pair))

    def _notice(self, text: str) -> None:
        self._update(notices=(*self.record.notices, text))
        self.told.say(text)

    def _stop(self, kind: Literal["invalid", "error", "inconclusive"], reason: str, log: str = "") -> None:
        self._update(trouble=Trouble(kind=kind, reason=reason, log=log))

    def _end(self, status: Literal["done", "interrupted"]) -> None:
        self._update(status=status, ended_at=time.time())

    def _update(self, **fields: object) -> None:
        """Every state that is saved is a valid report: it is concluded as if the gate ended here."""
        changed = self.record.model_copy(update=fields)
        self.record = changed.model_copy(update={"outcome": conclude(changed)})
        self.told.save(self.record)
