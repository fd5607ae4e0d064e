"""The gate's way from process to verdict, with processes whose times are given."""

from __future__ import annotations

import pytest
from gate_examples import Machinery, process

from laptime.gate.conclude import conclude
from laptime.gate.noise import pairs_needed
from laptime.gate.policy import make_policy
from laptime.gate.process import Trained
from laptime.gate.reports import to_junit, to_markdown
from laptime.gate.sides import SideError
from laptime.records import Machine


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


def test_a_variable_that_makes_trainings_slow_is_told():
    gate = Machinery(lambda _: 0.0).gate()
    slow = Machine(cores=2, variables=("CUDA_LAUNCH_BLOCKING=1", "OMP_NUM_THREADS=2"))
    gate.train = lambda side, seed: Trained(process=process(side, seed, 4.0), machine=slow)
    assert [text.partition(" ")[0] for text in gate.run().notices] == ["CUDA_LAUNCH_BLOCKING=1"]


@pytest.mark.parametrize(("steps", "told"), [(49, True), (50, False), (0, False)])
def test_epochs_of_few_steps_are_told(steps, told):
    machine = Machinery(lambda _: 0.0)
    gate = machine.gate()
    gate.train = lambda side, seed: Trained(process=process(side, seed, 4.0, steps=steps), machine=Machine())
    assert any("Epochs of 49 steps are short" in text for text in gate.run().notices) is told
