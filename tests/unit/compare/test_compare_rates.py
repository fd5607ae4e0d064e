"""Samples a second beside the seconds of an epoch."""

from __future__ import annotations

import math

import pytest
from compare_examples import ladder, record, spec

from laptime.compare import compare_records
from laptime.records import EpochRecord, LadderRecord, RunRecord


@pytest.mark.parametrize("times", [(0.684, 0.112), (1.0, 3.0, 1.5, 2.0), (1.0, 1.0, 4.0)])
def test_samples_a_second_are_those_of_the_seconds_beside_them(times: tuple[float, ...]) -> None:
    uneven = tuple(EpochRecord(index=i, epoch_s=t, samples=30) for i, t in enumerate(times))
    runs = [RunRecord(status="done", spec=spec("cpu-baseline", repeat=repeat), epochs=uneven) for repeat in range(2)]
    found = compare_records([*runs, record("cpu-x", 40, 0.66)]).row("cpu-baseline")
    assert found is not None
    assert found.samples_per_s == pytest.approx(30 / found.epoch_s)


def test_what_is_no_number_is_no_memory_and_no_ratio() -> None:
    odd = record("cpu-baseline", 9).model_copy(update={"peak_memory_mib": math.nan})
    assert compare_records([odd]).rows[0].peak_memory_mib == pytest.approx(909)
    for field in ({"worths": {"cpu-x": (1.2, 0.0)}}, {"dropped": [{"name": "x", "with_s": 0, "without_s": 1}]}):
        with pytest.raises(ValueError, match="greater than 0"):
            LadderRecord.model_validate({**ladder().model_dump(by_alias=True), **field})
