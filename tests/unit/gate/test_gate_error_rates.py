"""The promised error rates, in a noise model with fixed seeds: slow drift, and spikes of epochs and of processes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from laptime.gate import decide
from laptime.gate.noise import known_noise

GATES = 4000
PAIRS = 24


def log_times(rng: np.random.Generator, gates: int, cv: float) -> np.ndarray:
    """Log of the median epoch of each process, base and head by turns [gates, pairs, 2], without any change.

    The machine drifts by twice the CV over a gate, along a wave of any phase; one epoch in thirty and one process in
    fifty meets something else on the machine and is slower by a heavy-tailed amount.
    """
    count = 2 * PAIRS
    phase, turns = rng.uniform(0, 2 * np.pi, (gates, 1)), rng.uniform(0.3, 1.5, (gates, 1))
    drift = 2 * cv * np.sin(phase + 2 * np.pi * turns * np.arange(count) / count)
    process = cv * rng.standard_normal((gates, count))
    process += (rng.random((gates, count)) < 0.02) * cv * np.abs(rng.standard_t(2, (gates, count))) * 3
    epochs = cv / 2 * rng.standard_normal((gates, count, 3))
    epochs += (rng.random((gates, count, 3)) < 0.03) * cv * np.abs(rng.standard_t(2, (gates, count, 3))) * 3
    slots = (drift + process + np.median(epochs, axis=2)).reshape(gates, PAIRS, 2)
    slots[:, 1::2] = slots[:, 1::2, ::-1]  # every second pair runs head first
    return slots


def kinds(cv: float, slowdown: float, seed: int, known: bool) -> Counter[str]:
    rng = np.random.default_rng(seed)
    history = log_times(rng, 1, cv)[0]
    noise = known_noise([float(h - b) for b, h in history]) if known else None
    times = log_times(rng, GATES, cv)
    d = times[:, :, 1] - times[:, :, 0] + np.log1p(slowdown)
    return Counter(decide(row, noise).kind for row in d.tolist())


@pytest.mark.parametrize("known", [True, False], ids=["noise known", "noise not known"])
@pytest.mark.parametrize("cv", [0.01, 0.03, 0.05])
def test_promised_error_rates(cv, known):
    same, slower = kinds(cv, 0.0, 11, known), kinds(cv, 0.10, 12, known)
    faster = kinds(cv, -0.10, 13, known)
    assert same["regressed"] <= 0.01 * GATES
    assert same["improved"] <= 0.01 * GATES
    assert slower["not_regressed"] <= 0.05 * GATES
    assert slower["improved"] == faster["regressed"] == 0
    # What is not promised, and still the point of it: most gates at this noise come to a verdict.
    assert slower["regressed"] >= 0.85 * GATES
    assert same["not_regressed"] >= 0.9 * GATES
