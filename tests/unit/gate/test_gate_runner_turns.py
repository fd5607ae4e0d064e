"""A pair by turns, and when its processes run one after the other instead; times are given."""

from __future__ import annotations

import pytest
from gate_examples import Machinery

from laptime.gate.sides import SideError
from laptime.launchers.turns import TurnsError


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
    # Alone each took 20 s; together less, since both imported at the same time.
    assert record.pair_s == 40.0
    assert [p.took_s for p in record.pairs] == [33.0] * 5


@pytest.mark.parametrize("takes", [("base",), ("head",), ()])
def test_one_after_the_other_where_a_side_takes_no_turns(takes):
    machine = Machinery(lambda _: 0.0)
    machine.takes_turns = takes
    record = machine.gate().run()
    assert not machine.together
    assert not record.by_turns
    assert record.schema_ == "laptime.gate/1"
    assert record.notices == ()
    assert {p.took_s for p in record.pairs} == {40.0}


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
