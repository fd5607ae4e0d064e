"""A user's own evaluation, tried before a ladder: what it gives, and whether it takes what a net gives in bf16."""

from __future__ import annotations

import time

import torch
from torch import nn

from laptime.data.own.importing import told_with_line
from laptime.data.own.opened import OwnData
from laptime.own.user_code import complaint
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.tallies import untouched
from laptime.workloads.own import Batches, Kind, evaluated, has_evaluation

_EVALUATED = 256  # test samples that an evaluation is tried on, at most
_LONG_S = 10.0  # one that takes longer is not tried once more in bf16, which some CPUs compute far slower


def tried(data: OwnData, model: nn.Module) -> tuple[Kind | None, dict[str, str]]:
    """What the user's own evaluation gives, on samples spread over the test data, and what it is not for.

    Returns:
        None and nothing without an evaluation.

    Raises:
        RunError: it fails.
    """
    if not has_evaluation(data.workload):
        return None, {}
    count, begin = len(data.test), time.perf_counter()
    chosen = torch.arange(0, count, -(-count // _EVALUATED))
    parts = chosen.split(data.evaluation_batch)
    batches = Batches(lambda: (data.test.batch(p.tolist()) for p in parts), len(chosen), data.evaluation_batch)
    with told_with_line("evaluate()", data.file, getattr(data.workload, "evaluate", None)), torch.no_grad():
        kind, _ = evaluated(data.workload, model.eval(), batches, data.file)
    refused = _in_bf16(data, model, batches) if time.perf_counter() - begin < _LONG_S else {}
    model.train()
    return kind, refused


def _in_bf16(data: OwnData, model: nn.Module, batches: Batches) -> dict[str, str]:
    """Why bf16 is left out: numpy has no such numbers, so scores that are handed to it fail, on each device alike.

    Other errors, an operation without a kernel, may be those of this device alone: the runs meet them or don't.
    """
    before = drawn()
    try:
        with torch.no_grad(), untouched(data.workload), torch.autocast("cpu", torch.bfloat16):
            evaluated(data.workload, model, batches, data.file)
    except TypeError as error:
        told = complaint(error, data.file, (getattr(data.workload, "evaluate", None),))
        return {"bf16": f"evaluate() fails with what its net gives in bf16: {told}; say .float() before .numpy()"}
    except (Exception, SystemExit):  # whatever a user's code raises
        return {}
    finally:
        put_back_drawn(before)
    return {}
