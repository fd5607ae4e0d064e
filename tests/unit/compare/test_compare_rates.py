"""Samples a second beside the seconds of an epoch."""

from __future__ import annotations

import pytest
from compare_examples import record, spec

from laptime.compare import compare_records
from laptime.records import EpochRecord, RunRecord


@pytest.mark.parametrize("times", [(0.684, 0.112), (1.0, 3.0, 1.5, 2.0), (1.0, 1.0, 4.0)])
def test_samples_a_second_are_those_of_the_seconds_beside_them(times: tuple[float, ...]) -> None:
    uneven = tuple(EpochRecord(index=i, epoch_s=t, samples=30) for i, t in enumerate(times))
    runs = [RunRecord(status="done", spec=spec("cpu-baseline", repeat=repeat), epochs=uneven) for repeat in range(2)]
    found = compare_records([*runs, record("cpu-x", 40, 0.66)]).row("cpu-baseline")
    assert found is not None
    assert found.samples_per_s == pytest.approx(30 / found.epoch_s)
