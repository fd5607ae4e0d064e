"""A ladder: what was planned, probed and decided; the runs' records stand in folders beside it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from laptime.records.base import Moment, Readable
from laptime.records.machine import Machine
from laptime.spec import DataSpec, OptimizationSpec

LADDER_SCHEMA = "laptime.ladder/1"
# The folder of a ladder's trial turns and pairs, beside those of its variants.
TRIALS = "trials"
# The folder of the turns that verified advice.
VERIFY = "verify"
# The folder of the turns that tried a search's changes.
SEARCH = "search"


# Seconds, and ratios of them: logarithms are taken of them.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


# A probe's gain below this is noise.
LEAST_GAIN = 1.05


class ProbeRecord(Readable):
    """What a few seconds of probing said about this machine: which numeric rungs may enter.

    Attributes:
        gains: speed of an optimization over not having it, by name at the baseline's batch and by `name@batch` at the
            ladder's large one.
        batches: samples of the batch that was tried, by the names of gains: fewer where there are fewer to train on.
        costs_s: seconds that it took to get there (compilation), by the same names.
        beside: by the names of gains that were measured with another optimization on both sides, which one: none shows
            without it, or with it none is left.
        refusals: by optimization, why it can't be had here at all, or why its probe came to no end.
    """

    machine: Machine = Machine()
    gains: dict[str, float] = Field(default_factory=dict)
    batches: dict[str, int] = Field(default_factory=dict)
    costs_s: dict[str, float] = Field(default_factory=dict)
    beside: dict[str, str] = Field(default_factory=dict)
    refusals: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0

    def with_measured(self, more: ProbeRecord) -> ProbeRecord:
        """With the gains of another one, and what belongs to them."""
        names = ("gains", "batches", "costs_s", "beside")
        return self.model_copy(update={name: getattr(self, name) | getattr(more, name) for name in names})


class Rung(Readable):
    """One variant of a ladder, as it was decided.

    Attributes:
        optimizations: the list that the variant's name stands for.
        classes: the classes of its optimizations, without doubles.
        on: the variant that it is one thing more than; None for the baseline.
        adds: the optimization that it adds to `on`; None for the baseline and for `optimized`.
        joined: whether the added optimization stayed in the best so far; None where that was not the question.
        reason: why it stayed or not, in words.
    """

    variant: str
    optimizations: tuple[OptimizationSpec, ...] = ()
    classes: tuple[str, ...] = ()
    on: str | None = None
    adds: str | None = None
    joined: bool | None = None
    reason: str = ""


class LeftOut(Readable):
    """A variant that was not run, and why."""

    variant: str
    reason: str


class Dropped(Readable):
    """An optimization that left the optimized variant, since nothing showed that it makes that faster.

    Attributes:
        with_s, without_s: fastest epoch of both sides in the first round and in a trial; where processes took turns
            the ratio is theirs.
        n: processes of each side, or pairs that took turns.
    """

    name: str
    with_s: Positive
    without_s: Positive
    n: int = 2
    reason: str


Outcome = Literal["faster", "not faster", "not shown", "worse", "unclear", "failed"]


class SearchMove(Readable):
    """One change that a search tried on the best list so far.

    Attributes:
        change: `+name:option=value`, `-name`, or `name:option=value` of a part that was there already.
        klass: the class of what changed.
        predicted: the share of an epoch that the advice promised, from and to; None where it said nothing.
        first: seconds of an epoch with the change over those without, of the pair that decided whether and when more
            were run, and nothing else.
        ratios: the same of each of those.
        by_turns: whether the processes of a pair trained by turns.
        outcome: `faster` is what the search went on from; `not shown` may be faster by less than the noise, and of
            `unclear` quality is what is faster and seems to learn less.
        reason: of quality, or what went wrong, in words; empty where the ratios say all.
    """

    change: str
    klass: str = ""
    predicted: tuple[float, float] | None = None
    first: Positive | None = None
    ratios: tuple[Positive, ...] = ()
    by_turns: bool = False
    outcome: Outcome = "failed"
    reason: str = ""

    @property
    def adopted(self) -> bool:
        return self.outcome == "faster"


class SearchRecord(Readable):
    """A search for the fastest variant within a budget.

    Attributes:
        budget_s: seconds for everything from the first process on.
        spent_s: seconds that the search itself took, its comparison with where it began with it.
        start: the variant that it began with.
        start_quality: what each variant that it could begin with learns, in words; where that can't be judged the parts
            by which it may be less, empty without any.
        variant: what it found; empty where it adopted nothing.
        list: what that stands for, as a name that `laptime run` takes anywhere.
        moves: in the order in which they were tried.
        untried: changes for which there was no time.
        unjudged: changes of what is learnt that were not tried, since quality can't be judged here.
        confirmed: seconds of an epoch of `variant` over those of `start`, of pairs that decided nothing.
        ended: why it came to an end.
    """

    budget_s: Positive
    spent_s: float = 0.0
    start: str = ""
    start_quality: str = ""
    variant: str = ""
    list: str = ""
    moves: tuple[SearchMove, ...] = ()
    untried: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    confirmed: tuple[Positive, ...] = ()
    ended: str = ""


class LadderRecord(Readable):
    """A ladder: what was planned and decided; the runs' records stand in folders beside it.

    Attributes:
        id: unique, sortable by time.
        quality: name of the quality metric (`accuracy`), as `test_<quality>` in the epochs.
        quality_floor: below it quality is not judged.
        real_data: whether the data is what it claims to be; parity is never claimed on a stand-in.
        laptime: version of laptime; None in a ladder of one that did not note it.
        request: the options that it was asked for with, without credentials, so that it can be gone on with; None in
            a ladder of a version that did not keep them.
        turns: processes that have ended, trials and verifications with them, whatever came of each; one that was
            interrupted has not.
        turns_s: seconds that each of them took, waiting for its device with it.
        search: the search within a budget that led it; None for a ladder of rungs.
        worths: seconds of an epoch of the optimized variant without a part over those with all, of each pair of
            processes that trained by turns, by the name of the variant without.
        confirmed: seconds of an epoch of a variant over the baseline's, of each pair of processes that trained by turns
            since the rounds left its gain open, by the variant's name.
        retracted: how often a variant was taken back, by its name: each time its run in the tracking store is another.
        retried: how often a process of a variant was tried again whose epochs were told already, by its name: each time
            the variant's run is another, too.
    """

    schema_: str = Field(default=LADDER_SCHEMA, alias="schema")
    id: str
    workload: str
    preset: str
    device: str
    data: DataSpec
    probe: ProbeRecord = ProbeRecord()
    rungs: tuple[Rung, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    worths: dict[str, tuple[Positive, ...]] = Field(default_factory=dict)
    confirmed: dict[str, tuple[Positive, ...]] = Field(default_factory=dict)
    epochs: int = 1
    repeats: int = 1
    limit_train: int | None = None
    limit_test: int | None = None
    seed: int = 0
    quality: str = "accuracy"
    quality_floor: float = 0.0
    commit: str | None = None
    laptime: str | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    status: Literal["running", "done", "failed", "interrupted"] = "running"
    request: dict[str, Any] | None = None
    turns: int = 0
    turns_s: tuple[float, ...] = ()
    search: SearchRecord | None = None
    retracted: dict[str, int] = Field(default_factory=dict)
    retried: dict[str, int] = Field(default_factory=dict)

    @property
    def real_data(self) -> bool:
        return self.data.kind != "synthetic"
