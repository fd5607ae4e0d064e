"""What one whole training of each side leaves unclear has more, of seeds that the comparison does not use."""

from __future__ import annotations

import math

import pytest
from tests.unit.ladder.turning import through
from tests.unit.tune.searching import a_search, options
from tests.unit.tune.test_search import adopted, best_at_1024, moves

from laptime.compare.searching import sentences
from laptime.launchers.base import Hooks
from laptime.tune.search import Search

SEEDS = (0, 2, 3)
BATCH = "large-batch:size=1024"


def of_seeds(baseline, found):
    """The accuracy of the baseline and of the larger batch, by the seeds that a search of two rounds trains."""
    by_seed = dict(zip(SEEDS, zip(baseline, found, strict=True), strict=True))

    def accuracy(spec) -> float:
        size = options(spec).get("large-batch", {}).get("size", 0)
        if not spec.optimizations or size == 1024:
            return by_seed.get(spec.seed, (0.5, 0.5))[size == 1024]
        return by_seed[0][0] + 0.1  # where it begins is better without question

    return accuracy


def trained(told: list[str], variant: str) -> int:
    return sum(turn.startswith(variant) and "a whole training" in turn for turn in told)


@pytest.mark.parametrize(
    ("baseline", "found", "outcome", "reason"),
    [
        # At 10,000 test samples one process tells 1.4 points apart.
        ((0.60, 0.60, 0.60), (0.601, 0.50, 0.50), "faster", "accuracy 60.1 %, baseline 60.0 %, unclear"),
        ((0.60, 0.60, 0.60), (0.62, 0.60, 0.60), "faster", "accuracy 62.0 %, baseline 60.0 %"),
        ((0.60, 0.60, 0.60), (0.58, 0.60, 0.60), "worse", "accuracy 58.0 %, baseline 60.0 %"),
        (
            (0.60, 0.60, 0.60),
            (0.594, 0.588, 0.605),
            "faster",
            "accuracy 59.6 %, baseline 60.0 %, 3 seeds each, unclear",
        ),
        ((0.60, 0.61, 0.59), (0.59, 0.59, 0.58), "unclear", "accuracy 58.7 %, baseline 60.0 %, 3 seeds each"),
        ((0.60, 0.60, 0.60), (0.5995, 0.60, 0.60), "faster", "accuracy 60.0 %, baseline 60.0 %, 2 seeds each"),
        ((0.60, 0.60, 0.60), (0.588, 0.588, 0.60), "worse", "accuracy 58.8 %, baseline 60.0 %, 2 seeds each"),
    ],
)
def test_more_seeds_of_both_sides_decide(tmp_path, monkeypatch, baseline, found, outcome, reason):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=of_seeds(baseline, found))
    told = through(ladder)
    move = moves(ladder)[BATCH]
    assert (move.outcome, move.reason) == (outcome, reason)
    assert (BATCH in adopted(ladder)) == (outcome == "faster")
    seeds = int(reason.partition(" seeds")[0][-1]) if "seeds" in reason else 1
    assert trained(told, f"cpu-tuned+{BATCH}") == seeds
    assert trained(told, "cpu-baseline") == seeds - 1
    # The comparison's second round has a seed that chose nothing.
    assert {r.spec.seed for r in ladder.verified} == {*SEEDS[:seeds]}
    assert {r.spec.seed for r in ladder.runs} == {0, 1}


@pytest.mark.parametrize(("second", "outcome"), [(0.594, "faster"), (0.588, "unclear")])
def test_where_the_baseline_has_no_second_training_the_first_decides_by_its_mean(
    tmp_path, monkeypatch, second, outcome
):
    def status(spec) -> str:
        return "failed" if not spec.optimizations and spec.seed == 2 else "done"

    accuracy = of_seeds((0.6,) * 3, (second,) * 3)
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=accuracy, status=status)
    told = through(ladder)
    assert moves(ladder)[BATCH].outcome == outcome
    assert (trained(told, f"cpu-tuned+{BATCH}"), trained(told, "cpu-baseline")) == (1, 1)


@pytest.mark.parametrize(("minutes", "seeds", "outcome"), [(13, 1, "unclear"), (16, 2, "faster"), (19, 3, "faster")])
def test_a_budget_without_room_for_more_decides_by_the_mean(tmp_path, monkeypatch, minutes, seeds, outcome):
    accuracy = of_seeds((0.6,) * 3, (0.588, 0.606, 0.612))
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=accuracy, budget=f"{minutes}m")
    told = through(ladder)
    assert moves(ladder)[BATCH].outcome == outcome
    assert trained(told, "cpu-baseline") == seeds - 1
    assert sum(ladder.record.turns_s) <= minutes * 60


@pytest.mark.parametrize(
    ("large_batch", "rest", "start", "said"),
    [
        (
            (0.77, 0.79, 0.80),
            0.8,
            "cpu-optimized",
            "cpu-optimized kept (accuracy 78.7 %, baseline 80.0 %, 3 seeds each, unclear)",
        ),
        (
            (0.78, 0.78, 0.76),
            0.8,
            "cpu-optimized-without-large-batch",
            "cpu-optimized worse (accuracy 77.3 %, baseline 80.0 %, 3 seeds each); "
            "cpu-optimized-without-large-batch kept (accuracy 80.0 %, baseline 80.0 %, unclear)",
        ),
        # Seeds that scatter this much show nothing, and the mean is lower by more than two points.
        (
            (0.79, 0.80, 0.73),
            0.8,
            "cpu-optimized-without-large-batch",
            "cpu-optimized unclear (accuracy 77.3 %, baseline 80.0 %, 3 seeds each); "
            "cpu-optimized-without-large-batch kept (accuracy 80.0 %, baseline 80.0 %, unclear)",
        ),
        # What learns alike is refused where it is shown to lose.
        (
            (0.70, 0.70, 0.70),
            0.77,
            "cpu-optimized-without-large-batch",
            "cpu-optimized worse (accuracy 70.0 %, baseline 80.0 %); "
            "cpu-optimized-without-large-batch unclear (accuracy 77.0 %, baseline 80.0 %)",
        ),
        (
            (0.70, 0.70, 0.70),
            0.75,
            "cpu-baseline",
            "cpu-optimized worse (accuracy 70.0 %, baseline 80.0 %); "
            "cpu-optimized-without-large-batch worse (accuracy 75.0 %, baseline 80.0 %)",
        ),
    ],
)
def test_where_it_begins_is_judged_alike(tmp_path, monkeypatch, large_batch, rest, start, said):
    by_seed = dict(zip(SEEDS, large_batch, strict=True))

    def accuracy(spec) -> float:
        if not spec.optimizations:
            return 0.8
        return by_seed.get(spec.seed, 0.79) if "large-batch" in options(spec) else rest

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=accuracy, tests=1000, budget="40m")
    through(ladder)
    search = ladder.record.search
    assert (search.start, search.start_quality) == (start, said)
    assert f"Quality of where it could begin: {said}." in sentences(search)


def test_what_follows_is_reckoned_with_the_check_and_the_profile_of_a_first_process(tmp_path, monkeypatch):
    """Whether or not other trainings came after that process."""

    def seconds(spec) -> float:
        return best_at_1024(spec) * (6 if spec.check and spec.optimizations else 1)

    after = set()
    for name, accuracy in (("clear", 0.82), ("doubtful", 0.795)):

        def reached(spec, known=accuracy) -> float:
            return known if "large-batch" in options(spec) else 0.8

        ladder = a_search(tmp_path / name, monkeypatch, seconds, accuracy=reached)
        search = Search(ladder)
        for turn in search.turns():
            if ladder.record.search.start:
                break
            ladder.run(turn, Hooks())
        ladder.journal.close()
        assert bool(ladder.verified) == (name == "doubtful")
        after.add(search.budget.after_s())
    assert len(after) == 1


def test_a_training_that_diverges_is_no_start_and_no_find(tmp_path, monkeypatch):
    def loss(spec) -> float:
        return math.nan if "large-batch" in options(spec) else 0.8

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=loss)
    through(ladder)
    assert ladder.record.search.start == "cpu-optimized-without-large-batch"
    move = moves(ladder)["+large-batch"]
    assert (move.outcome, move.reason) == ("failed", "its whole training left no accuracy")
