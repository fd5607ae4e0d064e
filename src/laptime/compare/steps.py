"""From the records of a variant's processes to the inside of its steps; and how each report writes that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from laptime.compare import words
from laptime.compare.anatomy import InferenceRow, RankStep, RoofRow, StepRow
from laptime.compare.parts import mean_shares, ordered
from laptime.compare.rows import Runs
from laptime.records import EpochRecord, Quartiles
from laptime.records.rates import middle

TITLE = "Where a step goes"
_LEAD = (
    "Milliseconds of the training process in the middle step, small figures are shares of the mean step. “data” is the "
    "wait for a batch that nothing hides, “rest” what stands between the parts. "
)
_LEAD_GPU = (
    "On a GPU the host only asks for the work and runs ahead: the step is then on the device's clock, the parts are "
    "the host's and may add up to less, and the device's own stand below. "
)
_LEAD_END = "An epoch's first step is left out: it waits for the first batch."
# Columns and fields of what stands beside the steps.
BESIDE = {
    "first batch": "first_batch_s",
    "worker start": "worker_start_s",
    "last wait for the GPU": "drain_s",
    "evaluation": "evaluate_s",
    "checkpoint": "checkpoint_s",
    "garbage collection": "gc_s",
}
RANKS = ("variant", "rank", "step ms", "data ms", "s/epoch", "skew")

INFERENCE_TITLE = "Inference"
INFERENCE_LEAD = (
    "Samples a second by batch size, below it the milliseconds of a pass: forward alone, in evaluation mode, without "
    "gradients, its input on the device already."
)

ROOF_TITLE = "How far from the machine's ceiling"
ROOF_LEAD = (
    "The floor is the step at the rates that this machine reached in micro-benchmarks: for each operation the "
    "longer of its arithmetic and its memory traffic. Its share of the counted step is what no better way of running "
    "the same operations could save. MFU: the model's operations over what the ceiling allows in that time. Recorded: "
    "how much longer a step took in the profile, which comes after all else."
)
ROOF = ("variant", "step ms", "floor ms", "floor's share", "MFU", "recorded", "note")

MEMORY_TITLE = "Memory by category"
MEMORY_LEAD = "MiB; activations are the peak less all that is counted from the tensors."


def lead(rows: Sequence[StepRow]) -> str:
    """What the table of steps says; of a GPU only where one has stepped."""
    return _LEAD + (_LEAD_GPU if any(row.device_ms for row in rows) else "") + _LEAD_END


def step_rows(runs: Iterable[Runs]) -> tuple[StepRow, ...]:
    """The variants whose kept epochs have a breakdown."""
    return tuple(row for r in runs if (row := _step_row(r)) is not None)


def _step_row(runs: Runs) -> StepRow | None:
    epochs = [e for r in runs.done for e in r.kept]
    found = [e.breakdown for e in epochs if e.breakdown is not None and e.breakdown.steps > 0]
    if not found:
        return None
    skew = middle(e.skew_s for e in epochs)
    return StepRow(
        variant=runs.rung.variant,
        batch_size=next((r.setup.batch_size for r in runs.done if r.setup and r.setup.batch_size), None),
        steps=sum(b.steps for b in found),
        epochs=len(found),
        step_ms=middle_quartiles([b.step_ms for b in found]),
        parts_ms=_by_name([{n: q.median for n, q in b.parts_ms.items()} for b in found]),
        shares=mean_shares(found),
        device_ms=_by_name([{n: q.median for n, q in b.device_ms.items()} for b in found]),
        first_batch_s=middle(b.first_batch_s for b in found),
        worker_start_s=middle(b.worker_start_s for b in found),
        drain_s=middle(b.drain_s for b in found),
        evaluate_s=middle(e.evaluate_s for e in epochs),
        checkpoint_s=middle(e.checkpoint_s for e in epochs),
        gc_s=middle(b.gc_s for b in found),
        skew_s=skew,
        skew_share=None if skew is None else middle(e.skew_s / e.epoch_s for e in epochs if e.skew_s and e.epoch_s > 0),
        ranks=_ranks(epochs),
    )


def _ranks(epochs: Sequence[EpochRecord]) -> tuple[RankStep, ...]:
    """The first rank's breakdown stands in the epoch itself, the others' beside it."""
    several = [(e, (e.breakdown, *e.ranks_breakdown)) for e in epochs if e.breakdown and e.ranks_breakdown]
    found = []
    for rank in range(max((len(ranks) for _, ranks in several), default=0)):
        mine = [ranks[rank] for _, ranks in several if rank < len(ranks)]
        data = [b.parts_ms["data"].median for b in mine if "data" in b.parts_ms]
        seconds = [e.ranks_s[rank] for e, _ in several if rank < len(e.ranks_s)]
        step = median([b.step_ms.median for b in mine])
        found.append(RankStep(rank=rank, step_ms=step, data_ms=middle(data), epoch_s=middle(seconds)))
    return tuple(found)


def inference_rows(runs: Iterable[Runs]) -> tuple[InferenceRow, ...]:
    """Inference by variant and batch size."""
    found = []
    for mine in runs:
        measured = [i for r in mine.done for i in r.inference]
        for size in sorted({i.batch_size for i in measured}):
            of_size = [i for i in measured if i.batch_size == size]
            found.append(
                InferenceRow(
                    variant=mine.rung.variant,
                    batch_size=size,
                    pass_ms=middle_quartiles([i.pass_ms for i in of_size]),
                    samples_per_s=median([i.samples_per_s for i in of_size]),
                )
            )
    return tuple(found)


def roof_rows(runs: Iterable[Runs]) -> tuple[RoofRow, ...]:
    """The variants with a profiled process."""
    found = []
    for mine in runs:
        profiled = [(r, r.profile) for r in mine.done if r.profile is not None]
        profiles = [p for _, p in profiled]
        if not profiles:
            continue
        fullest = max(profiles, key=lambda p: sum(p.memory_mib.values()))
        found.append(
            RoofRow(
                variant=mine.rung.variant,
                step_ms=middle(middle(e.middle_step_ms for e in r.kept) for r, _ in profiled),
                floor_ms=middle(p.floor_ms for p in profiles),
                floor_share=middle(p.floor_share for p in profiles),
                mfu=middle(p.mfu for p in profiles),
                profiler_ratio=middle(p.ratio for p in profiles),
                schedule=profiles[0].schedule,
                memory_mib=fullest.memory_mib,
                notes=tuple(dict.fromkeys(n for p in profiles for n in p.notes)),
            )
        )
    return tuple(found)


def middle_quartiles(found: Sequence[Quartiles]) -> Quartiles:
    """Each quartile's median."""
    return Quartiles(
        low=median([q.low for q in found]),
        median=median([q.median for q in found]),
        high=median([q.high for q in found]),
    )


def _by_name(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = ordered(dict.fromkeys(n for f in found for n in f))
    return {n: median([f[n] for f in found if n in f]) for n in names}


def part_names(rows: Sequence[StepRow]) -> list[str]:
    """All parts that some variant has: the columns of the table."""
    return ordered(dict.fromkeys(n for r in rows for n in (*r.parts_ms, *r.shares)))


def beside(rows: Sequence[StepRow]) -> list[list[str]]:
    """The header and a line for each variant: what stands beside the steps, without columns that nobody fills."""
    filled = {name: at for name, at in BESIDE.items() if any(getattr(r, at) is not None for r in rows)}
    lines = [[r.variant, *(words.seconds(getattr(r, at)) for at in filled.values())] for r in rows]
    return [["variant", *filled], *lines]


def rank_rows(rows: Sequence[StepRow]) -> list[list[str]]:
    """A line for each rank, in the order of `RANKS`; the skew stands with the first."""
    return [
        [
            row.variant,
            str(r.rank),
            words.milliseconds(r.step_ms),
            words.milliseconds(r.data_ms),
            words.seconds(r.epoch_s),
            _skew(row) if r.rank == 0 else "",
        ]
        for row in rows
        for r in row.ranks
    ]


def _skew(row: StepRow) -> str:
    share = "" if row.skew_share is None else f" ({words.percent(row.skew_share)})"
    return words.NONE if row.skew_s is None else f"{words.seconds(row.skew_s)} s{share}"


def inference_sizes(rows: Sequence[InferenceRow]) -> list[int]:
    """All batch sizes: the columns of the table."""
    return sorted({r.batch_size for r in rows})


def inference_by_variant(rows: Sequence[InferenceRow]) -> dict[str, dict[int, InferenceRow]]:
    """By variant and batch size, variants in the order of the rows."""
    found: dict[str, dict[int, InferenceRow]] = {}
    for row in rows:
        found.setdefault(row.variant, {})[row.batch_size] = row
    return found


def roof_cells_of(rows: Sequence[RoofRow]) -> list[list[str]]:
    """Lines in the order of `ROOF`."""
    return [
        [
            r.variant,
            words.milliseconds(r.step_ms),
            words.milliseconds(r.floor_ms),
            words.percent(r.floor_share),
            words.percent(r.mfu),
            _recorded(r),
            "; ".join(_notes(r)),
        ]
        for r in rows
    ]


def _recorded(row: RoofRow) -> str:
    """How much longer a recorded step took than a counted one."""
    return words.NONE if row.profiler_ratio is None else f"{(row.profiler_ratio - 1) * 100:+.1f} %".replace("-", "−")


def _notes(row: RoofRow) -> list[str]:
    """A share above 1 is said, never cut."""
    above = any(s is not None and s > 1 for s in (row.floor_share, row.mfu))
    said = any("underestimated" in n for n in row.notes)
    return [*row.notes, "ceiling underestimated"] if above and not said else list(row.notes)


def memory_rows(rows: Sequence[RoofRow]) -> list[list[str]]:
    """MiB by variant, in the order of `memory_names`."""
    names = memory_names(rows)
    return [[r.variant, *(words.mebibytes(r.memory_mib.get(n)) for n in names)] for r in rows if r.memory_mib]


def memory_names(rows: Sequence[RoofRow]) -> list[str]:
    """All categories of memory that some variant has."""
    return list(dict.fromkeys(n for r in rows for n in r.memory_mib))
