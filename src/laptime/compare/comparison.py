"""Compares the variants of a ladder, or of any records, with their baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from laptime.catalogue import WORKLOADS, classes_of
from laptime.compare.ablation import ablation
from laptime.compare.floor import quality_floor
from laptime.compare.headlines import headlines
from laptime.compare.mixed import differences
from laptime.compare.model import Comparison, Conditions, VariantRow
from laptime.compare.operators import with_operators
from laptime.compare.payback import with_compilation
from laptime.compare.quality import LOWER_IS_BETTER, name_of, rules_of, without_quality
from laptime.compare.rows import Context, Runs, row_of
from laptime.compare.scaling import scalings
from laptime.compare.statistics import Bootstrap
from laptime.compare.steps import inference_rows, roof_rows, step_rows
from laptime.compare.words import by_reason
from laptime.data.choices import called
from laptime.errors import LaptimeError, UsageError
from laptime.host.variables import slowing
from laptime.records import Advice, Ceilings, LadderRecord, Machine, Rung, RunRecord, TraceSummary
from laptime.spec import DataSpec, OptimizationSpec, RunSpec

__all__ = ["Comparison", "VariantRow", "baseline_of", "compare"]


def compare(
    ladder: LadderRecord,
    records: Sequence[RunRecord],
    traces: Mapping[str, TraceSummary] | None = None,
    advice: Mapping[str, Advice] | None = None,
) -> Comparison:
    """Compares a ladder's variants; records belong to a variant by the variant's name in their spec.

    Args:
        ladder: the plan.
        records: what its processes produced.
        traces: of a profiled process, by variant.
        advice: by variant.

    Raises:
        UsageError: neither the ladder nor the records name a variant that was begun.
    """
    runs = _group(ladder, records)
    if not any(r.records for r in runs.values()) and not ladder.rungs:  # what was left out is no baseline
        raise UsageError(
            f"no process of the ladder {ladder.id} has ended, so there is nothing to compare: go on with it (--resume)."
        )
    baseline = runs[baseline_of([r.rung for r in runs.values()])]
    ran = [r for r in records if r.spec is not None and r.spec.variant in runs]
    machine = _machine(ran) or ladder.probe.machine
    context = Context(
        baseline=baseline,
        runs=runs,
        bootstrap=Bootstrap(seed=ladder.seed),
        rules=rules_of(ladder, ran),
        quality=ladder.quality,
        ceilings=_ceilings(machine, ladder),
        confirmed=ladder.confirmed,
    )
    rows = tuple(with_compilation(row_of(r, context), context) for r in runs.values())
    conditions = _conditions(ladder, machine, ran)
    found = Comparison(
        id=ladder.id,
        baseline=baseline.rung.variant,
        conditions=conditions,
        rows=rows,
        headlines=headlines(rows, baseline.rung.variant, conditions),
        scaling=scalings(runs, rows),
        cautions=(*_broken_off(ladder), *_noticed(ladder, ran), *_cautions(context, rows, records, machine)),
        parts=ablation(context, ladder.dropped, ladder.worths),
        steps=step_rows(runs.values()),
        inference=inference_rows(runs.values()),
        roof=roof_rows(runs.values()),
        advice={v: a for v, a in (advice or {}).items() if v in runs},
        search=ladder.search,
    )
    return with_operators(found, traces or {})


def ladder_of(records: Sequence[RunRecord]) -> LadderRecord:
    """The least ladder that holds the variants of some records, each of which has a spec."""
    specs = [r.spec for r in records if r.spec is not None]
    first = specs[0]
    variants = {s.variant: s for s in reversed(specs)}
    order = list(dict.fromkeys(s.variant for s in specs))
    rungs = [_rung(variants[v]) for v in order]
    base = baseline_of(rungs)
    rungs.sort(key=lambda r: r.variant != base)
    return LadderRecord(
        id="records",
        workload=first.workload,
        preset="",
        device=first.device,
        data=first.data,
        rungs=tuple(rungs),
        epochs=max(s.epochs for s in specs),
        repeats=max(sum(s.variant == v for s in specs) for v in order[:1]),
        limit_train=first.limit_train,
        limit_test=first.limit_test,
        seed=first.seed,
        quality=_quality(first),
        quality_floor=quality_floor(first.workload, len(first.data.classes), first.data.commonest),
        commit=next((r.commit for r in records if r.commit), None),
        started_at=min((r.started_at for r in records if r.started_at), default=None),
        status="done",
    )


def _quality(spec: RunSpec) -> str:
    if spec.data.own:
        return spec.data.own.quality
    return next((w.quality for w in WORKLOADS if w.name == spec.workload), "accuracy")


def baseline_of(rungs: Sequence[Rung]) -> str:
    """The first variant whose name ends with `baseline` (before a ` @ run`), else the first."""
    named = (r.variant for r in rungs if r.variant.partition(" @ ")[0].endswith("baseline"))
    return next(named, rungs[0].variant)


def _group(ladder: LadderRecord, records: Sequence[RunRecord]) -> dict[str, Runs]:
    """The ladder's variants in its order, then those that only records name, then those left out."""
    rungs = {r.variant: r for r in ladder.rungs}
    mine: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.spec is not None:
            mine.setdefault(record.spec.variant, []).append(record)
            rungs.setdefault(record.spec.variant, _rung(record.spec))
    why = {entry.variant: entry.reason for entry in ladder.left_out}
    for left in ladder.left_out:
        rungs.setdefault(left.variant, Rung(variant=left.variant))
    return {v: Runs(rung, tuple(mine.get(v, ())), why.get(v)) for v, rung in rungs.items()}


def _rung(spec: RunSpec) -> Rung:
    return Rung(variant=spec.variant, optimizations=spec.optimizations, classes=_classes(spec.optimizations))


def _classes(optimizations: tuple[OptimizationSpec, ...]) -> tuple[str, ...]:
    """Classes by the catalogue; an optimization of another version has none here."""
    try:
        return classes_of(optimizations)
    except LaptimeError:
        return ()


def with_specs(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Gives a record that any loop wrote, without a spec, a name of its own."""
    model = next((r.spec for r in records if r.spec is not None), None)
    if model is None:
        data = DataSpec(asked="", kind="own", digest="", path="", classes=(), train_count=0, test_count=0)
        model = RunSpec(workload="unknown", variant="unknown", data=data)
    return [
        r
        if r.spec is not None
        else r.model_copy(
            update={
                "spec": model.model_copy(
                    update={"variant": f"run-{i}", "optimizations": (), "repeat": 0, "epochs": max(1, len(r.epochs))}
                )
            }
        )
        for i, r in enumerate(records, start=1)
    ]


def _machine(records: Iterable[RunRecord]) -> Machine | None:
    return next((r.machine for r in records if r.machine.cpu or r.machine.torch or r.machine.fingerprint), None)


def _ceilings(machine: Machine, ladder: LadderRecord) -> Ceilings:
    return machine.ceilings if any(machine.ceilings.model_dump().values()) else ladder.probe.machine.ceilings


def _conditions(ladder: LadderRecord, machine: Machine, ran: Sequence[RunRecord]) -> Conditions:
    data = ladder.data
    name = called(data)
    sources = {
        "official": "official data",
        "mirror": "data from a mirror",
        "folder": f"data from {name or 'a folder'}",
        "synthetic": "a generated stand-in for the data",
        "own": "the workload's own data",
    }
    return Conditions(
        workload=ladder.workload,
        preset=ladder.preset,
        device=ladder.device,
        machine=machine.gpu_names or machine.cpu,
        cores=machine.cores,
        fingerprint=machine.fingerprint,
        torch=machine.torch,
        data=sources[data.kind] + (", drawn by its weights" if data.weighted else ""),
        called=name,
        data_kind=data.kind,
        data_notice=" ".join(data.notices),
        real_data=ladder.real_data,
        train_count=min(ladder.limit_train or data.train_count, data.train_count),
        train_there=data.train_count,
        test_there=data.test_count,
        test_count=rules_of(ladder, ()).test_count,
        epochs=ladder.epochs,
        repeats=ladder.repeats,
        quality=ladder.quality,
        quality_floor=ladder.quality_floor,
        commit=ladder.commit or next((r.commit for r in ran if r.commit), None),
        started_at=ladder.started_at,
    )


def _broken_off(ladder: LadderRecord) -> list[str]:
    """Whoever is killed writes nothing any more: of such a ladder there is no end, as of one that still runs."""
    if ladder.status == "interrupted":
        why = "was interrupted"
    elif ladder.status == "running" and ladder.ended_at is None:
        why = "has not come to its end (it still runs, or was killed)"
    else:
        return []
    return [f"The ladder {why}, so what was still to run is missing here: --resume {ladder.id} goes on with it."]


def _noticed(ladder: LadderRecord, ran: Sequence[RunRecord]) -> list[str]:
    """What was noticed of data and training before the first step, each thing once; a stand-in's has a banner."""
    given = (ladder.data, *(r.spec.data for r in ran if r.spec is not None))
    said = ((data.own is not None, notice) for data in given if data.kind != "synthetic" for notice in data.notices)
    return [f"The {'training' if own else 'data'}: {notice}" for own, notice in dict.fromkeys(said)]


def _cautions(
    context: Context, rows: Sequence[VariantRow], records: Sequence[RunRecord], machine: Machine
) -> list[str]:
    """What a reader must know before believing a figure."""
    done = [r for r in records if r.spec is not None and r.status == "done"]
    base = next(r for r in rows if r.variant == context.baseline.rung.variant)
    found = []
    judged_by_loss = context.quality in LOWER_IS_BETTER
    if (
        base.quality is not None
        and context.rules.real_data
        and base.quality < context.rules.floor
        and not judged_by_loss
    ):
        reached, floor = (f"{v * 100:.1f} %" for v in (base.quality, context.rules.floor))
        found.append(f"Quality is not judged: the baseline reached {reached}, below the floor of {floor}.")
    found += slowing(machine.variables, machine.cores)
    # A baseline is built of nothing, so what its processes note holds for all variants: a batch that was halved.
    found += [f"All variants: {note}." for note in base.notes]
    found += differences(done)
    unnamed = sum(r.spec is None for r in records)
    if unnamed:
        found.append(f"Records without a spec were passed over: {unnamed}.")
    seen = dict.fromkeys((r.spec.variant, caution) for r in done if r.spec is not None for caution in r.cautions)
    found += [f"{', '.join(names)}: {caution}." for names, caution in by_reason(list(seen))]
    found += _numberless(context) if base.quality is not None else ()
    anew = [r for r in done for e in r.epochs if e.compilations]
    if anew:
        names = ", ".join(dict.fromkeys(r.spec.variant for r in anew if r.spec))
        found.append(f"Epochs in which something was compiled anew are not counted: {len(anew)} of {names}.")
    alone = [r.variant for r in rows if r.epoch_s is not None and r.n == 1]
    if alone:
        found.append(f"One process, so no interval (n=1): {', '.join(alone)}.")
    return found


def _numberless(context: Context) -> list[str]:
    """Variants of which trainings ended with a quality that is no number."""
    quality, found = context.quality, []
    for name, runs in context.runs.items():
        if lost := sum(without_quality(r, quality) for r in runs.done):
            what = f"{lost} of {len(runs.done)} trainings ended with a {name_of(quality)}"
            found.append(f"{name}: {what} that is no number.")
    return found
