"""Why no kernel of a user's net can be cropped: what meets it in passes, and what its evaluation reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from laptime.data.own.opened import OwnData
from laptime.errors import shorten
from laptime.optimizations.dead_taps import crop_refusal
from laptime.optimizations.live_taps import Convolution, ForeignReads
from laptime.optimizations.shapes import CPU, META, Passes, Run, undone
from laptime.own.user_code import place_in
from laptime.values.copies import copy_of
from laptime.values.trees import Tree, sent
from laptime.workloads.base import Batch
from laptime.workloads.own import Batches, OwnWorkload, has_evaluation, looked_at

# Test samples that an evaluation is looked at with.
_FEW = 8


def crops(data: OwnData, name: str, model: nn.Module, batches: Sequence[Tree]) -> dict[str, str]:
    """Why no kernel of the net can be cropped.

    Args:
        data: the user's.
        name: of the workload.
        model: the net, which is copied.
        batches: of the training data.
    """
    workload = OwnWorkload(name, data)

    def on(batch: Tree, device: torch.device) -> Run:
        return lambda net: workload.forward(net, Batch(sent(batch, device, torch.contiguous_format)))

    on_samples = [undone(data, on(batch, CPU)) for batch in batches]
    reason = crop_refusal(model, Passes([on(batches[0], META)], on_samples, data.file)) or _judged_by(data, model)
    return {"dead-taps": reason} if reason else {}


def _judged_by(data: OwnData, model: nn.Module) -> str:
    """Why not, where the user's own evaluation reads weights: a norm, a share of zeros, what it saves."""
    if not has_evaluation(data.workload):
        return ""
    net, few = copy_of(model), range(min(_FEW, len(data.test)))
    reads = ForeignReads({name: m for name, m in net.named_modules() if isinstance(m, Convolution)})
    batches = Batches(lambda: iter([data.test.batch(few)]), len(few), len(few))
    function: Any = data.workload.evaluate  # type: ignore[attr-defined]
    with suppress(Exception), looked_at(data.workload), torch.no_grad(), reads:  # it may want more than a few
        function(net.eval(), batches)
    place = place_in(data.file, (), (function,))
    named = shorten(", ".join(sorted(reads.found)))
    return f"evaluate() reads the weight of {named}{place}, which would be smaller" if named else ""
