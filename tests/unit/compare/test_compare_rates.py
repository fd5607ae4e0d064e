"""What stands beside the seconds of an epoch: samples a second, what became of a variant, why there is none."""

from __future__ import annotations

import io
import math

import pytest
from compare_examples import broken, compare_records, ladder, record, records, spec
from rich.console import Console

from laptime.compare import words
from laptime.compare.comparison import compare
from laptime.compare.markdown import to_markdown
from laptime.compare.terminal import print_comparison
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


def test_a_baselines_error_is_said_once_in_a_report() -> None:
    runs = [broken("cpu-baseline", "failed", "FILE is damaged: write it again."), record("cpu-x", 85, 0.66)]
    found, screen = compare_records(runs), io.StringIO()
    print_comparison(found, Console(file=screen, width=200, color_system=None))
    for report in (to_markdown(found), screen.getvalue()):
        assert report.count("FILE is damaged") == 1
        assert "no speed-up can be given, since cpu-baseline has no counted epoch" in report


def test_what_no_trial_decides_is_slower_where_the_baseline_is_faster() -> None:
    """However much it brought over a rung that is slower still."""
    found = compare(ladder(), records())
    optimized = found.row("cpu-optimized")
    assert optimized is not None
    figures = {"speedup": 0.9, "speedup_high": 0.95, "contribution": 1.2, "variant": "cpu-other"}
    changed = optimized.model_copy(update=figures)
    assert words.standing(changed.model_copy(update={"joined": None}), found) == "slower"
    assert words.standing(changed.model_copy(update={"joined": True}), found) == "joined"


@pytest.mark.parametrize(
    ("high", "joined", "said"),
    [
        (0.99, None, "slower"),
        (None, None, "slower"),  # of one process
        (1.0, None, "unclear"),
        (1.2, True, "joined"),
        (1.2, False, "not joined"),
    ],
)
def test_a_variant_whose_interval_leaves_it_open_is_not_called_slower(high, joined, said) -> None:
    found = compare(ladder(), records())
    figures = {"speedup": 0.9, "speedup_high": high, "contribution": 0.9, "contribution_high": high}
    row = found.row("cpu-optimized").model_copy(update={**figures, "variant": "cpu-other", "joined": joined})
    assert words.standing(row, found) == said
