"""A training whose loss is no number any more has lost its quality: the others of its variant do not speak for it."""

from __future__ import annotations

import math

import pytest
from compare_examples import broken, ladder, record

from laptime.compare.comparison import Comparison, VariantRow, compare
from laptime.compare.quality import without_quality
from laptime.records import DIVERGED, RunRecord

NAN = math.nan
LOST = f"{DIVERGED} nan in epoch 1: lower the learning rate or leave out the optimization that this variant adds."


def of_loss(variant: str, value: float | None, repeat: int, evaluated: bool = True) -> RunRecord:
    found = record(variant, 80.0 if variant == "cpu-baseline" else 40.0, 0.66, repeat)
    update = {"test_loss": value, "test_accuracy": None, "evaluate_s": 1.0 if evaluated else None}
    return found.model_copy(update={"epochs": tuple(e.model_copy(update=update) for e in found.epochs)})


def compared(*records: RunRecord, quality: str = "loss", kind: str = "folder") -> Comparison:
    mine = ladder(kind).model_copy(update={"rungs": (), "quality": quality, "left_out": ()})
    return compare(mine, records)


def rounds(variant: str, *values: float | None) -> list[RunRecord]:
    return [of_loss(variant, value, r) for r, value in enumerate(values)]


def the(found: Comparison) -> VariantRow:
    row = found.row("cpu-x")
    assert row is not None
    return row


@pytest.mark.parametrize("values", [(1.0, NAN, 1.001), (1.0, None, None), (NAN, NAN, NAN)])
def test_a_variant_of_which_a_training_ends_without_a_loss_is_worse(values: tuple[float | None, ...]) -> None:
    lost = sum(v is None or math.isnan(v) for v in values)
    found = compared(*rounds("cpu-baseline", 1.0, 1.001, 1.002), *rounds("cpu-x", *values))
    row = the(found)
    assert (row.verdict, row.verdict_reason) == ("worse", f"{lost} of its 3 trainings came to no loss")
    assert row.quality_diff_points is None
    assert all(h.variant != "cpu-x" for h in found.headlines)
    assert f"cpu-x: {lost} of 3 trainings ended with a loss that is no number." in found.cautions


def test_a_training_that_failed_by_its_loss_counts_too_and_another_failure_does_not() -> None:
    base = [record("cpu-baseline", 80, 0.70, r) for r in range(3)]
    first = record("cpu-x", 40, 0.71, 0)
    for error, verdict in ((LOST, "worse"), (f"rank 1: {LOST}", "worse"), ("out of memory", "kept")):
        second = broken("cpu-x", "failed", error)
        second = second.model_copy(update={"spec": first.spec.model_copy(update={"repeat": 1}) if first.spec else None})
        row = the(compared(*base, first, second, quality="accuracy"))
        assert row.verdict == verdict, error
        assert row.status == "done"
    assert (
        "1 of its 2 trainings came to no accuracy"
        in the(compared(*base, first, broken("cpu-x", "failed", LOST), quality="accuracy")).verdict_reason
    )


def test_where_the_baseline_does_so_too_nothing_is_judged() -> None:
    found = compared(*rounds("cpu-baseline", 1.0, NAN, 1.0), *rounds("cpu-x", NAN, 1.0, 1.0))
    assert the(found).verdict == "not judged"
    assert the(found).verdict_reason == "1 of its 3 trainings came to no loss, and 1 of the baseline's 3"
    assert the(compared(*rounds("cpu-baseline", 1.0, NAN, 1.0), *rounds("cpu-x", 1.0, 1.0, 1.0))).verdict == "kept"


def test_what_nobody_evaluated_or_a_stand_in_is_not_judged() -> None:
    base = rounds("cpu-baseline", 1.0, 1.0, 1.0)
    bare = [of_loss("cpu-x", None, r, evaluated=False) for r in range(3)]
    assert the(compared(*base, *bare)).verdict_reason == "its quality was not measured"
    assert the(compared(*base, *rounds("cpu-x", 1.0, NAN, 1.0), kind="synthetic")).verdict == "not judged"


def test_a_training_without_an_epoch_says_nothing_of_quality() -> None:
    assert not without_quality(RunRecord(status="done"), "loss")
    assert not without_quality(RunRecord(status="wrong", error=LOST), "loss")
