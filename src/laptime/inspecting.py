"""A look into a user's own training before a ladder: `python -m laptime.inspecting REQUEST.json RESULT.json`.

The request holds `workload` (`path/to/train.py:name`). The result is that of `laptime.data`: `data` (a DataSpec with
what was found), or `error`, `kind` and `exit_code`. What the user's code prints goes to this process's own output.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laptime.catalogue import WORKLOADS
from laptime.catalogue.own import place_of
from laptime.data.lightning_module import LightningWorkload
from laptime.data.own import OwnData, OwnSplit, digest_of, open_own, told_with_line
from laptime.data.own_workers import item_makers, refused_workers
from laptime.engine.reset import starts_from_zeros
from laptime.errors import LaptimeError, RunError, UsageError, refusal, shorten
from laptime.records import write_json
from laptime.spec import DataSpec, OwnSpec
from laptime.trees import Tree, leaves, mapped, samples, tensors
from laptime.user_code import place_in
from laptime.workloads.base import Batch
from laptime.workloads.own import answered, probe_optimizer, takes

_ITEMS = 8
_CLASSIFIER = "it needs an image classifier of laptime's own, whose batches are images with one class each"


def inspect(name: str) -> DataSpec:
    """Imports a user's workload, reads some items twice, and takes one step forward and back.

    Raises:
        UsageError: it is no workload, or what it gives can't be trained with.
        RunError: the user's code failed; the sentence names its line.
    """
    file, attribute = place_of(name)
    data = open_own(file, attribute)
    own_name = _name(data, file)
    batch_size, rate = _number(data, "batch_size", 32, int), _number(data, "learning_rate", 1e-3, float)
    indices = range(min(_ITEMS, len(data.train), batch_size))
    batch = _batch(data, data.train, indices)
    again = _batch(data, data.train, list(reversed(indices)))
    judged_on = _batch(data, data.test, range(min(_ITEMS, len(data.test))))
    model, judged = _step(data, batch, judged_on)
    refused = {
        **dict.fromkeys(("flip", "label-smoothing", "progressive-resizing"), _CLASSIFIER),
        **_not_resident(data.train, batch, again),
        **_layout(model, batch),
        **_shapes(data, batch, again),
        **_optimizer(data, rate),
        **refused_workers(data),
    }
    return DataSpec(
        asked="auto",
        kind="own",
        digest=_digest(data, batch, again),
        path=str(file),
        classes=(),
        train_count=len(data.train),
        test_count=len(data.test),
        own=OwnSpec(
            attribute=attribute,
            name=own_name,
            batch_size=batch_size,
            learning_rate=rate,
            quality="accuracy" if judged else "loss",
            refused=refused,
            file=digest_of(file),
            lightning=isinstance(data.workload, LightningWorkload),
        ),
    )


def _name(data: OwnData, file: Path) -> str:
    name = str(getattr(data.workload, "name", file.stem))
    if name in [w.name for w in WORKLOADS] or not name.strip():
        raise UsageError(f"the name {shorten(name)!r} is not free: give the workload another name, or its file.")
    return shorten(name, 60)


def _number(data: OwnData, what: str, default: float, kind: type[int] | type[float]) -> Any:
    value: Any = getattr(data.workload, what, default)
    if isinstance(value, bool) or not isinstance(value, int | kind) or not value > 0 or not math.isfinite(value):
        raise UsageError(f"{what} of {data.file.name} is {shorten(repr(value))}: give a number above 0.")
    return kind(value)


def _batch(data: OwnData, split: OwnSplit, indices: Sequence[int]) -> Tree:
    """Items as a batch, each in the user's own place; raises RunError naming what does not fit."""
    which = "training" if split is data.train else "test"
    items = []
    for index in indices:
        with told_with_line(f"reading item {index} of the {which} data", data.file):
            items.append(split.dataset[index])
    shapes = [[tuple(t.shape) for t in tensors(item)] for item in items]
    try:
        with told_with_line(f"making a batch of {len(items)} items of the {which} data", data.file):
            found = split.collate(items)
    except RunError as error:
        other = next((i for i, s in enumerate(shapes) if s != shapes[0]), None)
        if other is None or hasattr(data.workload, "collate_fn"):
            raise
        raise RunError(
            f"items 0 and {indices[other]} of the {which} data of {data.file.name} have shapes {shapes[0]} and "
            f"{shapes[other]}, which make no batch{_made(data, split)}: bring them to one shape, or give the workload "
            "a collate_fn."
        ) from error
    if not tensors(found) or samples(found) != len(items):
        raise RunError(
            f"a batch of {len(items)} items of the {which} data of {data.file.name} begins with "
            f"{[tuple(t.shape) for t in tensors(found)][:1] or 'no tensor'}{_made(data, split)}: let its first "
            "tensor be [B, ...]."
        )
    return found


def _made(data: OwnData, split: OwnSplit) -> str:
    """The line of the user's that makes batches, items or the data, whichever is theirs."""
    return place_in(data.file, (), (split.collate, *item_makers(split), data.workload.data))


def _step(data: OwnData, batch: Tree, test_batch: Tree) -> tuple[nn.Module, bool]:
    """The model, and whether the loss gives an accuracy in evaluation; one step forward and back has been taken."""
    torch.manual_seed(0)
    with told_with_line("model()", data.file):
        model = data.workload.model()
        if not isinstance(model, nn.Module):
            made = place_in(data.file, (), (data.workload.model,))
            raise RunError(f"model() of {data.file.name} gave {type(model).__name__}{made}: return a torch.nn.Module.")
    with told_with_line("loss()", data.file):
        loss, accuracy = answered(data.workload, model.train(), Batch(batch), data.file)
        value, share = loss.item(), 0.0 if accuracy is None else accuracy.item()
    line = f"loss() of {data.file.name}{place_in(data.file, (), (data.workload.loss,))}"
    if not math.isfinite(value):
        raise RunError(f"{line} gave {value} on the first batch: look at its inputs and at the loss.")
    if not 0 <= share <= 1:
        raise RunError(f"{line} gave {share:g} as accuracy: return a share from 0 to 1, or the loss alone.")
    if not loss.requires_grad:
        raise RunError(f"{line} gave a loss without a graph: compute it from the model's output, without detach().")
    with told_with_line("backward through loss()", data.file):
        loss.backward()
    with told_with_line("loss() on the test data", data.file), torch.no_grad():
        _, judged = answered(data.workload, model.eval(), Batch(test_batch), data.file)
    return model.train(), judged is not None


def _digest(data: OwnData, batch: Tree, again: Tree) -> str:
    """SHA-256 of counts and shapes, and of some values where two readings agree: the file itself is no data."""
    found = [(len(data.train), len(data.test)), *((tuple(t.shape), str(t.dtype)) for t in tensors(batch))]
    alike = _same(_turned(again, samples(batch)), batch)
    values = _bytes(batch) + _bytes(data.train.batch([len(data.train) - 1])) if alike else b""
    return hashlib.sha256(repr(found).encode() + values).hexdigest()


def _turned(batch: Tree, count: int) -> Tree:
    """A batch with its samples in the other order."""
    return mapped(batch, lambda t: t.flip(0) if t.dim() and len(t) == count else t)


def _bytes(batch: Tree) -> bytes:
    flat = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors(batch)]
    return b"".join(t.numpy().tobytes() for t in flat)


def _same(a: Tree, b: Tree) -> bool:
    pairs = list(zip(tensors(a), tensors(b), strict=False))
    return len(tensors(a)) == len(tensors(b)) and all(x.shape == y.shape and torch.equal(x, y) for x, y in pairs)


def _not_resident(split: OwnSplit, batch: Tree, again: Tree) -> dict[str, str]:
    """Why training samples can't be read once and kept."""
    count = samples(batch)
    if not _only_tensors(batch):
        return {"resident": "its batches hold something besides tensors"}
    if not all(t.dim() and len(t) == count for t in tensors(batch)):
        return {"resident": "not all tensors of its batches are [B, ...]"}
    turned = _turned(again, count)
    if _shapes_of(turned) != _shapes_of(batch):
        return {"resident": "its items differ in shape from one reading to the next"}
    if not _same(turned, batch):
        return {"resident": "its items differ when they are read twice (a random augmentation, perhaps)"}
    alone = split.batch([0])
    if not _same(alone, mapped(batch, lambda t: t[:1])):
        return {"resident": "the shape or the values of an item depend on what else is in its batch"}
    return {}


def _only_tensors(batch: Tree) -> bool:
    return all(isinstance(leaf, Tensor) for leaf in leaves(batch) if leaf is not None)


def _shapes_of(batch: Tree) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in tensors(batch)]


def _shapes(data: OwnData, batch: Tree, again: Tree) -> dict[str, str]:
    """Why a recorded step can't be fed: a replay copies tensors of one shape into buffers, and nothing else."""
    if not _only_tensors(batch):
        return {"graph": "a replayed step takes tensors alone, and its batches hold something besides"}
    count, whole = samples(batch), len(data.train)
    others = (_batch(data, data.train, range(begin, begin + count)) for begin in ((whole - count) // 2, whole - count))
    if any(_shapes_of(other) != _shapes_of(batch) for other in (again, *others)):
        return {"graph": "a graph is recorded for one shape, and its batches come in several"}
    return {}


def _layout(model: nn.Module, batch: Tree) -> dict[str, str]:
    images = [t for t in tensors(batch) if t.dim() == 4 and t.is_floating_point()]
    if not any(isinstance(m, nn.Conv2d) for m in model.modules()):
        return dict.fromkeys(("channels-last", "dead-taps", "products"), "its model has no 2-D convolutions")
    if not images:
        return dict.fromkeys(("channels-last", "dead-taps", "products"), "its batches hold no images [B, C, H, W]")
    return {}


def _optimizer(data: OwnData, rate: float) -> dict[str, str]:
    """What the user's optimizer has no kernels for; raises where it takes another learning rate."""
    with told_with_line("optimizer()", data.file):
        made = probe_optimizer(data.workload, rate)
        taken = float(made.param_groups[0]["lr"])
    if not math.isclose(taken, rate):
        place = place_in(data.file, (), (getattr(data.workload, "optimizer", None),))
        raise UsageError(
            f"optimizer() of {data.file.name} trains at {taken:g} where it was given lr={rate:g}{place}: pass lr on, "
            "and set learning_rate."
        )
    kind, refused = type(made), {}
    if not takes(kind, "fused"):
        refused["fused-optimizer"] = f"{kind.__name__} has no fused kernel"
    if not starts_from_zeros(made):
        refused["graph"] = f"its {kind.__name__} may not start from zeros, so it can't be put back in place"
    if kind is not torch.optim.SGD and not takes(kind, "capturable"):
        refused["graph"] = f"a step of {kind.__name__} can't be captured"
    if hasattr(data.workload, "optimizer"):
        refused["decay"] = "its own optimizer settles the decay"
    return refused


def main(arguments: list[str]) -> int:
    """Answers one request; returns the exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m laptime.inspecting REQUEST.json RESULT.json\n")
        return 2
    request, result = Path(arguments[0]), Path(arguments[1])
    try:
        data = inspect(str(json.loads(request.read_text(encoding="utf-8"))["workload"]))
    except LaptimeError as error:
        write_json(result, refusal(error))
        return error.exit_code
    write_json(result, {"data": data.model_dump(mode="json")})
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
