from __future__ import annotations

import math
import random
from statistics import variance

import pytest
from compare_examples import compare_records, record

from laptime.compare import words
from laptime.compare.curves import time_to_quality
from laptime.compare.differences import Scores, difference
from laptime.compare.quality import Rules, advantage, judge, noise_points, scores_of

RULES = Rules(floor=0.55, real_data=True, test_count=10_000)


def rounds(*values: float) -> Scores:
    return Scores(tuple(range(len(values))), values)


def losses(*values: float) -> Scores:
    return Scores(tuple(range(len(values))), values, is_loss=True)


BASE = rounds(0.660, 0.662, 0.658)


@pytest.mark.parametrize(
    ("contender", "verdict"),
    [
        (rounds(0.740, 0.742, 0.738), "better"),
        (rounds(0.661, 0.662, 0.659), "kept"),
        (rounds(0.657, 0.659, 0.655), "unclear"),
        (rounds(0.620, 0.622, 0.618), "worse"),
        (rounds(0.600, 0.700, 0.640), "unclear"),
        (None, "not judged"),
    ],
)
def test_verdicts(contender: Scores | None, verdict: str) -> None:
    assert judge(BASE, contender, RULES).verdict == verdict


def test_a_loss_within_the_margin_is_not_called_worse() -> None:
    many = Rules(floor=0.5, real_data=True, test_count=10_000_000)
    found = judge(rounds(0.66, 0.66, 0.66), rounds(0.655, 0.655, 0.655), many)
    assert found.verdict == "kept"
    assert found.high_points is not None
    assert found.high_points < 0


def test_a_stand_in_is_not_judged() -> None:
    found = judge(BASE, rounds(0.9, 0.9, 0.9), Rules(0.55, real_data=False, test_count=10_000))
    assert (found.verdict, found.reason) == ("not judged", "the data is a stand-in")


def test_a_baseline_below_the_floor_is_not_judged_and_both_numbers_are_said() -> None:
    found = judge(rounds(0.31), rounds(0.9), RULES)
    assert found.verdict == "not judged"
    assert "31.0 %" in found.reason
    assert "55.0 %" in found.reason


def test_an_unknown_test_set_is_not_judged() -> None:
    assert judge(BASE, BASE, Rules(0.0, True, 0)).verdict == "not judged"


def test_one_round_has_the_binomial_error_alone() -> None:
    diff, half = difference(rounds(0.5), rounds(0.5), 10_000)
    assert diff == 0
    assert half == pytest.approx(100 * 1.959964 * math.sqrt(0.5 / 10_000), rel=1e-5)


def test_several_rounds_have_the_larger_of_both_errors() -> None:
    _, scattered = difference(rounds(0.66, 0.66, 0.66), rounds(0.62, 0.66, 0.70), 10_000)
    assert scattered == pytest.approx(100 * 2.776445 * 0.04 / math.sqrt(3), rel=1e-5)
    _, agreeing = difference(rounds(0.5, 0.5, 0.5), rounds(0.5, 0.5, 0.5), 10_000)
    assert agreeing == pytest.approx(100 * 1.959964 * math.sqrt(0.5 / 30_000), rel=1e-5)


def test_rounds_without_a_partner_are_compared_by_their_means() -> None:
    diff, half = difference(rounds(0.60, 0.62), Scores((7, 8), (0.70, 0.72)), 10_000)
    assert diff == pytest.approx(10)
    assert half == pytest.approx(100 * 4.302653 * math.sqrt(2 * 0.0002 / 2), rel=1e-4)


def test_rounds_that_rise_and_fall_together_are_compared_by_their_differences() -> None:
    _, half = difference(rounds(0.60, 0.70, 0.80), rounds(0.50, 0.60, 0.72), 1_000_000)
    assert half == pytest.approx(100 * 4.302653 * math.sqrt(variance([0.10, 0.10, 0.08]) / 3), rel=1e-4)


def test_twelve_points_lost_in_two_rounds_are_worse_and_four_may_be_noise() -> None:
    tested = Rules(0.3, real_data=True, test_count=1000)
    assert judge(rounds(0.450, 0.432), rounds(0.310, 0.330), tested).verdict == "worse"
    assert judge(rounds(0.450, 0.432), rounds(0.390, 0.412), tested).verdict == "unclear"


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(("scatter", "beside"), [(1.0, 1.0), (1.5, 1.0), (1.0, 3.0)])
def test_the_interval_covers_the_true_difference(n: int, scatter: float, beside: float) -> None:
    """Seeds that scatter by as much as the binomial error, or more; of the contender up to three times that."""
    draw = random.Random(f"{n} {scatter} {beside}")
    binomial, truth, cases = math.sqrt(0.44 * 0.56 / 1000), -0.03, 1500
    sizes = scatter * binomial, beside * scatter * binomial

    def case() -> bool:
        p, q = (
            rounds(*(draw.gauss(0.44 + at, size) for _ in range(n))) for at, size in zip((0, truth), sizes, strict=True)
        )
        diff, half = difference(p, q, 1000)
        assert half is not None
        return abs(diff - 100 * truth) <= half

    assert sum(case() for _ in range(cases)) / cases > 0.9


@pytest.mark.parametrize(
    ("contender", "begun", "ends"),
    [
        (rounds(0.2, 0.9), None, (-60.0, 40.0)),
        (rounds(0.61, 0.60), None, None),
        (rounds(0.2, 0.9), -0.4, (None, 40.0)),
        (rounds(-0.8, 0.9), None, (None, 40.0)),
        (losses(0.2, 0.9), None, None),
        (rounds(0.2, 1.9), None, (-60.0, None)),
    ],
)
def test_an_interval_is_told_as_far_as_shares_go_and_judged_whole(
    contender: Scores, begun: float | None, ends: tuple[float | None, float | None] | None
) -> None:
    base = Scores((0, 1), (0.61, 0.59), contender.is_loss)
    found = judge(base, contender, Rules(0, real_data=True, test_count=10_000, begun=begun))
    diff, half = difference(base, contender, 10_000)
    assert half is not None
    whole = diff - half, diff + half
    told = [end if bound is None else bound for end, bound in zip(whole, ends or (None, None), strict=True)]
    assert [found.low_points, found.high_points] == pytest.approx(told)
    assert ends is None or whole != pytest.approx(told)


def test_what_shares_allow_makes_no_verdict() -> None:
    """Of a baseline of 0.5 % nothing more than half a point can be lost, and the interval tells neither."""
    small = Rules(0, real_data=True, test_count=100, chance=-1.0)
    found = judge(rounds(0.005), rounds(0.005), small)
    assert found.low_points == pytest.approx(-0.5)
    assert found.verdict == "unclear"


def walked(value: float, *path: float, repeat: int = 0) -> Scores:
    return Scores((repeat,), (value,), paths=(path,))


@pytest.mark.parametrize(
    ("contender", "verdict"),
    [
        (walked(0.75, 0.9, 0.7, 0.5 + 1e-7, 0.6), "kept"),
        (walked(0.75, 0.9, 0.7, 0.5 + 1e-4, 0.6), "unclear"),
        (walked(0.75, 0.9, 0.7), "unclear"),
        (walked(0.75), "unclear"),
        (walked(0.75, 0.9, 0.7, 0.5, 0.6, repeat=1), "unclear"),
        (walked(0.625, 0.9, 0.7, 0.5, 0.6), "unclear"),
        (rounds(0.75), "unclear"),
    ],
)
def test_one_training_that_is_done_twice_is_kept_on_few_samples_too(contender: Scores, verdict: str) -> None:
    few = Rules(0.55, real_data=True, test_count=8)
    assert judge(walked(0.75, 0.9, 0.7, 0.5, 0.6), contender, few).verdict == verdict


def parted(values: tuple[float, ...], apart: int = 0, is_loss: bool = False) -> Scores:
    """Rounds with their losses, of which as many as told, the last ones, went another way than they do by default."""
    n = len(values)
    ways = [(0.9, 0.5 + (0.01 if i >= n - apart else 0.0)) for i in range(n)]
    return Scores(tuple(range(n)), values, is_loss, tuple(ways))


def test_rounds_that_are_one_training_done_twice_add_nothing_to_the_floor() -> None:
    """Six rounds on 1,000 samples of which one differs, by one sample: beside all six apart a sixth of the variance."""
    values = (0.876, 0.865, 0.872, 0.871, 0.866, 0.872)
    other, few = parted((*values[:-1], 0.873), apart=1), Rules(0.55, real_data=True, test_count=1000)
    diff, half = difference(parted(values), other, 1000)
    _, whole = difference(parted(values), rounds(*other.values), 1000)
    assert diff == pytest.approx(0.1 / 6)
    assert half == pytest.approx((whole or 0) / math.sqrt(6))
    assert judge(parted(values), other, few).verdict == "kept"
    assert judge(parted(values), rounds(*other.values), few).verdict == "unclear"
    _, half = difference(parted((2.0, 2.0), is_loss=True), parted((2.0, 2.0), 1, is_loss=True), 1000)
    assert half == pytest.approx(0.5)


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize("scatter", [1.0, 3.0])
def test_the_interval_holds_nothing_where_a_third_of_the_rounds_part(n: int, scatter: float) -> None:
    """Rounding parts some trainings and leaves others as they are; on average nothing is lost."""
    draw = random.Random(f"{n} {scatter}")
    size, cases = scatter * math.sqrt(0.44 * 0.56 / 1000), 1500

    def case() -> bool:
        base = [draw.gauss(0.44, size) for _ in range(n)]
        apart = sum(draw.random() < 1 / 3 for _ in range(n))
        own = [draw.gauss(0.44, size) if i >= n - apart else value for i, value in enumerate(base)]
        diff, half = difference(parted(tuple(base)), parted(tuple(own), apart), 1000)
        assert half is not None
        return abs(diff) <= half

    assert sum(case() for _ in range(cases)) / cases > 0.94


def test_the_losses_of_a_process_stand_beside_its_score() -> None:
    found = record("a", 10, 0.66)
    epochs = [e.model_copy(update={"train_loss": 1.0 + e.index}) for e in found.epochs]
    both = scores_of([found.model_copy(update={"epochs": tuple(epochs)})], "accuracy")
    assert both is not None
    assert both.paths == (tuple(loss for e in epochs for loss in (e.train_loss, e.test_loss)),)
    lacking = scores_of([found], "accuracy")  # it knows nothing of the training's
    assert lacking is not None
    assert lacking.paths == ()


def test_final_quality_is_that_of_the_last_epoch_and_missing_ones_are_passed_over() -> None:
    found = scores_of([record("a", 10, 0.66, 0), record("a", 10, None, 1)], "accuracy")
    assert found == Scores((0,), (pytest.approx(0.66),))
    assert scores_of([record("a", 10, None)], "accuracy") is None


def test_another_number_of_epochs_is_not_judged() -> None:
    short = record("cpu-quick", 5, 0.50)
    short = short.model_copy(update={"epochs": short.epochs[:1]})
    found = compare_records([record("cpu-baseline", 85, 0.66), short, record("cpu-fine", 40, 0.70)])
    rows = {r.variant: r for r in found.rows}
    assert rows["cpu-quick"].verdict == "not judged"
    assert rows["cpu-quick"].verdict_reason == "it trained for 1 epoch, the baseline for 4"
    assert rows["cpu-quick"].quality == pytest.approx(short.epochs[0].test_accuracy)
    assert rows["cpu-quick"].speedup > 10
    assert rows["cpu-fine"].verdict == "better"
    # One process of several that was cut off says as little.
    cut = record("cpu-baseline", 85, 0.66, 1)
    found = compare_records(
        [record("cpu-baseline", 85, 0.66), cut.model_copy(update={"epochs": cut.epochs[:2]}), record("cpu-fine", 40)]
    )
    assert found.row("cpu-fine").verdict_reason == "it trained for 4 epochs, the baseline for 2 to 4"


def test_time_to_quality() -> None:
    runs = [record("a", 10, 0.70, r) for r in range(3)]
    reached = time_to_quality(runs, "accuracy", 0.66)
    assert reached == pytest.approx(30, rel=0.05)
    assert time_to_quality(runs, "accuracy", 0.99) is None
    assert time_to_quality([*runs[:1], record("a", 10, None, 1), record("a", 10, None, 2)], "accuracy", 0.6) is None


@pytest.mark.parametrize(
    ("baseline", "contender", "verdict"),
    [
        (losses(0.5), losses(0.5), "kept"),
        (losses(0.5), losses(0.48), "better"),
        (losses(0.5), losses(0.503), "unclear"),
        (losses(0.5), losses(0.52), "worse"),
        (losses(2.0, 2.01, 1.99), losses(2.0, 2.011, 1.99), "kept"),
        (losses(2.0, 2.01, 1.99), losses(2.2, 2.21, 2.19), "worse"),
        (losses(-1.0), losses(-1.2), "better"),
        (losses(0.0), losses(0.0), "kept"),
        (losses(0.0), losses(0.5), "not judged"),  # of nothing there are no percent
    ],
)
def test_verdicts_on_losses_of_which_less_is_better(baseline: Scores, contender: Scores, verdict: str) -> None:
    assert judge(baseline, contender, RULES).verdict == verdict


def test_losses_are_compared_in_percent() -> None:
    assert advantage(1.9, 2.0, "loss") == pytest.approx(5)
    assert advantage(0.7, 0.6, "accuracy") == pytest.approx(10)
    assert noise_points(2.0, 100, "loss") == 2.0
    assert difference(losses(2.0), losses(1.9), 100)[0] == pytest.approx(5)


@pytest.mark.parametrize(
    ("quality", "ends", "said"),
    [
        ("accuracy", (-3.0, -4.0, -2.0), "−3.0 pp, −4.0 to −2.0"),
        ("loss", (-5.0, -6.0, -4.0), "5.0 % worse, +4.0 to +6.0"),
        ("loss", (5.0, 4.0, 6.0), "5.0 % better, +4.0 to +6.0"),
        ("error", (-0.2, -0.5, 0.1), "0.2 % worse, −0.1 to +0.5"),
        ("loss", (-0.2, None, None), "0.2 % worse, n=1"),
        ("loss", (0.0, -1.0, 1.0), "the same, −1.0 to +1.0"),
        ("loss", (-0.0009, None, None), "the same, n=1"),
        ("loss", (0.049, -1.0, 1.0), "0.05 % better, −1.0 to +1.0"),
        ("loss", (-0.0011, None, None), "0.001 % worse, n=1"),
        ("loss", (0.05, None, None), "0.1 % better, n=1"),
        ("loss", (None, None, None), "– % better, n=1"),
    ],
)
def test_a_loss_is_worse_in_words_since_a_minus_reads_as_less_loss(
    quality: str, ends: tuple[float | None, float | None, float | None], said: str
) -> None:
    assert words.difference_span(*ends, quality) == said
