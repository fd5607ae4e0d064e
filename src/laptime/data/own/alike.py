"""Whether samples that are read all at once, or by another process, are those of batches read here."""

from __future__ import annotations

from torch.utils.data import default_collate

from laptime.data.own.opened import OwnSplit
from laptime.data.own.refused import forms, same, same_again
from laptime.values.draws import drawn, have_drawn, put_back_drawn
from laptime.values.trees import Tree


def check_forms(split: OwnSplit, whole: Tree) -> None:
    """Raises ValueError where the batch of all samples pads the first one, by a longer one that no look has met.

    Those in whose batch no longer one is would train on other numbers, without a word.
    """
    if split.collate is default_collate:  # which makes no batch of several shapes
        return
    before = drawn()
    try:
        alone = split.few(0)
    finally:
        put_back_drawn(before)
    pairs = zip(forms(whole), forms(alone), strict=True)
    larger = next(((found, own) for found, own in pairs if found != own), None)
    if larger is not None:
        raise ValueError(
            f"collate_fn makes a shape of {list(larger[0])} of each of all {len(split)} samples and one of "
            f"{list(larger[1])} of the first, so samples depend on what else is in their batch: leave resident out, or "
            "pad to one length."
        )


def others_there(split: OwnSplit, found: list[Tree]) -> bool:
    """Whether workers give other items than this process, though these draw nothing here and stay what they are.

    Where they begin with a `worker_init_fn` they may be meant to.
    """
    few, before = range(min(2, len(split))), drawn()
    batch = split.batch(few)
    if split.begin is not None or have_drawn(before) or all(same(batch, other) for other in found):
        put_back_drawn(before)
        return False
    return same_again(split, batch)
