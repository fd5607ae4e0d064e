"""From where on quality is judged, by the number of classes and their shares, and how much is no loss."""

from __future__ import annotations

import itertools

import pytest
from compare_examples import check, compare_records, data, ladder, record, records

from laptime.compare.comparison import compare
from laptime.compare.differences import Scores
from laptime.compare.floor import chance_of, quality_floor
from laptime.compare.model import VariantRow
from laptime.compare.quality import Rules, judge, margin_points, rules_of
from laptime.spec import RunSpec


def alike(value: float, is_loss: bool = False) -> Scores:
    return Scores((0, 1, 2), (value,) * 3, is_loss)


@pytest.mark.parametrize(
    ("classes", "floor"), [(2, 0.75), (5, 0.6), (10, 0.55), (100, 0.418), (1000, 0.367), (10_000, 0.341)]
)
def test_the_floor_by_the_number_of_classes(classes: int, floor: float) -> None:
    assert quality_floor("cifar", classes) == pytest.approx(floor, abs=5e-4)


def test_the_floor_falls_with_the_number_of_classes_and_has_no_step_at_ten() -> None:
    floors = [quality_floor("cifar", n) for n in range(2, 300)]
    assert floors == sorted(floors, reverse=True)
    assert max(a - b for a, b in itertools.pairwise(floors[6:])) < 0.01


def test_chance_is_the_share_of_the_largest_class() -> None:
    assert chance_of("cifar", 10) == pytest.approx(0.1)
    assert chance_of("cifar", 10, 0.5) == 0.5
    assert quality_floor("cifar", 2, 0.95) == pytest.approx(0.975)
    assert quality_floor("cifar", 1000, 0.05) == pytest.approx(quality_floor("cifar", 20))
    assert quality_floor("cifar", 1) == 1
    assert chance_of("detection", 3, 0.9) == 0  # boxes are not found by chance
    assert quality_floor("mine", 0) == 0


def test_forty_percent_of_a_thousand_classes_are_judged_and_of_ten_are_not() -> None:
    for classes, verdict in ((1000, "worse"), (10, "not judged")):
        rules = Rules(quality_floor("cifar", classes), True, 50_000, 1 / classes)
        assert judge(alike(0.40), alike(0.37), rules).verdict == verdict


def test_records_alone_and_a_ladder_know_the_largest_class() -> None:
    uneven = data().model_copy(update={"classes": ("good", "bad"), "commonest": 0.95})
    runs = [record("cpu-baseline", 85, 0.96, r) for r in range(3)]
    of_it = [r.model_copy(update={"spec": r.spec.model_copy(update={"data": uneven})}) for r in runs if r.spec]
    assert compare_records(of_it).conditions.quality_floor == pytest.approx(0.975)
    assert rules_of(ladder().model_copy(update={"data": uneven}), ()).chance == 0.95
    assert any("below the floor of 97.5 %" in c for c in compare_records(of_it).cautions)


def test_the_margin_is_a_point_or_less_where_little_more_than_chance_was_learnt() -> None:
    ten, uneven, unknown = Rules(0.55, True, 10**6, 0.1), Rules(0.975, True, 10**6, 0.95), Rules(0.0, True, 10**6)
    assert margin_points(alike(0.55), ten) == 1
    assert margin_points(alike(0.98), uneven) == pytest.approx(0.12)
    assert margin_points(alike(0.10), unknown) == pytest.approx(0.4)
    assert margin_points(alike(-2.0), unknown) == 0
    assert margin_points(alike(0.01, is_loss=True), unknown) == 1


def test_half_of_what_was_learnt_is_not_kept_though_it_is_less_than_a_point() -> None:
    uneven = Rules(0.975, True, 10**6, 0.95)
    assert judge(alike(0.976), alike(0.9665), uneven).verdict == "worse"
    assert judge(alike(0.976), alike(0.9755), uneven).verdict == "kept"
    assert judge(alike(0.05), alike(0.042), Rules(0.0, True, 10**6)).verdict == "worse"


def test_the_tables_of_ten_classes_are_as_they_were() -> None:
    verdicts = [row.verdict for row in compare(ladder(), records()).rows]
    assert verdicts == [row.verdict for row in compare(ladder(floor=quality_floor("cifar", 10)), records()).rows]
    assert "kept" in verdicts


def test_what_is_trained_is_the_same_whether_the_share_is_known_or_not() -> None:
    """A version that did not note it has left specs, whose digests name them in MLflow."""
    spec = record("cpu-baseline", 85, 0.66).spec
    assert isinstance(spec, RunSpec)
    known = spec.model_copy(update={"data": spec.data.model_copy(update={"commonest": 0.2})})
    assert known.digest() == spec.digest()


def of_losses(untrained: float | None, *losses: float, quality: str = "loss") -> VariantRow:
    """A variant's row whose trainings end with some losses, a thousandth apart by round, where the baseline's is 10."""
    found = []
    for variant, ends in (("cpu-baseline", (10.0, 10.001, 9.999)), ("cpu-x", losses)):
        for number, loss in enumerate(ends):
            run = record(variant, 80, 0.66, number)
            checked = None if untrained is None else check().model_copy(update={"loss_baseline": untrained})
            changed = {"test_loss": loss, "test_error": loss, "test_accuracy": None}
            epochs = tuple(e.model_copy(update=changed) for e in run.epochs)
            update = {"epochs": epochs, "check": checked if variant == "cpu-x" and not number else None}
            found.append(run.model_copy(update=update))
    row = compare(ladder().model_copy(update={"rungs": (), "quality": quality}), found).row("cpu-x")
    assert row is not None
    return row


def test_of_a_loss_that_has_hardly_fallen_nothing_is_kept_by_being_alike() -> None:
    """10.8 is ln(50,000): a model of words that has learnt little more than how often each comes."""
    alike_ones = (10.0, 10.0, 10.001)
    assert of_losses(20.0, *alike_ones).verdict == "kept"
    assert of_losses(None, *alike_ones).verdict == "kept", "nobody knows what it began with"
    for untrained in (10.1, 10.0, 9.0):
        row = of_losses(untrained, *alike_ones)
        assert row.verdict == "unclear"
        assert "of the little that was learnt at most 0" in row.verdict_reason
    assert of_losses(10.1, *alike_ones, quality="error").verdict == "kept", "a check knows the loss alone"


def test_half_of_what_a_loss_has_fallen_is_a_loss_though_it_is_less_than_a_percent() -> None:
    lost = (10.08, 10.081, 10.079)
    assert of_losses(20.0, *lost).verdict == "unclear"
    assert of_losses(10.16, *lost).verdict == "worse"
    assert margin_points(alike(10.0, is_loss=True), Rules(0, True, 100, untrained=11.0)) == pytest.approx(0.4)


def test_a_check_of_another_training_says_nothing_of_where_a_loss_began() -> None:
    mine, run = ladder().model_copy(update={"quality": "loss"}), record("cpu-x", 80, 0.66, 0, ("bf16",))
    assert rules_of(mine, [run]).untrained == pytest.approx(2.3)
    assert run.spec is not None
    other = run.model_copy(update={"spec": run.spec.model_copy(update={"workload": "another"})})
    assert rules_of(mine, [other]).untrained is None
    assert rules_of(mine, ()).untrained is None
    assert rules_of(ladder(), [run]).untrained is None


def test_who_has_learnt_nothing_is_worse_however_much_the_baseline_s_seeds_scatter() -> None:
    """Of two rounds no interval tells 51 points from none where one seed has 12 of them and the other 91."""
    own = Rules(0.0, True, 48, chance=0.0, begun=0.0)
    learnt, nothing = Scores((0, 1), (0.118, 0.908)), Scores((0, 1), (0.0, 0.0))
    found = judge(learnt, nothing, own)
    assert (found.verdict, "no training of it ended better" in found.reason) == ("worse", True)
    unknown = Rules(0.0, True, 48)
    assert judge(learnt, nothing, unknown).verdict == "unclear", "nobody knows where it began"
    assert judge(learnt, Scores((0, 1), (0.0, 0.2)), own).verdict == "unclear", "one of its seeds has learnt"
    assert judge(Scores((0, 1), (0.01, 0.908)), nothing, own).verdict == "unclear", "one of the baseline's may not have"


def test_a_loss_that_has_not_fallen_is_worse_where_all_of_the_baseline_s_have() -> None:
    own = Rules(0.0, True, 48, untrained=10.0, begun=10.0)
    learnt = Scores((0, 1), (9.0, 1.0), is_loss=True)
    assert judge(learnt, Scores((0, 1), (10.0, 10.1), is_loss=True), own).verdict == "worse"
    assert judge(learnt, Scores((0, 1), (9.9, 10.1), is_loss=True), own).verdict == "unclear"
    assert judge(
        Scores((0, 1), (9.95, 1.0), is_loss=True), Scores((0, 1), (10.0, 10.1), is_loss=True), own
    ).verdict == ("unclear"), "a percent is what two seeds differ by"
