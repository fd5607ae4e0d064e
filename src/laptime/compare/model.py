"""A comparison as data (`laptime.comparison/1`): all that the reports show, numbers not yet rounded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from laptime.compare.anatomy import InferenceRow, OperatorTable, RoofRow, StepRow
from laptime.compare.quality import Verdict
from laptime.records import Advice, CheckRecord, CompileRecord, Readable, SearchRecord, Status

Worth = Literal["earns its place", "within noise", "costs", "left", "needed", "not measured"]
HeadlineKind = Literal["fastest", "quality_kept", "without_dead_taps", "exact_and_numeric"]


class PartWorth(Readable):
    """One part of the optimized variant.

    Attributes:
        part: the optimization.
        variant: the optimized variant without it.
        epoch_s: seconds of an epoch without it; None where that variant came to no time.
        ratio: seconds without it over seconds with it: above 1 it brings something. With its interval of 95 %.
        n: processes that the ratio rests on, or pairs of them.
        by_turns: whether it is of pairs of processes that trained by turns.
        quality_points: quality without it less quality with it, in percentage points.
        quality_noise_points: half the interval of that difference.
        worth: `left` where it was taken out in the first round, `needed` where the variant does not run without it.
        reason: why it left, or what went wrong.
    """

    part: str
    variant: str
    epoch_s: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    n: int = 0
    by_turns: bool = False
    quality_points: float | None = None
    quality_noise_points: float | None = None
    worth: Worth
    reason: str = ""


class Conditions(Readable):
    """Under which conditions the times hold.

    Attributes:
        epochs: counted epochs of each process.
        repeats: rounds, that is processes of each variant.
        data: what the data is, in words.
        called: what the user calls it, where it is not the workload's usual data; empty of that.
        data_notice: what the user must know about the data, empty when nothing.
        train_count, test_count: samples that were used, of `train_there` and `test_there`; 0 where unknown.
        started_at: seconds since 1970.
    """

    workload: str
    preset: str = ""
    device: str = ""
    machine: str = ""
    cores: int = 0
    fingerprint: str = ""
    torch: str = ""
    data: str = ""
    called: str = ""
    data_kind: str = ""
    data_notice: str = ""
    real_data: bool = True
    train_count: int = 0
    test_count: int = 0
    train_there: int = 0
    test_there: int = 0
    epochs: int = 0
    repeats: int = 0
    quality: str = "accuracy"
    quality_floor: float = 0.0
    commit: str | None = None
    started_at: float | None = None


class VariantRow(Readable):
    """One variant beside the baseline; intervals of 95 %, without bounds where one process ran.

    Attributes:
        error: what went wrong, with both numbers where the gradient check failed.
        ranks: processes that trained together in each run.
        n: processes that the epoch time rests on.
        n_epochs: kept epochs in them.
        epoch_s: seconds of an epoch.
        speedup: baseline's epoch seconds over this variant's, over `speedup_n` common rounds.
        by_turns: whether the speed-up is of `speedup_n` pairs that trained by turns, since the rounds left it open.
        quality: final `test_<quality>` from 0 to 1, mean over processes.
        quality_strict: of a detector the mean over overlaps of 0.5 to 0.95, which stands beside that at 0.5.
        quality_diff_points: to the baseline, in percentage points.
        on, adds, joined, reason: see `laptime.records.Rung`; for what was left out, `reason` says why.
        contribution: epoch seconds of `on` over this variant's.
        ceiling_share: floating point operations a second over the machine's measured ceiling in this
            precision.
        ceiling_note: says so where the share is above 1, which means that the ceiling was measured too low.
        parts: shares of an epoch by part, they add up to 1.
        warmup_s, startup_s: medians over processes.
        time_to_accuracy_s: training seconds until the baseline's final quality was first reached.
        compile_s: seconds inside the compiler, the most that a process spent; None without one.
        break_even_epochs: counted epochs after which compiling has paid, None where it never does.
        break_even_on: the variant without compilation that this was reckoned against.
    """

    variant: str
    status: Status
    error: str | None = None
    optimizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    ranks: int = 1
    n: int = 0
    n_epochs: int = 0
    epoch_s: float | None = None
    epoch_s_low: float | None = None
    epoch_s_high: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_n: int = 0
    by_turns: bool = False
    samples_per_s: float | None = None
    quality: float | None = None
    quality_strict: float | None = None
    quality_diff_points: float | None = None
    quality_low_points: float | None = None
    quality_high_points: float | None = None
    verdict: Verdict = "not judged"
    verdict_reason: str = ""
    peak_memory_mib: float | None = None
    on: str | None = None
    adds: str | None = None
    joined: bool | None = None
    reason: str = ""
    contribution: float | None = None
    contribution_low: float | None = None
    contribution_high: float | None = None
    precision: str = "fp32"
    ceiling_share: float | None = None
    ceiling_note: str = ""
    parts: dict[str, float] = Field(default_factory=dict)
    warmup_s: float | None = None
    startup_s: float | None = None
    time_to_accuracy_s: float | None = None
    compile_s: float | None = None
    compilation: CompileRecord | None = None
    break_even_epochs: int | None = None
    break_even_on: str | None = None
    check: CheckRecord | None = None
    removed_parameters: int = 0
    notes: tuple[str, ...] = ()


class Headline(Readable):
    """The fastest variant of a kind that is not worse, as a figure and as a sentence."""

    kind: HeadlineKind
    title: str
    sentence: str
    variant: str | None = None
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    verdict: Verdict | None = None
    real_data: bool = True


class Scaling(Readable):
    """What a variant on several ranks is worth against one on one rank.

    Attributes:
        kind: `strong` (the batch is shared out) or `weak` (each rank has a whole one).
        samples_per_s: of all ranks together.
        against: the variant on one rank, the same list of optimizations where `same_list`, else the fastest.
        gain: throughput over that of `against`.
        efficiency: the gain by rank; 1 is perfect.
    """

    variant: str
    ranks: int
    kind: Literal["strong", "weak"]
    samples_per_s: float
    against: str
    same_list: bool
    gain: float
    efficiency: float


class Comparison(Readable):
    """A ladder's variants beside their baseline.

    Attributes:
        rows: in the order of the ladder; failed, wrong and left-out variants with their reasons.
        scaling: of the variants on several ranks.
        cautions: what a reader must know before believing a figure.
        parts: what each part of the optimized variant is worth, where they were left out in turn.
        steps: where a step goes, by variant with a breakdown.
        inference: a forward pass alone, by variant and batch size.
        roof: how far from the machine's ceilings, by profiled variant.
        operators: by traced variant, the baseline's and the fastest's first.
        advice: what to try next, by variant.
        search: what a search within a budget tried; None where none led the ladder.
    """

    schema_: Literal["laptime.comparison/1"] = Field(default="laptime.comparison/1", alias="schema")
    id: str
    baseline: str
    conditions: Conditions
    rows: tuple[VariantRow, ...]
    headlines: tuple[Headline, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    cautions: tuple[str, ...] = ()
    parts: tuple[PartWorth, ...] = ()
    steps: tuple[StepRow, ...] = ()
    inference: tuple[InferenceRow, ...] = ()
    roof: tuple[RoofRow, ...] = ()
    operators: tuple[OperatorTable, ...] = ()
    advice: dict[str, Advice] = Field(default_factory=dict)
    search: SearchRecord | None = None

    def row(self, variant: str) -> VariantRow | None:
        """The row of a variant, None where there is none."""
        return next((r for r in self.rows if r.variant == variant), None)

    @property
    def tried(self) -> tuple[VariantRow, ...]:
        """The rows that tables show one by one; of what was left out there is only a reason to tell."""
        return tuple(r for r in self.rows if r.status != "left_out")

    @property
    def drawn(self) -> tuple[VariantRow, ...]:
        """The rows that plots show: what only leaves a part out has a table of its own, unless it is a headline."""
        hidden = {p.variant for p in self.parts} - {h.variant for h in self.headlines}
        return tuple(r for r in self.rows if r.variant not in hidden)

    @property
    def told(self) -> tuple[Headline, ...]:
        """The headlines that are shown: nothing of dead taps where no variant that ran crops any."""
        crops = any("dead-taps" in r.names for r in self.tried)
        return tuple(h for h in self.headlines if crops or h.kind != "without_dead_taps")

    @property
    def processes(self) -> int:
        """What the first headline rests on; 0 where there is none, and where it names its pairs by turns itself."""
        best = self.headline("fastest")
        row = self.row(best.variant) if best and best.variant else None
        return 0 if best is None or (row is not None and row.by_turns) else best.n

    def headline(self, kind: HeadlineKind) -> Headline | None:
        return next((h for h in self.headlines if h.kind == kind), None)
