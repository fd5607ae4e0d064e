"""From an optimization to the exact variant that has it, or why there is none."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from laptime.advice.outcome import Klass
from laptime.advice.signals import Signals
from laptime.catalogue import class_of, combine, find_optimization, options_of, parse_optimization
from laptime.errors import UsageError
from laptime.spec import OptimizationSpec
from laptime.variants import resolve, written_out

# Of the options that a remedy's command repeats, those that a gate knows.
_SIZES = ("--limit-train", "--limit-test", "--data")


@dataclass(frozen=True)
class Remedy:
    """What to run: `variant` is empty where `refusal` says why not."""

    klass: Klass
    variant: str = ""
    command: str = ""
    refusal: str = ""


def remedy_of(text: str, s: Signals) -> Remedy:
    """Finds the variant with one optimization more than the advised one.

    Args:
        text: `name:option=value`.
        s: of a run of laptime's: a foreign trace has no variant to add to.
    """
    added = parse_optimization(text)
    klass, refusal = class_of(added), _refusal(added, s)
    if refusal:
        return Remedy(klass, refusal=refusal)
    variant = f"{_base_name(s)}+{added.text()}"
    words = ["laptime", "run", s.workload, "--variant", variant, *s.options]
    return Remedy(klass, variant, shlex.join(words))


def measured_by(finding: str, s: Signals) -> str:
    """What shows what a change of the user's code brought, typed before it is committed; empty without such a file."""
    file, _, attribute = s.workload.rpartition(":")
    if not file.endswith(".py"):
        return ""
    path, sizes = Path(file), [pair for pair in zip(s.options[::2], s.options[1::2], strict=True) if pair[0] in _SIZES]
    words = ["laptime", "gate", f"{path.name}:{attribute}", "--variant", _base_name(s), "--device", s.device]
    words += ["--base", "HEAD", *chain.from_iterable(sizes), "--advised", finding]
    return f"cd {shlex.quote(str(path.parent))} && {shlex.join(words)}"


def _refusal(added: OptimizationSpec, s: Signals) -> str:
    """Why the optimization can't be added here; empty where it can."""
    entry, present = find_optimization(added.name), s.optimizations or ()
    if s.device not in entry.devices:
        return f"{added.name} is not for {s.device}"
    if entry.workload and s.workload and s.workload != entry.workload:
        return f"{added.name} is for the workload {entry.workload}"
    if added.name in s.refusals:
        return s.refusals[added.name]
    if any(o.name == added.name and options_of(o) == options_of(added) for o in present):
        return f"the variant has {added.name} already"
    left = {o.name for o in combine(present, added)}
    lost = [o.name for o in present if o.name not in left]
    if lost:
        return f"{added.name} would take the place of {', '.join(lost)}, which the variant has"
    return ""


def _base_name(s: Signals) -> str:
    """The variant's name where it stands for what was run; else spelled out: a rung is what a ladder made it."""
    present = s.optimizations or ()
    try:
        if resolve(s.variant, workload=s.workload).optimizations == present:
            return s.variant
    except UsageError:
        pass  # a name of an older version, or one that a ladder gave
    return written_out(s.device, present)
