"""How many rounds a trial by turns takes, by how long they take; each trial asks for them."""

from __future__ import annotations

import itertools

import pytest
import torch
from measure_examples import built, ticking

from laptime.measure import batches, precision, updates
from laptime.measure.batches import Limits, measure_batches
from laptime.measure.precision import measure_bf16
from laptime.measure.rounds import worth_another
from laptime.measure.updates import measure_updates


def rounds(each_s, enough, budget_s):
    """How many are taken of rounds of so many seconds."""
    return next(n for n in itertools.count() if not worth_another(n, enough, n * each_s, budget_s))


@pytest.mark.parametrize(
    ("each_s", "taken"),
    [
        (0.005, 80),  # short ones go on for 0.4 s
        (0.03, 14),
        (0.5, 3),  # long ones end at enough
        (0.8, 3),
        (1.5, 2),  # and where time runs out, before it
        (9.0, 1),
    ],
)
def test_short_rounds_are_many_and_long_ones_few(each_s, taken):
    assert rounds(each_s, 3, 2.0) == taken


def test_a_budget_below_a_moment_holds():
    assert rounds(0.005, 3, 0.0999) == 20


def timed(monkeypatch, module, name):
    """Counts the calls of what a trial times."""
    calls, plain = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: calls.append(given) or plain(*given))
    return calls


def test_every_trial_goes_on_where_its_rounds_are_short(monkeypatch):
    monkeypatch.setattr("laptime.catalogue.LARGE_BATCHES", {"cpu": 16})
    monkeypatch.setattr(precision, "emulates_bf16", lambda: False)
    passes, taken = [], batches.Passes.__call__
    monkeypatch.setattr(batches.Passes, "__call__", lambda *given: passes.append(given[1:]) or taken(*given))
    parts, recipe = built()
    # A clock of 1 ms a look, so a pass takes 1 ms; a round of passes has three of them and one look, seven looks.
    measure_batches(parts, recipe, 0, Limits(step_ms=5.0, activations_mib=0.01), ticking())
    assert len([1 for size, *_ in passes if size == 16]) > 50
    passes.clear()
    measure_bf16(parts, recipe, 0, Limits(step_ms=5.0), ticking())  # blocks of four of each, 17 looks
    assert len(passes) == 8 * 24
    rounds = timed(monkeypatch, updates, "_update_s")
    measure_updates(parts.optimizer, torch.device("cpu"), ticking())
    assert len(rounds) > 2 * 50
