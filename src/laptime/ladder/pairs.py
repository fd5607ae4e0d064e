"""Pairs of processes by turns, an epoch of one and then of the other: they judge what one process can't tell apart.

On a CPU alone: a GPU drifts little, and has no memory to spare for two trainings. Where two can't take turns, trials
run one after the other, as they do everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from laptime.compare.comparison import compare
from laptime.compare.headlines import open_yet
from laptime.ladder.climb import Both, ratio_of
from laptime.ladder.counted import epochs_of
from laptime.ladder.process import Process, process_of
from laptime.ladder.ranks import ranks_of
from laptime.launchers.base import Hooks
from laptime.launchers.pair import launch_by_turns, room_for, sockets_here
from laptime.records import RunRecord
from laptime.variants import OPTIMIZED, Variant

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

# Pairs that tell what a part of the optimized variant is worth, or what the fastest one brings: with a scatter of 4 %
# between pairs an interval of about 5 %.
PAIRS = 5
# Pairs of a variant whose gain is confirmed, however long they take; the others only as long as the rounds have taken.
FEWEST_PAIRS = 3
FEWEST_ROUNDS = 3
# Variants that headlines name and that get pairs: a ladder must come to its end.
MOST_CONFIRMED = 3
# Loader workers prepare the next epoch's batches while the other side trains.
_WORKS_ASIDE = "workers"


def trial(ladder: Ladder, best: Variant, variant: Variant) -> Iterator[Turn]:
    """Yields what compares a variant with the best once more; the ladder's last two trials are their records then."""
    if can_take_turns(ladder, best, variant):
        yield ladder.pair(best, variant)
        if ladder.trials[-1].beside:
            return
    yield ladder.trial(best)
    yield ladder.trial(variant)


def left_open(ladder: Ladder) -> Iterator[Turn]:
    """Yields pairs that tell, after the rounds, what those have left open."""
    yield from _worths(ladder)
    yield from _confirmed(ladder)


def _worths(ladder: Ladder) -> Iterator[Turn]:
    """Yields pairs of the optimized variant with each of its parts left out, where the first round has not done so."""
    if not (ladder.preset.ablation and ladder.plan.adaptive):
        return
    whole = ladder.variants.get(f"{ladder.plan.device}-{OPTIMIZED}")
    parts = [v for name, v in ladder.variants.items() if whole and name.startswith(f"{whole.name}-without-")]
    open_ones = [part for part in parts if part.name not in ladder.record.worths]
    for number, part in enumerate(open_ones):
        assert whole is not None
        yield from worth(ladder, whole, part, (len(open_ones) - number) * PAIRS)


def worth(ladder: Ladder, whole: Variant, part: Variant, left: int | None = None) -> Iterator[Turn]:
    """Yields pairs of a variant with itself less a part; their ratios go into the record beside those already there.

    Args:
        ladder: whose pairs they are.
        whole: the variant.
        part: the variant without the part.
        left: pairs that are still to come, these with them; None where nobody knows.
    """
    yield from _pairs(ladder, (whole, part), "worths", left)


def _confirmed(ladder: Ladder) -> Iterator[Turn]:
    """Yields pairs of the baseline with what headlines name, where three rounds and more leave its gain open.

    Rounds of a machine that slows down and recovers meanwhile scatter by tens of percent, which pairs by turns do not.
    They may take a headline from one variant and give it to another. With fewer rounds nobody has asked for certainty.
    A search has pairs of its own, and its budget. Whether more than the fewest pairs run depends on what they take, not
    on what they show, so their interval stays true.
    """
    if ladder.preset.repeats < FEWEST_ROUNDS or ladder.record.search is not None:
        return
    most_s = sum(_lasted(record) for record in ladder.runs)
    had: list[str] = []
    while len(had) < MOST_CONFIRMED:
        found = compare(ladder.record, ladder.runs)
        left = [name for name in open_yet(found) if name not in had]
        if not left:
            return
        had.append(left[0])
        sides = ladder.variants[found.baseline], ladder.variants[left[0]]
        yield from _pairs(ladder, sides, "confirmed", PAIRS, epochs_of(ladder.runs[0]), most_s)


def _pairs(
    ladder: Ladder,
    sides: tuple[Variant, Variant],
    field: Literal["worths", "confirmed"],
    left: int | None,
    epochs: int = 0,
    most_s: float = math.inf,
) -> Iterator[Turn]:
    """Yields pairs of two variants, beyond the fewest only until they have taken so long, if that is known.

    The second's seconds over the first's go into a field of the record.
    """
    took_s = 0.0
    for number in range(PAIRS):
        if not can_take_turns(ladder, *sides) or (number >= FEWEST_PAIRS and took_s > most_s):
            return
        yield ladder.pair(*sides, None if left is None else left - number, epochs)
        both = (ladder.trials[-2], ladder.trials[-1])
        took_s += max(_lasted(record) for record in both)
        ratio = ratio_of(both)
        if ratio is not None:
            known, name = getattr(ladder.record, field), sides[1].name
            found = {**known, name: (*known.get(name, ()), ratio)}
            ladder.record = ladder.record.model_copy(update={field: found})


def _lasted(record: RunRecord) -> float:
    """Seconds from a process's start to its end, those in which the other side had its turn with them."""
    if record.started_at is None or record.ended_at is None:
        return 0.0
    return record.ended_at - record.started_at


def run_pair(ladder: Ladder, turn: Turn, pair: Sequence[Variant], hooks: Hooks) -> RunRecord:
    """Runs a turn's two processes to their records, or takes those that an earlier start of the ladder left.

    Returns:
        The second's record; the ladder keeps both.
    """
    first, second = (process_of(ladder, replace(turn, variant=v.name), v) for v in pair)
    found = _left(ladder, first, second)
    if found is not None:
        hooks.say(f"{turn}: taken from its records.")
    else:
        found = launch_by_turns((first.spec, first.folder), (second.spec, second.folder), hooks)
    for process in (first, second):
        process.clear()
    ladder.records_of(turn).extend(found)
    hooks.on_line(told(ladder, turn))
    if not found[0].beside and all(record.status != "wrong" for record in found):
        ladder.no_turns = True
        hooks.say(f"{turn}: they did not take turns, so from here on such processes run one after the other.")
    return found[1]


def told(ladder: Ladder, turn: Turn) -> str:
    """What came out of a pair that has just been run, in words; nothing where its processes took no turns."""
    first, second = ladder.records_of(turn)[-2:]
    ratio = ratio_of((first, second))
    return "" if ratio is None else f"{turn.variant} takes {ratio:.3f} times as long as {turn.beside}"


def _left(ladder: Ladder, first: Process, second: Process) -> Both | None:
    if ladder.before is None:
        return None
    found = first.left_before(ladder.before), second.left_before(ladder.before)
    return (found[0], found[1]) if found[0] and found[1] else None


def can_take_turns(ladder: Ladder, *variants: Variant) -> bool:
    """Whether two variants may take turns: two names, one rank each on this CPU, with memory for both.

    What has not run yet is taken to need as much as the largest that has.
    """
    launched_here = ladder.request.launcher in ("auto", "process")
    apart = len({v.name for v in variants}) == len(variants)
    alone = all(v.device == "cpu" and not _crowded(v) for v in variants)
    if ladder.no_turns or not (launched_here and apart and alone and sockets_here()):
        return False
    ran = [r for r in (*ladder.runs, *ladder.trials, *ladder.verified) if r.spec and r.peak_memory_mib]
    peaks = [[r for r in ran if r.spec and r.spec.variant == v.name] or ran for v in variants]
    return bool(ran) and room_for([max(r.peak_memory_mib or 0.0 for r in some) for some in peaks])


def _crowded(variant: Variant) -> bool:
    """Whether it has processes that work while the other side has its turn, or can't ask for one."""
    return ranks_of(variant) > 1 or any(o.name == _WORKS_ASIDE for o in variant.optimizations)
