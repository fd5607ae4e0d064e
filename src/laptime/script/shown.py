"""What a script can show of a variant, and why it can't show the rest."""

from __future__ import annotations

from laptime.catalogue import WORKLOADS, find_preset, find_workload, options_of
from laptime.catalogue.entries import WorkloadEntry
from laptime.errors import UsageError, shorten
from laptime.spec import DataSpec, OptimizationSpec
from laptime.variants import Variant

_DETECTION = "it is for the workload detection alone"
# Options of what exchanges gradients that a script does not show, and why.
_OF_RANKS = {
    ("batchnorm", "sync"): "statistics of all ranks' samples take a BatchNorm of laptime's own on a CPU",
    ("scaling", "weak"): "the batch, and with it the learning rate, would depend on how many processes are started",
}
_OF_ONE = "the script of a LightningModule prepares its data in one process, and several would do so at once"
# What no script is printed for, and why; of those for detection, no script of images.
REFUSED: dict[str, str] = {
    "parsed-once": _DETECTION,
    "fixed-shapes": _DETECTION,
    "folded-norms": _DETECTION,
    "gathered-rois": _DETECTION,
    "lightning": "Lightning's Trainer runs the loop, which a script of torch alone can't show",
}

# What the script of detection shows: all that its ladder tries, but a trainer with a loop of its own.
PRINTED_FOR_BOXES: tuple[str, ...] = tuple(
    name for name in find_preset(find_workload("detection"), "full").rungs or () if name != "lightning"
)


def unprinted(data: DataSpec | None) -> tuple[str, ...]:
    """Rungs that the script of a user's own workload can't show, though a run may have them."""
    return () if data is None or data.own is None else ("graph",)


def require_printable(variant: Variant, workload: str, data: DataSpec | None) -> None:
    """Raises UsageError where a variant of a workload has no script, with the reason."""
    printed = [entry.name for entry in WORKLOADS]
    if data is None and workload not in printed:
        raise UsageError(
            f"there is no script of workload {shorten(workload)!r}: give --workload {', '.join(printed)} or "
            "FILE.py:NAME."
        )
    entry = None if data is not None else find_workload(workload)
    for chosen in variant.optimizations:
        reason = REFUSED.get(chosen.name) if entry is None else _not_for_it(entry, chosen.name)
        if data is not None and data.own is not None:
            reason = data.own.refused.get(chosen.name, reason)
            if chosen.name in unprinted(data):
                reason = reason or "its buffers depend on how your batches are nested"
            if data.own.lightning and chosen.name in ("ddp", "flat-reduce"):
                reason = reason or _OF_ONE
        reason = reason or _of_ranks(chosen)
        if reason is not None:
            raise UsageError(
                f"{variant.name} has no script, because of {chosen.name}: {reason}. Leave {chosen.name} out."
            )


def _of_ranks(chosen: OptimizationSpec) -> str | None:
    """Why a script does not show how an optimization has several ranks work together; None where it does."""
    options = options_of(chosen)
    return next((why for (name, value), why in _OF_RANKS.items() if options.get(name) == value), None)


def _not_for_it(entry: WorkloadEntry, name: str) -> str | None:
    """Why the script of a workload of laptime's does not show an optimization; None where it does."""
    if entry.boxes and name in PRINTED_FOR_BOXES:
        return None
    refused = entry.refused.get(name, REFUSED.get(name))
    return refused or ("the script of a detector shows what its own ladder tries" if entry.boxes else None)
