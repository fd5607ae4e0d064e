"""How long a ladder should take, from earlier runs on this machine, else from the ledger of benchmarks."""

from __future__ import annotations

from statistics import median

from laptime.catalogue import find_workload
from laptime.catalogue.entries import Preset, WorkloadEntry
from laptime.compare.load import load
from laptime.compare.quality import Rules
from laptime.data.choices import SIDE, SIZE, split_choices
from laptime.devices import device_count
from laptime.errors import LaptimeError
from laptime.ladder.climb import Climb, Standing
from laptime.ladder.pairs import PAIRS
from laptime.ladder.plan import make_plan, unfit
from laptime.ladder.ranks import with_parallel
from laptime.ladder.request import LadderRequest, profile_of, settled_preset
from laptime.launchers import ranks_there
from laptime.ledger import read_ledger
from laptime.places import Places
from laptime.records import ProbeRecord, Readable, RunRecord
from laptime.variants import baseline_of, joins_by_name, without

# Start of a process: imports, data, model, one-step check.
_STARTUP_S = 8.0
# What follows the counted epochs of a variant's first process: forward passes alone, and what else was asked for.
_PROFILE_S = {"full": 11.0, "simple": 2.0, "none": 2.0}
_EARLIER_LADDERS = 10


class ExpectedRow(Readable):
    """One variant and its expected seconds over all repeats, and what training alone takes of them; None if unknown."""

    variant: str
    seconds: float | None = None
    training_s: float | None = None


class Expected(Readable):
    """The plan of a ladder with its expected duration.

    Attributes:
        source: what the estimate rests on.
        seconds: in all; None where a variant is unknown.
        changes: what a search would try beside these; see `laptime.tune`.
    """

    rows: tuple[ExpectedRow, ...]
    source: str
    seconds: float | None = None
    changes: tuple[str, ...] = ()


def expected(request: LadderRequest, device: str, places: Places, there: tuple[int, int] | None = None) -> Expected:
    """Plans a ladder without a probe and adds up what its variants should take.

    Args:
        request: the options.
        device: cpu or cuda.
        places: where earlier runs are.
        there: images to train and to test on; None where that is not known.

    Raises:
        UsageError: a variant, preset or workload that does not exist.
    """
    entry, preset = find_workload(request.workload), settled_preset(request)
    no_use = unfit(entry, device, preset.limit_train)
    plan = make_plan(device, preset, request.variants, ProbeRecord(refusals=no_use), entry.name)
    plan = with_parallel(plan, preset, entry, ranks_there(request.launcher) or device_count(device))
    climb = Climb(plan, Standing(baseline_of(device)), Rules(0.0, False, 0))
    names, beside = [v.name for v in plan.fixed], set()
    for group in plan.rungs:
        variant, rung = climb.next_rung(group)
        names.append(variant.name)
        if rung.on == climb.best.name:
            if joins_by_name(device, group[-1], entry.name):
                climb.top = Standing(variant)  # as if every rung joined that need not earn its place
        else:
            beside.add(variant.name)
    if plan.adaptive:
        (whole, _), *others = climb.optimized()
        parts = [without(whole, o.name) for o in whole.optimizations] if preset.ablation else [v for v, _ in others]
        names += [whole.name, *(part.name for part in parts), *plan.parallel]
    rates, source = _rates(entry, places, request.data)
    train, test = _samples(preset, entry, there)
    warm = preset.warmup_epochs * (min(train, preset.warmup_steps * entry.batch_size) if preset.warmup_steps else train)
    # Evaluation has no backward pass: about three times the speed of training.
    samples = warm + preset.epochs * (train + test / 3)
    paired = PAIRS * 2 if preset.ablation and device == "cpu" else 0  # both sides of a pair take about as long
    rows, before = [], None
    for name in names:
        # What nobody has measured is taken to be as fast as the rung before it, a part's absence as the whole, and what
        # stands on the baseline as the baseline.
        rate = rates.get(name, rates.get(names[0]) if name in beside else before)
        before = before if "-without-" in name or name in beside else rate
        profile_s = _PROFILE_S[profile_of(request, preset, name)]
        # Nobody knows how many samples a workload of the user's own has before a look into its file.
        training_s = None if rate is None or not train else preset.repeats * samples / rate
        seconds = None if training_s is None else profile_s + preset.repeats * _STARTUP_S + training_s
        if seconds is not None and rate is not None and "-without-" in name:
            seconds += paired * (_STARTUP_S + (warm + 2 * (train + test / 3)) / rate)
        rows.append(ExpectedRow(variant=name, seconds=seconds, training_s=training_s))
    known = [r.seconds for r in rows if r.seconds is not None]
    return Expected(rows=tuple(rows), source=source, seconds=sum(known) if len(known) == len(rows) else None)


def _samples(preset: Preset, entry: WorkloadEntry, there: tuple[int, int] | None) -> tuple[int, int]:
    """Samples that a run trains and tests on; the limits, where nobody knows how many there are."""
    limits, usual = (preset.limit_train, preset.limit_test), (entry.train_count, entry.test_count)
    if there is None:
        train, test = (limit or count for limit, count in zip(limits, usual, strict=True))
    else:
        train, test = (min(limit or count, count) for limit, count in zip(limits, there, strict=True))
    return train, test


def process_s(record: RunRecord, epochs: int) -> float:
    """Seconds that a process as this one takes for so many counted epochs, with neither check nor profile."""
    lap = median(e.epoch_s + (e.evaluate_s or 0.0) for e in record.epochs)
    # A record's start-up begins after the imports.
    return max(_STARTUP_S, record.startup_s or 0.0) + (record.warmup_s or 0.0) + epochs * lap


def _rates(entry: WorkloadEntry, places: Places, data: str) -> tuple[dict[str, float], str]:
    """Images a second by variant: the ledger's, and over them what was seen on this machine; of the same size alone."""
    side, usual = _side(data, entry), _side("", entry)
    ledger = read_ledger().entries if side == usual else ()
    rates = {e.variant: e.samples_per_s for e in ledger if e.workload == entry.name}
    source = "the ledger of benchmarks on another machine"
    for folder in sorted(places.runs.glob(f"*-{entry.name}-*"))[-_EARLIER_LADDERS:]:
        try:
            _, records = load(folder)
        except LaptimeError:
            continue  # a ladder that was cut off tells nothing
        for record in records:
            if record.spec is not None and record.kept and _side(record.spec.data.asked, entry) == side:
                rates[record.spec.variant] = median(e.samples / e.epoch_s for e in record.kept)
                source = "earlier runs on this machine"
    return rates, source


def _side(asked: str, entry: WorkloadEntry) -> tuple[str, str]:
    """Height and width that images are brought to, of a detector the shorter side twice: as chosen, else the usual."""
    _, given = split_choices(asked)
    width, _, height = (given.get(SIZE) or given.get(SIDE) or str(entry.image_size)).partition("x")
    return height or width, width
