"""A look into a user's own training before a ladder: `python -m laptime.preflight.inspecting REQUEST.json RESULT.json`.

The request holds `workload` (`path/to/train.py:name`), and `precision` where a step in it is to be tried. The result is
that of `laptime.data`: `data` (a DataSpec with what was found), or `error`, `kind` and `exit_code`. What the user's
code prints goes to this process's own output.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from laptime.catalogue import WORKLOADS
from laptime.catalogue.own import place_of
from laptime.data.lightning.lengths import length_refusals
from laptime.data.lightning.module import LightningWorkload
from laptime.data.own import refused as own_refused
from laptime.data.own.counted import moved_by_reading
from laptime.data.own.digest import digest_of_data
from laptime.data.own.fed_back import Reread, fed_back
from laptime.data.own.importing import digest_of, interrupt_told, modules_beside, told_with_line
from laptime.data.own.opened import OwnData, open_own
from laptime.data.own.settings import listen, settings_read
from laptime.data.own.tests import varying
from laptime.data.own.unused import unused
from laptime.data.own.weights import least_limit
from laptime.data.own.workers import refused_workers
from laptime.engine.laid_out import copy_refusals, layout_refusals
from laptime.engine.reset import starts_from_zeros
from laptime.errors import LaptimeError, UsageError, refusal, shorten
from laptime.host.processes import leave
from laptime.optimizations.dead_taps import update_refusal
from laptime.own.user_code import place_in
from laptime.preflight.cropping import crops
from laptime.preflight.left_behind import kept_draws, left_behind
from laptime.preflight.reading import batch_of, first_batch, others_of
from laptime.records import write_json
from laptime.spec import DataSpec, OwnSpec
from laptime.values.draws import drawn
from laptime.values.trees import samples
from laptime.workloads.base import Batch
from laptime.workloads.own import (
    answered,
    check_stepped,
    clip_norm,
    probe_optimizer,
    rates_of,
    takes,
    takes_model,
)
from laptime.workloads.own_checked import loss_line
from laptime.workloads.own_evaluation import tried
from laptime.workloads.own_losses import losses_of
from laptime.workloads.own_optimizer import apart, begun_with, habits, left_out, scattered, stepped_by_others, unfused
from laptime.workloads.own_parts import looked_at
from laptime.workloads.own_schedule import falling, walked
from laptime.workloads.own_step import fails_in_bf16, in_double, stepped

_ITEMS = 8
_CLASSIFIER = "it needs an image classifier of laptime's own, whose batches are images with one class each"


def inspect(name: str, halved_on: str = "") -> DataSpec:
    """Imports a user's workload, reads some items twice, and takes two steps forward and back.

    Args:
        name: of the file and the workload in it.
        halved_on: `cpu` or `cuda` where a step in bf16 there is wanted, too: a ladder on a CPU has a probe for that.

    Raises:
        UsageError: it is no workload, or what it gives can't be trained with.
        RunError: the user's code failed; the sentence names its line.
    """
    file, attribute = place_of(name)
    known = set(sys.modules)
    listen()
    data = open_own(file, attribute)
    own_name = _name(data, file)
    batch_size, rate = _number(data, "batch_size", 32, int), _number(data, "learning_rate", 1e-3, float)
    indices = range(min(_ITEMS, len(data.train), batch_size))
    batch, train_once = first_batch(data, data.train, indices)
    again = batch_of(data, data.train, list(reversed(indices)))
    judged_on, test_once = first_batch(data, data.test, range(min(_ITEMS, len(data.test))))
    micro_batch = None if data.micro_batch is None else _number(data, "micro_batch_size", 1, int)
    reread = Reread(data.train, samples(batch))
    step = stepped(data, batch, judged_on)
    changed = reread.changed(lambda given: answered(data.workload, step.model, Batch(given), file))
    read_before, changing = fed_back(changed, loss_line(data))
    first_read, kept_told = kept_draws(data, train_once, test_once)
    others = [again, *others_of(data, data.train, samples(batch))]
    tests = [judged_on, *others_of(data, data.test, samples(judged_on))]
    kind, unrounded = tried(data, step.model)
    steps = -(-len(data.train) // batch_size)
    updated = {**_optimizer(data, step.model, rate), **walked(data, step.model, rate, steps)}
    losses = losses_of(data, step.model, batch)  # of a net that has moved: of one that knows nothing all are alike
    refused = {
        **dict.fromkeys(("flip", "crop", "label-smoothing", "progressive-resizing"), _CLASSIFIER),
        "selective-backprop": "it needs the loss of each sample, and loss() gives the mean",
        **own_refused.not_kept(data.train, batch, others),
        **crops(data, own_name, step.copied, [batch, others[-1]]),
        **own_refused.map_sizes(batch, others + tests),
        **layout_refusals(data, step.copied, batch),
        **own_refused.shapes(batch, others),
        **own_refused.gathering(step.outputs, samples(batch)),
        **own_refused.moved_whole(batch),
        **own_refused.of_step(step.uncopied, losses.summed, step.counted, step.twice),
        **updated,
        **unrounded,
        **in_double(step.model),
        **refused_workers(data),
        **length_refusals(data.workload),
        **(data.workload.refused if isinstance(data.workload, LightningWorkload) else {}),
    }
    in_parts, parts_told = looked_at(data, step.model, losses, batch)
    behind = {**first_read, **left_behind(data, step.model, samples(batch))}
    refused = {**copy_refusals(data, batch), **refused, **in_parts, **behind, **read_before}
    beside = modules_beside(file, known, settings_read())
    own = data.workload
    warned = own.warnings if isinstance(own, LightningWorkload) else unused(own, file, data.train.dataset)
    unread = left_out(own, step.model, rate), varying(data, samples(judged_on)), moved_by_reading(data)
    told = (*warned, *step.told, changing, kept_told, parts_told, *unread, falling(data, step.model, rate, steps))
    if halved_on:  # the last, since it moves what the net holds
        refused |= fails_in_bf16(data, step.model, batch, halved_on)
    return DataSpec(
        asked="auto",
        kind="own",
        digest=digest_of_data(data, batch, again),
        path=str(file),
        classes=(),
        train_count=len(data.train),
        test_count=len(data.test),
        notice="\n".join(filter(None, told)),
        own=OwnSpec(
            attribute=attribute,
            name=own_name,
            batch_size=batch_size,
            learning_rate=rate,
            quality=kind or ("accuracy" if step.judged else "loss"),
            refused=refused,
            file=digest_of(file, beside),
            beside=beside,
            lightning=isinstance(data.workload, LightningWorkload),
            numbered=isinstance(data.workload, LightningWorkload) and data.workload.numbered,
            micro_batch=micro_batch,
            clip_norm=None if clip_norm(data.workload) is None else _number(data, "clip_norm", 1.0, float),
            schedule=getattr(data.workload, "schedule", None) is not None,
            by_name=takes_model(data.workload),
            weighted=data.train.weights is not None,
            begun=data.train.begin is not None,
            optimizer=habits(own, step.model, rate),
            least_limit=least_limit(data.train.weights),
        ),
    )


def _name(data: OwnData, file: Path) -> str:
    name = str(getattr(data.workload, "name", file.stem))
    if name in [w.name for w in WORKLOADS] or not name.strip():
        raise UsageError(f"the name {shorten(name)!r} is not free: give the workload another name, or its file.")
    return shorten(name, 60)


def _number(data: OwnData, what: str, default: float, kind: type[int] | type[float]) -> Any:
    value: Any = getattr(data.workload, what, default)
    whole = ", a whole one" if kind is int else ""
    if isinstance(value, bool) or not isinstance(value, int | kind) or not value > 0 or not math.isfinite(value):
        raise UsageError(f"{what} of {data.file.name} is {shorten(repr(value))}: give a number above 0{whole}.")
    return kind(value)


def _optimizer(data: OwnData, model: nn.Module, rate: float) -> dict[str, str]:
    """What the user's optimizer has no kernels for; raises what `_tried_optimizer` does."""
    begun = drawn()
    made, refused = _tried_optimizer(data, model, rate)
    kind = type(made)
    refused |= scattered(made) | stepped_by_others(made, getattr(data.workload, "schedule", None))
    refused |= apart(made, model, begun)
    if reason := update_refusal(made):
        refused["dead-taps"] = reason
    if not takes(kind, "fused"):
        refused["fused-optimizer"] = f"{kind.__name__} has no fused kernel"
    if not starts_from_zeros(made):
        refused["graph"] = f"its {kind.__name__} may not start from zeros, so it can't be put back in place"
    if kind is not torch.optim.SGD and not takes(kind, "capturable"):
        refused["graph"] = f"a step of {kind.__name__} can't be captured"
    if getattr(data.workload, "optimizer", None) is not None:
        refused["decay"] = "its own optimizer settles the decay"
    return refused


def _tried_optimizer(data: OwnData, model: nn.Module, rate: float) -> tuple[Optimizer, dict[str, str]]:
    """The user's optimizer, of which a step has moved the net by the gradients that are there, and see `unfused`.

    Raises:
        UsageError: it takes another learning rate, or trains something besides the net.
        RunError: the user's code failed.
    """
    maker = getattr(data.workload, "optimizer", None)
    lightning = data.workload if isinstance(data.workload, LightningWorkload) else None
    place = place_in(data.file, (), (lightning.configuring if lightning else maker,))
    trained = [p.requires_grad for p in model.parameters()]
    with told_with_line("optimizer()" if maker else "the default optimizer, Adam,", data.file, maker):
        made = probe_optimizer(data.workload, model, rate)
        check_stepped(made, "configure_optimizers" if lightning else "optimizer", f"{data.file.name}{place}")
        rates, doubled = (rates_of(o) for o in (made, probe_optimizer(data.workload, model, 2 * rate)))
        refused = unfused(made) | begun_with(made)  # before it counts steps
        made.step()
    if rates == doubled:  # some groups may have a rate of their own
        asked = 2 * rate if math.isclose(rates[0], rate) else rate
        raise UsageError(
            f"optimizer() of {data.file.name} trains at {rates[0]:g} where it was given lr={asked:g}{place}: pass lr "
            "on, and set learning_rate."
        )
    if trained != [p.requires_grad for p in model.parameters()]:
        refused["ddp"] = (
            "its optimizer() changes which parameters are trained, and DDP has looked at them before: do it in model()"
        )
    foreign = len({id(p) for group in made.param_groups for p in group["params"]} - {id(p) for p in model.parameters()})
    if foreign:
        raise UsageError(
            f"optimizer() of {data.file.name} trains {foreign} tensors that are not among its parameters{place}: make "
            "it of those alone, and let the net of model() hold what else is trained, a loss's own weights say."
        )
    return made, refused


def main(arguments: list[str]) -> int:
    """Answers one request; returns the exit code."""
    request, result = map(Path, arguments)
    try:
        asked = json.loads(request.read_text(encoding="utf-8"))
        with interrupt_told(place_of(str(asked["workload"]))[0]):
            data = inspect(str(asked["workload"]), str(asked.get("halved_on", "")))
    except LaptimeError as error:
        write_json(result, refusal(error))
        return error.exit_code
    write_json(result, {"data": data.model_dump(mode="json")})
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))  # a thread of the user's file may go on for ever
