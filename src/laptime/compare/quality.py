"""Whether a faster variant is as good: accuracy beside the baseline's, with an interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Literal

from laptime.compare.floor import chance_of
from laptime.compare.statistics import CONFIDENCE, median, student
from laptime.records import DIVERGED, LadderRecord, RunRecord

Verdict = Literal["kept", "better", "worse", "unclear", "not judged"]

# A loss of quality below one percentage point is taken for none: two seeds of the same training differ by
# about as much.
MARGIN_POINTS = 1.0
# And never more than this share of what the baseline has learnt above chance: of two points learnt one is half.
_MARGIN_SHARE = 0.04

# The quality metrics of which less is better; differences are then in percent of the baseline's value.
LOWER_IS_BETTER = ("loss", "error")
# Names that are no words; of a mean average precision the binomial error over the test images stands for its noise.
_NAMES = {"map50": "mAP@0.5"}
# What two trainings of other seeds differ by in the loss, percent: as the binomial error, an interval's least width.
_LOSS_NOISE = 1.0
_NOTHING = 1e-12
_LOST = "so nothing could be lost"


@dataclass(frozen=True)
class Scores:
    """Final quality of each process of a variant, with its round: from 0 to 1, or a loss, of which less is better."""

    rounds: tuple[int, ...]
    values: tuple[float, ...]
    is_loss: bool = False

    @property
    def mean(self) -> float:
        return fmean(self.values)


@dataclass(frozen=True)
class Rules:
    """What decides whether quality can be judged at all.

    Attributes:
        floor: the baseline must reach it, from 0 to 1.
        real_data: parity on a stand-in says nothing about the real data.
        test_count: samples that the quality was measured on; 0 where unknown.
        chance: what is reached without having learnt anything, from 0 to 1.
        untrained: the loss before the training, where a loss is the quality; None where unknown.
        begun: the quality before the training, of a training of the user's own, whose floor nobody else knows.
        weighted: whether samples to train on are drawn by weights, and none but the user's own evaluation knows of it.
    """

    floor: float
    real_data: bool
    test_count: int
    chance: float = 0.0
    untrained: float | None = None
    begun: float | None = None
    weighted: bool = False


def rules_of(ladder: LadderRecord, records: Sequence[RunRecord]) -> Rules:
    """The rules of a ladder's data; its records know where a training of the user's own began.

    What an evaluation before the first step gave, else of a loss what the one-step checks had on a batch.
    """
    tested = min(ladder.limit_test or ladder.data.test_count, ladder.data.test_count)
    chance = chance_of(ladder.workload, len(ladder.data.classes), ladder.data.commonest)
    mine = [r for r in records if r.spec and r.spec.workload == ladder.workload]
    begun = next((v for r in mine if (v := r.before.get(ladder.quality)) is not None and math.isfinite(v)), None)
    weighted = ladder.data.weighted and ladder.quality in ("accuracy", "loss")
    if ladder.quality not in LOWER_IS_BETTER:
        chance = max(chance, begun or 0.0)
        return Rules(ladder.quality_floor, ladder.real_data, tested, chance, None, begun, weighted)
    checks = [r.check.loss_baseline for r in mine if r.check and ladder.quality == "loss"]
    known = [loss for loss in checks if math.isfinite(loss)]
    untrained = begun if begun is not None or not known else median(known)
    return Rules(ladder.quality_floor, ladder.real_data, tested, chance, untrained, begun, weighted)


@dataclass(frozen=True)
class Judgement:
    """A variant's quality beside the baseline's; differences in points, of a loss in percent; above 0 is better."""

    verdict: Verdict
    reason: str
    value: float | None = None
    diff_points: float | None = None
    low_points: float | None = None
    high_points: float | None = None


def has_learnt(reached: float | None, quality: str, rules: Rules) -> bool:
    """Whether a baseline's quality is one that variants can be judged beside.

    Of real data, not below the floor, and better than before the training where that is known.
    """
    if not rules.real_data or reached is None:
        return False
    lower = quality in LOWER_IS_BETTER
    return not _where_it_began(reached, lower, rules) and (lower or reached >= rules.floor)


def _where_it_began(reached: float, lower: bool, rules: Rules) -> bool:
    if rules.begun is None:
        return False
    gained = rules.begun - reached if lower else reached - rules.begun
    return gained <= _NOTHING  # means of equal numbers differ in their last digit


def final_quality(record: RunRecord, quality: str) -> float | None:
    """The last counted epoch's `test_<quality>`, None where it was not measured or is no number."""
    if not record.epochs:
        return None
    value = getattr(max(record.epochs, key=lambda e: e.index), f"test_{quality}", None)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def without_quality(record: RunRecord, quality: str) -> bool:
    """Whether a training came to no quality: its loss grew beyond all numbers, or its last evaluation gave none."""
    if record.status == "failed":
        return DIVERGED in (record.error or "")
    last = max(record.epochs, key=lambda e: e.index, default=None)
    evaluated = record.status == "done" and last is not None and last.evaluate_s is not None
    return evaluated and final_quality(record, quality) is None


def scores_of(records: Sequence[RunRecord], quality: str) -> Scores | None:
    """Final quality of the processes that have one; None without any."""
    found = [(r.spec.repeat if r.spec else 0, final_quality(r, quality)) for r in records]
    known = [(round_, value) for round_, value in found if value is not None]
    if not known:
        return None
    return Scores(tuple(r for r, _ in known), tuple(v for _, v in known), quality in LOWER_IS_BETTER)


def judge(baseline: Scores | None, contender: Scores | None, rules: Rules) -> Judgement:
    """Judges a contender's quality.

    With D the difference in percentage points, [low, high] its interval and M the margin, in this order: `better`
    where low > 0; `kept` where low >= -M; `worse` where high < 0 and D < -M, or where nothing was learnt (seeds may
    scatter too much for an interval to tell all from nothing); else `unclear`. `not judged` where a number is missing,
    the data is a stand-in, the baseline itself has not learned enough to lose something, or its loss is 0.
    """
    if contender is None:
        return Judgement("not judged", "its quality was not measured")
    if baseline is None:
        return Judgement("not judged", "the baseline's quality is not known", contender.mean)
    if baseline.is_loss and abs(baseline.mean) < _NOTHING < abs(contender.mean):
        return Judgement("not judged", "the baseline's is 0, of which nothing is a share", contender.mean)
    diff, half = difference(baseline, contender, rules.test_count)
    low, high = (None, None) if half is None else (diff - half, diff + half)
    verdict, reason = _verdict(baseline, rules, (diff, low, high))
    if verdict == "unclear" and _unlearnt(baseline, contender, rules):
        verdict, reason = "worse", "no training of it ended better than it began, and all of the baseline's did"
    return Judgement(verdict, reason, contender.mean, diff, low, high)


def _verdict(baseline: Scores, rules: Rules, found: tuple[float, float | None, float | None]) -> tuple[Verdict, str]:
    diff, low, high = found
    if not rules.real_data:
        return "not judged", "the data is a stand-in"
    if baseline.mean < rules.floor and not baseline.is_loss:
        return (
            "not judged",
            f"the baseline reached {baseline.mean:.1%}, below the floor of {rules.floor:.1%}".replace("%", " %"),
        )
    if _where_it_began(baseline.mean, baseline.is_loss, rules):
        # A net that gives the common class alone is right more often than one that was taught all of them alike.
        why = "but draws by weights: an evaluate() that counts all classes alike would tell" if rules.weighted else ""
        return "not judged", f"the baseline is no better than it was before its training, {why or _LOST}"
    if low is None or high is None:
        return "not judged", "the size of the test set is not known"
    margin = margin_points(baseline, rules)
    if low > 0:
        return "better", ""
    if low >= -margin:
        return "kept", ""
    if high < 0 and diff < -margin:
        return "worse", ""
    little = f", and of the little that was learnt at most {margin:.2g} may be lost" if margin < MARGIN_POINTS else ""
    return "unclear", f"the interval holds both kept and lost quality{little}"


def _unlearnt(baseline: Scores, contender: Scores, rules: Rules) -> bool:
    """Whether no training of a contender ended better than it began, and all of the baseline's by more than noise."""
    if rules.begun is None:
        return False
    began, *ends = (Scores((0,), (v,), baseline.is_loss) for v in (rules.begun, *contender.values, *baseline.values))
    won = [difference(began, end, rules.test_count) for end in ends]
    mine, others = won[: len(contender.values)], won[len(contender.values) :]
    return all(gain <= 0 for gain, _ in mine) and all(gain > (noise or 0) for gain, noise in others)


def margin_points(baseline: Scores, rules: Rules) -> float:
    """What counts as no loss beside a baseline, in points, of a loss in percent."""
    learnt = baseline.mean - rules.chance
    if baseline.is_loss:
        fallen = math.inf if rules.untrained is None else rules.untrained - baseline.mean
        learnt = fallen / max(abs(baseline.mean), _NOTHING)
    return min(MARGIN_POINTS, max(0.0, 100 * _MARGIN_SHARE * learnt))


def difference(baseline: Scores, contender: Scores, test_count: int) -> tuple[float, float | None]:
    """Contender less baseline, in percentage points, and half the width of its interval.

    Over n common rounds the difference is the mean of the rounds' differences, and its interval the wider of
    two: Student's, see `_scatter`, and that of the binomial error, sqrt((p(1 - p) + q(1 - q)) / (N n)) for N
    test samples. The trainings' scatter already holds the binomial error (undecided samples fall anew in each
    training; what the choice of samples adds cancels, for all variants are scored on the same ones), so the
    two are not added: the binomial one is a floor for trainings that happen to agree. With one round it is the
    only one. Without common rounds both samples count by themselves. Of a loss all of it is in percent of the
    baseline's mean, less is more, and the floor is what two seeds differ by.
    """
    shared = sorted(set(baseline.rounds) & set(contender.rounds))
    unique = all(len(set(s.rounds)) == len(s.rounds) for s in (baseline, contender))
    common = bool(shared) and unique
    p, q = (_values(s, shared) if common else list(s.values) for s in (baseline, contender))
    p, q = _gains(baseline, p, q)
    n = min(len(p), len(q))
    diff = (fmean(q) - fmean(p)) * 100
    if test_count < 1:
        return diff, None
    if baseline.is_loss:
        floor = _LOSS_NOISE / 100 / math.sqrt(n)
    else:
        binomial = math.sqrt((_spread(fmean(p)) + _spread(fmean(q))) / (test_count * n))
        floor = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * binomial
    return diff, max(floor, _scatter(p, q, common)) * 100


def _scatter(p: list[float], q: list[float], common: bool) -> float:
    """Half the width of Student's interval for the difference of two means; 0 where a side has one value.

    The narrower of two where rounds are common: over the rounds' differences, which is the better one where both sides
    of a round rise and fall together, and over each side by itself, which has twice the degrees of freedom. By the
    first alone two rounds seldom tell twelve points from none (docs/log.md has what both cover).
    """
    n = min(len(p), len(q))
    if n < 2:
        return 0.0
    found = [_half(variance(p) / len(p) + variance(q) / len(q), 2 * (n - 1))]
    if common:
        found.append(_half(variance([b - a for a, b in zip(p, q, strict=True)]) / n, n - 1))
    return min(found)


def _half(error: float, degrees: int) -> float:
    """Half the width of Student's interval, of the square of a standard error and its degrees of freedom."""
    return student(0.5 + CONFIDENCE / 2, degrees) * math.sqrt(error)


def _gains(baseline: Scores, p: list[float], q: list[float]) -> tuple[list[float], list[float]]:
    """Values of both sides of which more is better; losses as shares of the baseline's mean, with the other sign."""
    if not baseline.is_loss:
        return p, q
    scale = max(abs(fmean(p)), _NOTHING)
    return [-v / scale for v in p], [-v / scale for v in q]


def name_of(quality: str) -> str:
    """How a quality metric is called in reports."""
    return _NAMES.get(quality, quality)


def advantage(value: float, beside: float, quality: str) -> float:
    """By how much a final quality is better than another, in percentage points; of a loss in percent."""
    if quality in LOWER_IS_BETTER:
        return 100 * (beside - value) / max(abs(beside), _NOTHING)
    return 100 * (value - beside)


def shown(value: float, quality: str) -> str:
    """A final quality in words: a share in percent, a loss as it is."""
    return f"{value:.4g}" if quality in LOWER_IS_BETTER else f"{value * 100:.1f} %"


def noise_points(value: float, test_count: int, quality: str = "accuracy") -> float:
    """Two standard errors of the difference of two trainings, in percentage points; infinite without tests."""
    if quality in LOWER_IS_BETTER:
        return 2 * _LOSS_NOISE
    return 200 * math.sqrt(2 * _spread(value) / test_count) if test_count else math.inf


def _values(scores: Scores, rounds: Sequence[int]) -> list[float]:
    by_round = dict(zip(scores.rounds, scores.values, strict=True))
    return [by_round[r] for r in rounds]


def _spread(p: float) -> float:
    """p(1 - p), with 0 and 1 moved in by one in a thousand: a perfect score on few samples is not certain."""
    inside = min(max(p, 0.001), 0.999)
    return inside * (1 - inside)
