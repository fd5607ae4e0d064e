"""Whether a user's own step is the same one on images in another memory format, tried before a ladder.

A net of the tutorials may say `x.view(len(x), -1)` behind its convolutions, which fails where these give channels_last;
and what reads an image in the order of memory (`torch.as_strided`) finds other pixels there. Each would fail, or be
called wrong, in every variant that has the layout beside other things. What is drawn like an image
(`torch.randn_like(x)`) falls on other pixels, too, as a dropout's mask does: it is as random there, and no other step.
"""

from __future__ import annotations

import torch
from torch import nn

from laptime.data.own import refused as own_refused
from laptime.data.own.opened import OwnData
from laptime.engine.check import step_within
from laptime.engine.one_step import Step, compared
from laptime.engine.still import silence, still
from laptime.errors import shorten
from laptime.own.user_code import complaint
from laptime.values.copies import copy_of
from laptime.values.draws import drawn, put_back_drawn, seed_all
from laptime.values.tallies import untouched
from laptime.values.trees import Tree, mapped, sent
from laptime.workloads.base import Batch
from laptime.workloads.own import answered

_OTHER = (
    "its step is another one on images in channels_last, as where it reads their values in the order of memory "
    "(as_strided): read them by their axes"
)


def layout_refusals(data: OwnData, model: nn.Module, batch: Tree) -> dict[str, str]:
    """Why there is nothing to lay out or to compute as products, or why the user's step does not stay what it is.

    Args:
        data: with the user's workload.
        model: the net, of which copies are tried.
        batch: of training.
    """
    known = {**own_refused.layout(model, batch), **own_refused.scripted(model)}
    if "channels-last" in known:
        return known
    before = drawn()
    try:
        reason = _reason(data, model, batch)
    finally:
        put_back_drawn(before)
    return {"channels-last": reason, **known} if reason else known


def copy_refusals(data: OwnData, batch: Tree) -> dict[str, str]:
    """What works on copies of the net, where one takes another step than the net, by a hook that knows that by name.

    Args:
        data: with the user's workload, which makes one more net: a step may leave in it what can't be copied.
        batch: of training.
    """
    before = drawn()
    try:
        told = _miscopied(data, batch)
    finally:
        put_back_drawn(before)
    return own_refused.of_step(told, summed=False)


def _miscopied(data: OwnData, batch: Tree) -> str:
    try:
        own, copied = _own_and_copy(data, batch)
    except (Exception, SystemExit):  # told elsewhere, as is what the net's own step raises
        return ""
    try:
        found = _taken(data, copied, batch)
        if step_within(found, own):
            return ""
        again = _taken(data, copied, batch)  # where it differs from itself nothing is shown
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        return f"a copy of it fails: {shorten(complaint(error, data.file, (data.workload.loss,)), 300)}"
    return "a copy of it takes another step" if step_within(again, found) else ""


def _own_and_copy(data: OwnData, batch: Tree) -> tuple[Step, nn.Module]:
    """The step of a new net, which is freed, since a large one would stand there twice, and a copy made before it."""
    model = data.workload.model()
    copied = copy_of(model)
    return _taken(data, model, batch), copied


def _reason(data: OwnData, model: nn.Module, batch: Tree) -> str:
    try:
        # Twice as it is: a step that differs from itself, by numbers that nobody can seed say, shows nothing.
        plain, again = (_step(data, model, batch, torch.contiguous_format) for _ in range(2))
    except (Exception, SystemExit):  # what can't be copied is told elsewhere
        return ""
    if not step_within(again, plain):
        return ""
    try:
        other = _step(data, model, batch, torch.channels_last)
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        told = shorten(complaint(error, data.file, (data.workload.loss,)), 300)
        return f"its code does not take images in channels_last: {told}"
    return "" if step_within(other, plain) else _OTHER


def _step(data: OwnData, model: nn.Module, batch: Tree, layout: torch.memory_format) -> Step:
    """A step of a copy of the net, laid out anew."""
    return _taken(data, copy_of(model).to(memory_format=layout), batch, layout)


def _taken(data: OwnData, net: nn.Module, batch: Tree, layout: torch.memory_format = torch.contiguous_format) -> Step:
    """A step of a net: its loss, and the gradient by parameter."""
    net.train().zero_grad(set_to_none=True)
    silence(net, frozen=False)
    seed_all(0)
    given = Batch(sent(mapped(batch, torch.clone), torch.device("cpu"), layout))
    with still(), untouched(data.workload):
        loss, _ = answered(data.workload, net, given, data.file)
        loss.backward()
    gradients = {name: compared(p.grad) for name, p in net.named_parameters() if p.grad is not None}
    return Step(float(loss.detach()), gradients)
