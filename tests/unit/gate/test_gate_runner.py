"""The gate's way from process to verdict, with processes whose times are given."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from gate_examples import process

from laptime.gate.conclude import conclude
from laptime.gate.noise import pairs_needed
from laptime.gate.policy import make_policy
from laptime.gate.process import Trained
from laptime.gate.records import GateRecord, PolicyRecord
from laptime.gate.reports import to_junit, to_markdown
from laptime.gate.runner import Gate, Told
from laptime.gate.sides import SideError
from laptime.gate.turns import TurnsError
from laptime.records import Machine


class Machinery:
    """Trains by the book: times are a function of side and seed, and the clock is what they add up to."""

    def __init__(self, log_ratio: Callable[[int], float], flags: dict[int, tuple[str, ...]] | None = None, **head):
        self.log_ratio, self.flags, self.head = log_ratio, dict(flags or {}), head
        self.calls: list[tuple[str, int]] = []
        self.together: list[tuple[str, str, int]] = []
        self.takes_turns: tuple[str, ...] = ()
        self.clash: Exception | None = None
        self.said: list[str] = []
        self.saved: list[GateRecord] = []
        self.now = 0.0

    def train(self, side: str, seed: int) -> Trained:
        self.calls.append((side, seed))
        epoch_s = 4.0 * (math.exp(self.log_ratio(seed)) if side == "head" else 1.0)
        made = process(side, seed, epoch_s, wall_s=20.0, **(self.head if side == "head" else {}))
        self.now += 20.0
        flags = self.flags.pop(len(self.calls), ())
        turns = side in self.takes_turns
        return Trained(process=made, machine=Machine(cpu="a CPU"), flags=flags, by_turns=turns, memory_mib=900.0)

    def both(self, first: str, second: str, seed: int) -> tuple[Trained, Trained]:
        self.together.append((first, second, seed))
        if self.clash is not None and len(self.together) == 2:
            raise self.clash
        found = self.train(first, seed), self.train(second, seed)
        flags = tuple(flag for each in found for flag in each.flags)
        one, other = (each.model_copy(update={"flags": flags}) for each in found)
        return one, other

    def gate(self, noise: float | None = 0.03, budget_s: float = 900.0, max_pairs: int = 24, **more) -> Gate:
        rule = make_policy(0.1, max_pairs)
        record = GateRecord(
            id="x", workload="w", policy=PolicyRecord(looks=rule.looks), budget_s=budget_s, started_at=1.0
        )
        return Gate(
            record=record,
            train=self.train,
            by_turns=self.both,
            noise=lambda _: (noise, "given" if noise else "7 earlier pairs of this fingerprint, 20 are needed"),
            fingerprint=lambda trained: "turns" if trained.by_turns else "f",
            told=Told(self.said.append, self.saved.append, lambda: self.now),
            **more,
        )


def test_orders_alternate_and_a_pair_shares_its_seed():
    machine = Machinery(lambda _: 0.0)
    record = machine.gate(first_seed=5).run()
    assert record.outcome.kind == "not_regressed"
    assert record.outcome.exit_code == 0
    # One unmeasured process of each side, then AB, BA, AB, BA.
    order = [("base", "head"), ("base", "head"), ("head", "base"), ("base", "head"), ("head", "base")]
    assert machine.calls == [(s, 5 + i) for i, sides in enumerate(order) for s in sides]
    assert [p.order for p in record.pairs] == ["AB", "BA", "AB", "BA"]
    assert record.status == "done"
    assert record.fingerprint == "f"


@pytest.mark.parametrize(("change", "kind", "code"), [(0.1, "regressed", 1), (-0.1, "improved", 0)])
def test_a_change_is_seen(change, kind, code):
    record = Machinery(lambda seed: change + 0.01 * (-1) ** seed).gate().run()
    assert (record.outcome.kind, record.outcome.exit_code) == (kind, code)
    assert len(record.pairs) < 24


def test_it_looks_only_at_planned_counts_and_ends_with_the_plan():
    machine = Machinery(lambda seed: 0.03 + 0.4 * (-1) ** seed)
    record = machine.gate(noise=None, budget_s=1e6, max_pairs=10).run()
    assert record.outcome.kind == "inconclusive"
    assert record.outcome.exit_code == 3
    assert len(record.pairs) == 10
    assert [look.n for look in record.outcome.decision.looks] == [4, 8, 10]
    assert "more would have" in record.outcome.sentence


def test_a_budget_that_ends_between_looks_keeps_the_last_look():
    machine = Machinery(lambda seed: 0.03 + 0.4 * (-1) ** seed)
    record = machine.gate(noise=None, budget_s=250.0).run()
    # Four pairs of 40 s and the next look at eight would need 320 s: no pair is spent that leads to no look.
    assert len(record.pairs) == 4
    assert record.outcome.exit_code == 3
    assert "budget" in record.outcome.sentence


def test_a_budget_below_four_pairs_is_told_before_it_is_spent():
    machine = Machinery(lambda _: 0.0)
    record = machine.gate(budget_s=150.0).run()
    assert record.outcome.exit_code == 3
    assert record.pairs == ()
    assert "--budget 16m" in record.outcome.sentence


def test_too_much_noise_is_told_before_the_budget_is_spent():
    machine = Machinery(lambda seed: 0.3 * (-1) ** seed)
    record = machine.gate(noise=0.2).run()
    told = next(i for i, text in enumerate(machine.said) if "advisory" in text)
    first = next(i for i, text in enumerate(machine.said) if "1 pair" in text)
    assert told < first
    assert "pairs" in record.advisory
    assert record.advisory in to_markdown(record).replace("\\", "")


def spoken(machine: Machinery, *words: str) -> list[int]:
    """Where sentences stand that hold all of the words."""
    return [i for i, text in enumerate(machine.said) if all(word in text for word in words)]


def test_noise_that_is_not_known_is_told_before_the_first_pair():
    machine = Machinery(lambda _: 0.0)
    machine.gate(noise=None).run()
    (told,) = spoken(machine, "not known here (7 earlier pairs", "own scatter", "laptime gate w --aa 20")
    assert told < spoken(machine, "1 pair")[0]
    known = Machinery(lambda _: 0.0)
    known.gate().run()
    assert not spoken(known, "not known here")
    itself = Machinery(lambda _: 0.0)
    itself.gate(noise=None, max_aa=4).run()
    assert not spoken(itself, "--aa 20")


@pytest.mark.parametrize("noise", [None, 0.03])
def test_pairs_that_scatter_too_much_are_told_after_the_first_look(noise):
    machine = Machinery(lambda seed: 0.03 + 0.2 * (-1) ** seed)
    record = machine.gate(noise=noise).run()
    (told,) = spoken(machine, "The first 4 pairs scatter by", "advisory")
    assert spoken(machine, "4 pairs:")[0] < told < spoken(machine, "5 pairs")[0]
    sd = record.outcome.decision.looks[0].sd
    low, high = pairs_needed(sd, make_policy(0.1, 24))
    assert low > 22
    # 900 s hold 22 pairs of 40 s.
    assert f"{sd * 100:.1f} %" in record.advisory
    assert f"about {low} to {high} of them, and this one's budget holds 22" in record.advisory
    assert machine.said[told] == record.advisory


@pytest.mark.parametrize(
    ("change", "scatter", "budget_s"),
    [(0.03, 0.05, 900.0), (0.6, 0.2, 900.0), (0.03, 0.2, 1e6)],
    ids=["quiet", "a large difference", "a large budget"],
)
def test_pairs_that_can_still_decide_are_left_alone(change, scatter, budget_s):
    machine = Machinery(lambda seed: change + scatter * (-1) ** seed)
    record = machine.gate(noise=None, budget_s=budget_s, max_pairs=24 if budget_s < 1e6 else 200).run()
    assert len(record.outcome.decision.looks) > 1
    assert not spoken(machine, "scatter by")
    assert record.advisory == ""


def test_a_disturbed_pair_is_repeated_once_whatever_its_times():
    # Calls 3 and 4 are the first measured pair; its repetition is disturbed too, and counts.
    machine = Machinery(lambda _: 0.0, flags={3: ("swapping",), 6: ("steal",)})
    record = machine.gate().run()
    assert [p.counted for p in record.pairs] == [False, True, True, True, True]
    assert record.pairs[0].flags == ("base: swapping",)
    assert record.pairs[1].flags == ("head: steal",)
    assert record.pairs[0].seed == record.pairs[1].seed
    assert [p.order for p in record.counted] == ["AB", "BA", "AB", "BA"]
    assert record.outcome.decision.pairs == 4


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize("when", [1, 4])
def test_a_crash_is_judged_by_its_side(side, when):
    machine = Machinery(lambda _: 0.3)
    calls = {"base": 0, "head": 0}

    def train(which, seed):
        calls[which] += 1
        if which == side and calls[which] == when:
            raise SideError(which, f"{which} crashed", "boom\n")
        return machine.train(which, seed)

    gate = machine.gate(noise=None)
    gate.train = train
    record = gate.run()
    assert record.outcome.kind == ("invalid" if side == "base" else "error")
    assert record.outcome.exit_code == (4 if side == "base" else 5)
    assert "boom" in to_markdown(record)
    assert "crashed" in to_junit(record)


def test_other_data_ends_the_gate_at_once():
    machine = Machinery(lambda _: 0.3, data="other")
    record = machine.gate().run()
    assert (record.outcome.kind, record.outcome.exit_code) == ("invalid", 4)
    assert len(machine.calls) == 2


def test_an_interrupted_gate_leaves_a_valid_report():
    machine = Machinery(lambda _: 0.0)
    gate = machine.gate()

    def train(side, seed):
        if len(machine.calls) == 7:
            raise KeyboardInterrupt
        return machine.train(side, seed)

    gate.train = train
    with pytest.raises(KeyboardInterrupt):
        gate.run()
    last = machine.saved[-1]
    assert last.status == "interrupted"
    assert len(last.pairs) == 2
    assert last.outcome == conclude(last)
    assert last.outcome.exit_code == 3
    assert "2 pairs" in to_markdown(last)


def test_pairs_of_base_against_itself_are_all_taken():
    machine = Machinery(lambda _: 0.0)
    record = machine.gate(budget_s=10.0, max_aa=9).run()
    assert len(record.pairs) == 9


def test_short_epochs_are_told():
    machine = Machinery(lambda _: 0.0)
    gate = machine.gate()
    gate.train = lambda side, seed: Trained(process=process(side, seed, 0.5), machine=Machine())
    assert "0.4" in gate.run().notices[0]


@pytest.mark.parametrize(("steps", "told"), [(49, True), (50, False), (0, False)])
def test_epochs_of_few_steps_are_told(steps, told):
    machine = Machinery(lambda _: 0.0)
    gate = machine.gate()
    gate.train = lambda side, seed: Trained(process=process(side, seed, 4.0, steps=steps), machine=Machine())
    assert any("Epochs of 49 steps are short" in text for text in gate.run().notices) is told


def test_epochs_go_by_turns_where_both_sides_can():
    machine = Machinery(lambda _: 0.0, {5: ("others",), 6: ("others",)})
    machine.takes_turns = ("base", "head")
    record = machine.gate(first_seed=5).run()
    assert all(p.by_turns for p in record.pairs)
    assert record.schema_ == "laptime.gate/2"
    assert record.fingerprint == "turns"
    assert record.outcome.kind == "not_regressed"
    # The second pair has flags of both, is repeated once, and keeps its seed and order.
    seeds = [("base", "head", 6), ("head", "base", 7), ("head", "base", 7), ("base", "head", 8), ("head", "base", 9)]
    assert machine.together == seeds
    assert [p.counted for p in record.pairs] == [True, False, True, True, True]
    assert record.pairs[1].flags == ("others", "others")


@pytest.mark.parametrize("takes", [("base",), ("head",), ()])
def test_one_after_the_other_where_a_side_takes_no_turns(takes):
    machine = Machinery(lambda _: 0.0)
    machine.takes_turns = takes
    record = machine.gate().run()
    assert not machine.together
    assert not record.by_turns
    assert record.schema_ == "laptime.gate/1"
    assert record.notices == ()


def test_one_after_the_other_where_memory_holds_no_two(monkeypatch):
    machine = Machinery(lambda _: 0.0)
    machine.takes_turns = ("base", "head")
    monkeypatch.setattr("laptime.gate.runner.allowed_memory", lambda: 2000 << 20)  # each takes 900 MiB
    record = machine.gate().run()
    assert not machine.together
    assert "1,800 of 2,000 MiB" in record.notices[0]


@pytest.mark.parametrize(
    "clash", [SideError("head", "head's training ended with 1; its log tells why."), TurnsError("base took no turns")]
)
def test_what_fails_by_turns_is_tried_alone_before_anybody_is_blamed(clash):
    machine = Machinery(lambda _: 0.0)
    machine.takes_turns, machine.clash = ("base", "head"), clash
    record = machine.gate(first_seed=5).run()
    assert record.outcome.kind == "not_regressed"
    assert machine.together == [("base", "head", 6), ("head", "base", 7)]
    assert machine.calls[-6:] == [(s, n) for n in (7, 8, 9) for s in (("base", "head") if n == 8 else ("head", "base"))]
    assert [p.by_turns for p in record.pairs] == [True, False, False, False]
    assert [p.seed for p in record.pairs] == [6, 7, 8, 9]
    assert record.fingerprint == "f"
    assert record.schema_ == "laptime.gate/2"
    (notice,) = record.notices
    assert notice.startswith(f"Pair 2 could not be trained by turns ({str(clash).rstrip('.')}): from it on")


def test_a_head_that_crashes_alone_too_is_heads_own():
    machine = Machinery(lambda _: 0.0)
    machine.takes_turns, machine.clash = ("base", "head"), SideError("head", "gone beside base")
    alone = machine.train

    def train(side, seed):
        if side == "head" and len(machine.together) == 2:
            raise SideError("head", "gone alone")
        return alone(side, seed)

    gate = machine.gate()
    gate.train = train
    outcome = gate.run().outcome
    assert (outcome.kind, outcome.exit_code) == ("error", 5)
    assert "gone alone" in outcome.sentence
