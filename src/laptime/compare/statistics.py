"""Epoch times and their ratios with intervals: a bootstrap over processes, then epochs, paired by round.

Nothing here knows records: in go the seconds of the kept epochs of each process, out come point and interval.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, median, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    Ints = NDArray[int64]

CONFIDENCE = 0.95
"""Share of cases that an interval is to cover."""
RESAMPLES = 2000
# With fewer processes the expanded percentile is rarer than one resample in a thousand and comes out as the
# range of the sample, which covers 73 % of cases for three processes of one epoch (docs/comparison.md).
FEW_PROCESSES = 6
# Bounds the memory of one block of resamples to some tens of MiB.
BLOCK = 1_000_000


@dataclass(frozen=True)
class Laps:
    """The kept epochs of one variant.

    Attributes:
        name: the variant; two variants of different names draw their epochs independently.
        rounds: the round of each process.
        epochs: seconds of the kept epochs of each process, at least one each, all above 0.
    """

    name: str
    rounds: tuple[int, ...]
    epochs: tuple[tuple[float, ...], ...]

    @property
    def n(self) -> int:
        return len(self.epochs)

    @property
    def n_epochs(self) -> int:
        return sum(len(e) for e in self.epochs)

    def only(self, rounds: Sequence[int]) -> Laps:
        """The processes of some rounds, in the order of the rounds."""
        kept = sorted((r, e) for r, e in zip(self.rounds, self.epochs, strict=True) if r in rounds)
        return replace(self, rounds=tuple(r for r, _ in kept), epochs=tuple(e for _, e in kept))


@dataclass(frozen=True)
class Estimate:
    """A point with its interval; one process (n=1) has none, and no bounds are made up for it."""

    point: float
    low: float | None
    high: float | None
    n: int


def epoch_seconds(laps: Laps) -> float:
    """Seconds of an epoch: the median over processes of the median of the kept epochs."""
    return median([median(e) for e in laps.epochs])


class Bootstrap:
    """Draws resamples, the same for the same seed, and keeps them for the next ratio of the variant.

    Args:
        resamples: how often to draw.
        seed: of all draws.
    """

    def __init__(self, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.resamples = resamples
        self.seed = seed
        self._drawn: dict[tuple[Laps, bool], Floats] = {}

    def time(self, laps: Laps) -> Estimate:
        """Seconds of an epoch with their interval."""
        point = epoch_seconds(laps)
        if laps.n < 2:
            return Estimate(point, None, None, laps.n)
        low, high = self._interval(math.log(point), self._draws(laps, paired=True), laps.n)
        return Estimate(point, low, high, laps.n)

    def ratio(self, slow: Laps, fast: Laps) -> Estimate:
        """How many times as fast `fast` is as `slow`: epoch seconds over epoch seconds.

        Where both have rounds in common, only those are compared and each resample takes the same rounds of
        both, for slow minutes of a shared machine hit all variants of a round alike. Without common rounds,
        and where a round occurs twice in a variant (records that no ladder numbered), the two are drawn
        independently.
        """
        shared = sorted(set(slow.rounds) & set(fast.rounds))
        paired = bool(shared) and _unique(slow.rounds) and _unique(fast.rounds)
        if paired:
            slow, fast = slow.only(shared), fast.only(shared)
        point, n = epoch_seconds(slow) / epoch_seconds(fast), min(slow.n, fast.n)
        if n < 2:
            return Estimate(point, None, None, n)
        draws = self._draws(slow, paired) - self._draws(fast, paired)
        low, high = self._interval(math.log(point), draws, n)
        return Estimate(point, low, high, n)

    def _draws(self, laps: Laps, paired: bool) -> Floats:
        """Logarithms of the epoch seconds of each resample [resamples]."""
        key = (laps, paired)
        if key not in self._drawn:
            self._drawn[key] = self._resample(laps, paired)
        return self._drawn[key]

    def _resample(self, laps: Laps, paired: bool) -> Floats:

        import numpy as np

        own = zlib.crc32(laps.name.encode())
        # The rounds of a paired draw depend on their number alone: so both variants of a ratio get the same
        # ones.
        rounds = np.random.default_rng([self.seed, laps.n] if paired else [self.seed, laps.n, own])
        epochs = np.random.default_rng([self.seed, own, 1])
        longest = max(len(e) for e in laps.epochs)
        counts = np.array([len(e) for e in laps.epochs])
        times = np.full((laps.n, longest), np.inf)
        for row, values in enumerate(laps.epochs):
            times[row, : len(values)] = values
        block = max(1, BLOCK // (laps.n * longest))
        drawn = []
        for start in range(0, self.resamples, block):
            size = min(block, self.resamples - start)
            picks = rounds.integers(0, laps.n, (size, laps.n))
            places = epochs.random((size, laps.n, longest))
            drawn.append(_medians(times, counts, picks, places))
        return np.log(np.concatenate(drawn))

    def _interval(self, log_point: float, draws: Floats, n: int) -> tuple[float, float]:
        """The interval of a positive quantity from its drawn logarithms.

        A plain percentile interval is too narrow for few processes. From six on it is expanded: the share
        cut off at each end is Phi(-sqrt(n / (n - 1)) * t), t being Student's quantile for n - 1 degrees of
        freedom. Below six that share can't be read from the resamples, so Student's interval with the
        bootstrap's standard error, widened by the same sqrt(n / (n - 1)), is taken on the logarithm. Both:
        Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015),
        371-386, arXiv:1411.5279.
        """
        import numpy as np

        reach = math.sqrt(n / (n - 1)) * student(0.5 + CONFIDENCE / 2, n - 1)
        if n < FEW_PROCESSES:
            half = reach * float(draws.std(ddof=1))
            return math.exp(log_point - half), math.exp(log_point + half)
        cut = NormalDist().cdf(-reach)
        low, high = np.quantile(draws, [cut, 1 - cut])
        return math.exp(float(low)), math.exp(float(high))


def mean_ratio(ratios: Sequence[float]) -> Estimate:
    """The geometric mean of ratios that were each measured in itself, with Student's interval on the logarithm."""
    logs = [math.log(ratio) for ratio in ratios]
    n, point = len(logs), math.exp(fmean(logs))
    if n < 2:
        return Estimate(point, None, None, n)
    half = student(0.5 + CONFIDENCE / 2, n - 1) * stdev(logs) / math.sqrt(n)
    return Estimate(point, point * math.exp(-half), point * math.exp(half), n)


def student(share: float, degrees: int) -> float:
    """Student's quantile; from scipy.special, since importing scipy.stats takes over a second."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def _unique(rounds: Sequence[int]) -> bool:
    return len(set(rounds)) == len(rounds)


def _medians(times: Floats, counts: Ints, picks: Ints, places: Floats) -> Floats:
    """Medians over processes of medians over epochs.

    Args:
        times: seconds [processes, longest], infinity behind the last epoch of a process.
        counts: epochs of each process [processes].
        picks: processes drawn [resamples, processes].
        places: places of the epochs drawn, from 0 to 1 [resamples, processes, longest].
    """
    import numpy as np

    many = counts[picks][..., None]
    values = times[picks[..., None], (places * many).astype(np.int64)]
    values[np.arange(times.shape[1]) >= many] = np.inf
    values.sort(axis=-1)
    lower = np.take_along_axis(values, (many - 1) // 2, axis=-1)
    upper = np.take_along_axis(values, many // 2, axis=-1)
    of_processes = np.sort(((lower + upper) / 2)[..., 0], axis=-1)
    n = of_processes.shape[-1]
    middle: Floats = (of_processes[:, (n - 1) // 2] + of_processes[:, n // 2]) / 2
    return middle
