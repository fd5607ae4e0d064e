"""The changes that a search may make to a list of optimizations: a part more, a part less, another option."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from laptime.catalogue import (
    DEVICES,
    LADDERS,
    batch_of,
    class_of,
    combine,
    find_optimization,
    in_stage_order,
    options_of,
    parse_optimization,
    rung_spec,
)
from laptime.catalogue.entries import OptionEntry
from laptime.errors import UsageError
from laptime.ladder.plan import Plan, hopeless
from laptime.spec import OptimizationSpec, Option

# An epoch of fewer steps is hardly a training.
_FEWEST_STEPS = 4

# Classes of what leaves alone what is learnt, up to rounding.
_ALIKE = ("exact", "numeric")

Chosen = tuple[OptimizationSpec, ...]


@dataclass(frozen=True)
class Around:
    """What bounds a search.

    Attributes:
        plan: what the probe and the workload refuse.
        cores: that a process may use.
        samples: of an epoch.
        batch: the baseline's.
        workload: its name.
    """

    plan: Plan
    cores: int
    samples: int
    batch: int
    workload: str = ""

    @property
    def side(self) -> str:
        """`cpu` or `cuda`."""
        return DEVICES[self.plan.device]


@dataclass(frozen=True)
class Move:
    """One change.

    Attributes:
        text: `+name`, `-name`, or `name:option=value` of a part that is there already.
        after: the list with it.
        klass: the class of what changes.
        back: whether it only takes something out: what is learnt becomes more like the baseline's.
        replaces: the parts whose place it takes.
        reverse: the moves that would undo it.
    """

    text: str
    after: Chosen
    klass: str
    back: bool = False
    replaces: tuple[str, ...] = ()
    reverse: tuple[str, ...] = ()

    @property
    def learns_alike(self) -> bool:
        """Whether it leaves alone what is learnt, up to rounding."""
        return self.klass in _ALIKE


def moves_from(chosen: Chosen, around: Around) -> tuple[Move, ...]:
    """The moves from a list: other options, then parts more, then parts less; last what takes another part's place."""
    more = list(_more(chosen, around))
    found = [
        *_options(chosen, around),
        *(move for move in more if not move.replaces),
        *_less(chosen),
        *(move for move in more if move.replaces),
    ]
    return tuple(found)


def same(one: Chosen, other: Chosen, around: Around) -> bool:
    """Whether two lists are the same training: with all options, and what a 0 stands for here."""
    return _written_out(one, around) == _written_out(other, around)


def _written_out(chosen: Chosen, around: Around) -> dict[str, dict[str, Option]]:
    found = {}
    for part in chosen:
        tried = {o.name: _value(part, o, around) for o in find_optimization(part.name).options if o.tried}
        found[part.name] = {**options_of(part), **tried}
    return found


def advised_move(text: str, chosen: Chosen, around: Around) -> Move | None:
    """What advice proposes (`name:option=value`) as a move; None where it is none that a search makes."""
    try:
        added = parse_optimization(text)
    except UsageError:  # advice of an optimization that the catalogue has not
        return None
    before = next((o for o in chosen if o.name == added.name), None)
    if before is None:
        if not _may_join(added, around):
            return None
        return _with(chosen, added, f"+{added.text()}")
    # The part's other options stay as they are.
    whole = OptimizationSpec(name=added.name, options={**before.options, **added.options})
    known = [option for option in find_optimization(added.name).options if option.tried]
    values = [(option.name, _value(before, option, around), _value(whole, option, around)) for option in known]
    changed = [(name, old, new) for name, old, new in values if old != new]
    if not all(_fits(added.name, new, around) for _, _, new in changed):
        return None
    back = tuple(f"{added.name}:{name}={old}" for name, old, _ in changed)
    move = replace(_with(chosen, whole, added.text()), reverse=back)
    return None if same(move.after, chosen, around) else move


def _with(chosen: Chosen, added: OptimizationSpec, text: str) -> Move:
    after = combine(chosen, added)
    kept, klass = {o.name for o in after}, class_of(added)
    gone = tuple(o for o in chosen if o.name not in kept)
    # What leaves for it changes what is learnt too, as where it is left out.
    lost = next((k for k in map(class_of, gone) if k not in _ALIKE), "") if klass in _ALIKE else ""
    undone = (f"-{added.name}", *(f"+{o.text()}" for o in (gone if len(gone) == 1 else ()))) if text[0] == "+" else ()
    return Move(text, after, lost or klass, bool(lost), tuple(o.name for o in gone), undone)


def _more(chosen: Chosen, around: Around) -> Iterator[Move]:
    """The rungs of the device's ladder that are not in the list."""
    plan, seen = around.plan, set[str]()
    batch = batch_of(chosen, plan.device)
    for rung in LADDERS[plan.device]:
        added = rung_spec(rung)
        text = added.text()
        there = next((o for o in chosen if o.name == added.name), None)
        if text in seen or (there is not None and (not added.options or options_of(there) == options_of(added))):
            continue
        seen.add(text)
        if rung in plan.refused or not _may_join(added, around) or hopeless(rung, batch, plan.probe):
            continue
        yield _with(chosen, added, f"+{text}" if there is None else text)


def _may_join(added: OptimizationSpec, around: Around) -> bool:
    """Whether a search may add an optimization: one that can make epochs faster, for this device and workload."""
    entry = find_optimization(added.name)
    fits = around.side in entry.devices and entry.workload in ("", around.workload)
    useful = not (entry.only_shown or entry.alone or entry.for_quality or entry.klass == "model")
    # Several ranks are variants of their own, with the machine to themselves.
    return fits and useful and entry.stage != "parallel" and added.name not in around.plan.probe.refusals


def _less(chosen: Chosen) -> Iterator[Move]:
    for part in chosen:
        rest = tuple(o for o in chosen if o.name != part.name)
        yield Move(f"-{part.name}", rest, class_of(part), back=True, reverse=(f"+{part.text()}",))


def _options(chosen: Chosen, around: Around) -> Iterator[Move]:
    """The neighbours of each option's value among those that the catalogue has a search try."""
    for part in chosen:
        for option in find_optimization(part.name).options:
            for value in _neighbours(part, option, around):
                changed = OptimizationSpec(name=part.name, options={**part.options, option.name: value})
                after = in_stage_order((*(o for o in chosen if o.name != part.name), changed))
                now = f"{part.name}:{option.name}={_value(part, option, around)}"
                yield Move(f"{part.name}:{option.name}={value}", after, class_of(changed), reverse=(now,))


def _neighbours(part: OptimizationSpec, option: OptionEntry, around: Around) -> list[int]:
    """The next larger value first: batches and tiles were chosen for small machines."""
    if not option.tried:
        return []
    now = _value(part, option, around)
    below = [value for value in option.tried if value < now]
    above = [value for value in option.tried if value > now]
    return [value for value in (*above[:1], *below[-1:]) if _fits(part.name, value, around)]


def _value(part: OptimizationSpec, option: OptionEntry, around: Around) -> int:
    """An option's value; a 0 that stands for what the machine or the device's side has is that."""
    now = int(options_of(part)[option.name])
    if part.name == "threads":
        return now or around.cores
    if part.name == "large-batch":
        return now or batch_of((part,), around.plan.device) or around.batch
    return now


def _fits(name: str, value: int, around: Around) -> bool:
    if name == "threads":
        return value <= around.cores
    if name == "large-batch":
        return around.batch < value and value * _FEWEST_STEPS <= around.samples
    return True
