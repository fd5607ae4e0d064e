"""Whether a faster variant is as good: accuracy beside the baseline's, with an interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from laptime.compare.differences import LOSS_NOISE, NOTHING, Scores, difference, possible, spread
from laptime.compare.floor import chance_of
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
_LOST = "so nothing could be lost"


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
    return gained <= NOTHING  # means of equal numbers differ in their last digit


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
    found = [(r.spec.repeat if r.spec else 0, final_quality(r, quality), _path(r)) for r in records]
    known = [(round_, value, path) for round_, value, path in found if value is not None]
    if not known:
        return None
    rounds, values, paths = zip(*known, strict=True)
    return Scores(rounds, values, quality in LOWER_IS_BETTER, paths if all(paths) else ())


def _path(record: RunRecord) -> tuple[float, ...]:
    """The losses of training and test, epoch by epoch; empty where some are not known."""
    found = [loss for epoch in record.epochs for loss in (epoch.train_loss, epoch.test_loss)]
    known = tuple(loss for loss in found if loss is not None)
    return known if len(known) == len(found) else ()


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
    if baseline.is_loss and abs(baseline.mean) < NOTHING < abs(contender.mean):
        return Judgement("not judged", "the baseline's is 0, of which nothing is a share", contender.mean)
    diff, half = difference(baseline, contender, rules.test_count)
    low, high = (None, None) if half is None else (diff - half, diff + half)
    verdict, reason = _verdict(baseline, rules, (diff, low, high))
    if low is not None and high is not None:  # what is told, behind the verdict
        low, high = possible(baseline, contender, rules.begun or 0.0, (low, high))
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
        learnt = fallen / max(abs(baseline.mean), NOTHING)
    return min(MARGIN_POINTS, max(0.0, 100 * _MARGIN_SHARE * learnt))


def name_of(quality: str) -> str:
    """How a quality metric is called in reports."""
    return _NAMES.get(quality, quality)


def advantage(value: float, beside: float, quality: str) -> float:
    """By how much a final quality is better than another, in percentage points; of a loss in percent."""
    if quality in LOWER_IS_BETTER:
        return 100 * (beside - value) / max(abs(beside), NOTHING)
    return 100 * (value - beside)


def shown(value: float, quality: str) -> str:
    """A final quality in words: a share in percent, a loss as it is."""
    return f"{value:.4g}" if quality in LOWER_IS_BETTER else f"{value * 100:.1f} %"


def noise_points(value: float, test_count: int, quality: str = "accuracy") -> float:
    """Two standard errors of the difference of two trainings, in percentage points; infinite without tests."""
    if quality in LOWER_IS_BETTER:
        return 2 * LOSS_NOISE
    return 200 * math.sqrt(2 * spread(value) / test_count) if test_count else math.inf
