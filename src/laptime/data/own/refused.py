"""What of a user's batches and net is not for an optimization, each with the reason that a ladder shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from laptime.data.decoded import refusal
from laptime.data.own.opened import OwnSplit
from laptime.values.draws import drawn, have_drawn
from laptime.values.trees import Tree, by_sample, has_each, leaves, listed, mapped, movable, samples, stored, tensors

# What leaves the net that it was given alone and changes, averages or moves a copy.
_COPYING = ("channels-last", "dead-taps", "products", "ema", "evaluate-on-cpu", "ddp")
# How often a few items are read again, and for how long, to see that they stay what they are.
_READINGS, _PATIENCE_S = 60, 1.0
_DIFFER = "its items differ when they are read twice (a random augmentation, perhaps)"
# What takes larger batches, or the mean of what ranks find.
_SHARING = ("large-batch", "ddp", "flat-reduce")
_COMPILING = ("compile", "compile-graphed")
_TWICE = (
    "its loss() differentiates gradients of what the net gives (create_graph=True), which the compiler has no graph for"
)


def not_kept(split: OwnSplit, batch: Tree, others: Sequence[Tree]) -> dict[str, str]:
    """Why training samples, or the images that they are made of, can't be read once and kept.

    Args:
        split: to train.
        batch: its first items.
        others: these in the other order, and batches of other items.
    """
    undecoded = refusal(split.dataset)
    refused = not_resident(split, batch, others[0])
    if not refused and any(forms(other) != forms(batch) for other in others[1:]):
        refused = {"resident": "its batches come in several shapes"}
    return {**refused, **({} if undecoded is None else {"decoded": undecoded})}


def forms(batch: Tree) -> list[tuple[int, ...]]:
    """The shapes of a batch's tensors without the number of its samples."""
    return [tuple(t.shape[1:]) for t in tensors(batch)]


def not_resident(split: OwnSplit, batch: Tree, again: Tree) -> dict[str, str]:
    """Why training samples can't be read once and kept."""
    count = samples(batch)
    if not only_tensors(batch):
        return {"resident": "its batches hold something besides tensors"}
    if kinds := {type(t).__name__ for t in tensors(batch)} - {"Tensor", "Parameter"}:
        named = ", ".join(sorted(kinds))
        return {
            "resident": f"its batches hold tensors of a class of their own ({named}), and what is taken out is plain"
        }
    if not all(has_each(t, count) for t in tensors(batch)):
        return {"resident": "not all tensors of its batches are [B, ...], from which samples can be taken"}
    again = turned(again, count)
    if _shapes_of(again) != _shapes_of(batch):
        return {"resident": "its items differ in shape from one reading to the next"}
    reason = _changing(split, batch, again) or _alone(split, batch) or _later(split, batch)
    return {"resident": reason} if reason else {}


def _changing(split: OwnSplit, batch: Tree, again: Tree) -> str:
    """Why items can't be kept as they were read: they are others the next time."""
    if not same(again, batch):
        return _unlike(split, batch, samples(batch))
    if not same_again(split, batch):
        return _DIFFER
    if _draws(split):
        return "its items draw random numbers when they are read, for a rare augmentation perhaps"
    return ""


def _alone(split: OwnSplit, batch: Tree) -> str:
    """Why items can't be read one by one; each is looked at, since the longest is padded by nothing, wherever it is."""
    for index in range(samples(batch)):
        try:
            alone = split.batch([index])
        except Exception:  # whatever a user's code raises: all its own batches may be larger
            return "its collate_fn makes no batch of one item"
        if not same(alone, mapped(batch, lambda t, i=index: t[i : i + 1])):  # type: ignore[misc]
            return "the shape or the values of an item depend on what else is in its batch"
    return ""


def _later(split: OwnSplit, batch: Tree) -> str:
    """Why samples can't be found by their items, as far as a moment's reading tells: a collate_fn leaves some out, or
    pads a batch to the longest of its items, and a longer one comes later.
    """
    if split.collate is default_collate:
        return ""
    count, end = samples(batch), time.perf_counter() + _PATIENCE_S
    for begin in range(0, len(split), count):
        some = range(begin, min(begin + count, len(split)))
        try:
            found = split.batch(some)
        except Exception:  # whatever a user's code raises, of nothing that is left to collate say
            return f"its collate_fn makes no batch of items {some[0]} to {some[-1]}"
        if samples(found) != len(some):
            return f"its collate_fn makes {samples(found)} samples of items {some[0]} to {some[-1]}"
        if forms(found) != forms(batch):
            return f"its collate_fn makes another shape of items {some[0]} to {some[-1]} than of the first"
        if time.perf_counter() > end:
            break
    return ""


def _draws(split: OwnSplit) -> bool:
    """Whether reading an item moves a generator of the process, the second time too.

    A first reading may seed it by the item's number, or draw what is kept from then on.
    """
    try:
        split.dataset[0]
        before = drawn()
        split.dataset[0]
    except Exception:  # whatever a user's code raises, sometimes
        return True
    return have_drawn(before)


def same_again(split: OwnSplit, batch: Tree) -> bool:
    """Whether items stay the same however often they are read, as far as a moment tells.

    A transform of one item in thirty is in few pairs of readings, and may draw from a generator of its own.
    """
    count, end = samples(batch), time.perf_counter() + _PATIENCE_S
    for _ in range(_READINGS):
        try:
            again = split.batch(range(count))
        except Exception:  # whatever a user's code raises, sometimes
            return False
        if not same(again, batch):
            return False
        if time.perf_counter() > end:
            break
    return True


def _unlike(split: OwnSplit, batch: Tree, count: int) -> str:
    """Why items of a batch are others when they are read in the other order: in the same one, too, or only then."""
    with suppress(Exception):  # whatever a user's code raises: it was read before
        if same(split.batch(range(count)), batch):
            return "the values of an item depend on its place in its batch"
    return _DIFFER


def miscounted(batch: Tree, collate: Callable[[list[Tree]], Tree], items: Mapping[int, Tree]) -> tuple[str, str]:
    """What is seen of a batch that holds another number of samples than items were put into it, and the remedy.

    Args:
        batch: what `collate` made of the items.
        collate: the user's, or torch's.
        items: by their numbers.
    """
    if dropped := _dropped(batch, collate, items):
        left_out = f"item{'s' * (len(dropped) > 1)} {', '.join(map(str, dropped))}"
        remedy = "let it keep them all, and leave out of the data set what is not to be trained on (a Subset of it)"
        return f"holds {samples(batch)} samples, since its collate_fn drops {left_out}", remedy
    count = listed(batch)
    if count is not None:
        seen = f"is taken for {count} samples, since it holds {count} dictionaries in a list, and no tensor beside it"
        return seen, "put a tensor [B, ...] beside that list, torch.arange(len(items)) say"
    if movable(batch):
        return f"is taken for {samples(batch)} samples", f"give {type(batch).__name__} their number as batch_size"
    remedy = "let its first tensor be [B, ...]: put torch.arange(len(items)) in front where no other is"
    return f"begins with {[tuple(t.shape) for t in tensors(batch)][:1]}", remedy


def _dropped(batch: Tree, collate: Callable[[list[Tree]], Tree], items: Mapping[int, Tree]) -> list[int]:
    """The items without which a batch is the same; none where each counts, or none does."""
    try:
        spare = [i for i in items if same(collate([item for j, item in items.items() if j != i]), batch)]
    except Exception:  # whatever a user's code raises: its own batches may be larger
        return []
    return spare if len(spare) < len(items) else []


def only_tensors(batch: Tree) -> bool:
    """Whether a batch holds nothing besides tensors."""
    return all(isinstance(leaf, Tensor) for leaf in leaves(batch) if leaf is not None)


def _shapes_of(batch: Tree) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in tensors(batch)]


def shapes(batch: Tree, others: Iterable[Tree]) -> dict[str, str]:
    """Why a recorded step can't be fed: a replay copies tensors of one shape into buffers, and nothing else."""
    if not only_tensors(batch):
        return {"graph": "a replayed step takes tensors alone, and its batches hold something besides"}
    if any(_shapes_of(other) != _shapes_of(batch) for other in others):
        return {"graph": "a graph is recorded for one shape, and its batches come in several"}
    return {}


def moved_whole(batch: Tree) -> dict[str, str]:
    """What must know each tensor of a batch, where an object in it is moved by its own `to(device)`."""
    kind = next((type(leaf).__name__ for leaf in leaves(batch) if movable(leaf)), "")
    beside = f"a copy beside the step must know each tensor of a batch, and its {kind} moves itself"
    return {"pinned": beside, "dp": f"DataParallel can't part its {kind}"} if kind else {}


def layout(model: nn.Module, batch: Tree) -> dict[str, str]:
    """Why there is nothing to lay out or to compute as products."""
    if not any(isinstance(m, nn.Conv2d) for m in model.modules()):
        return dict.fromkeys(("channels-last", "products"), "its model has no 2-D convolutions")
    if not any(t.dim() == 4 and t.is_floating_point() for t in tensors(batch)):
        return dict.fromkeys(("channels-last", "products"), "its batches hold no images [B, C, H, W] as floats")
    return {}


def scripted(model: nn.Module) -> dict[str, str]:
    """What lays a net out anew, cuts it or averages it, which weights of torch.jit's modules do not take."""
    if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
        return dict.fromkeys(("channels-last", "dead-taps", "products", "ema"), "its net holds modules of torch.jit")
    return {}


def map_sizes(batch: Tree, others: Iterable[Tree]) -> dict[str, str]:
    """Why nothing can be made for the size that maps have: what other batches hold, to test with too, differs."""
    met = [_sizes_of(batch), *map(_sizes_of, others)]
    if all(a == b for sizes in met for a, b in zip(met[0], sizes, strict=False)):
        return {}
    seen = ", ".join("x".join(map(str, size)) for size in dict.fromkeys(sizes[0] for sizes in met if sizes))
    reason = f"it is exact for one size of maps alone, and its images come in several ({seen})"
    return dict.fromkeys(("dead-taps", "products"), reason)


def _sizes_of(batch: Tree) -> list[tuple[int, ...]]:
    """Lengths, heights and widths, or depths with them, of all maps [B, C, ...], in order."""
    return [tuple(t.shape[2:]) for t in tensors(batch) if t.dim() >= 3 and t.is_floating_point()]


def gathering(outputs: Sequence[Tree], count: int) -> dict[str, str]:
    """Why DataParallel can't put together what the net gives for parts of a batch of `count` samples."""
    found = [leaf for output in outputs for leaf in leaves(output) if leaf is not None]
    other = next((leaf for leaf in found if not isinstance(leaf, Tensor)), None)
    if other is not None:
        return {"dp": f"DataParallel can't gather what its model gives, a {type(other).__name__}"}
    whole = next((leaf for leaf in found if not leaf.dim() or len(leaf) != count), None)
    if whole is None:
        return {}
    if not whole.dim():
        return {"dp": "its model gives a loss or more of a whole batch, and DataParallel gathers one from each GPU"}
    given = f"a tensor of shape {tuple(whole.shape)} of {count} samples"
    return {"dp": f"its model gives {given}, and DataParallel joins what its GPUs give by the first dimension"}


def of_step(uncopied: str, summed: bool, counted: Sequence[str] = (), twice: bool = False) -> dict[str, str]:
    """What works on a copy of the net, where there can be none for a reason; on other parts of a batch as if each
    loss were a mean, where it is a sum: a batch twice as large would have a gradient twice as large; and what runs none
    of the user's code in most steps, which counts in it; and what compiles the net, whose gradients have no gradients.
    """
    held = f"a replayed step runs none of your code, which changes {', '.join(counted)} in each step"
    why = f"its net can't be copied ({uncopied})"
    sums = "its loss is a sum over the samples of a batch: divide it by their number"
    copying = dict.fromkeys(_COPYING if uncopied else (), why)
    compiling = dict.fromkeys(_COMPILING if twice else (), _TWICE)
    return dict.fromkeys(_SHARING if summed else (), sums) | copying | compiling | ({"graph": held} if counted else {})


def moving(names: Sequence[str]) -> str:
    """What to say of attributes of the user's object whose tensors a step changes; empty where there are none."""
    if not names:
        return ""
    return (
        f"loss() changes what the workload holds as {', '.join(names)}, which is in no checkpoint: let the net of "
        "model() hold it, without gradient."
    )


def turned(batch: Tree, count: int) -> Tree:
    """A batch with its samples in the other order."""
    return by_sample(batch, count, lambda given: given.flip(0) if isinstance(given, Tensor) else given[::-1])


def same(a: Tree, b: Tree) -> bool:
    """Whether two batches hold the same values."""
    pairs = list(zip(tensors(a), tensors(b), strict=False))
    return len(tensors(a)) == len(tensors(b)) and all(x.shape == y.shape and _equal(x, y) for x, y in pairs)


def _equal(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors hold the same values; what is missing (nan) in both is the same."""
    pairs = list(zip(stored(x), stored(y), strict=False))
    if x.layout != y.layout or any(a.shape != b.shape for a, b in pairs):
        return False
    return all(torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)
