"""Runs laptime on CUDA tensors where there is no GPU: the child of test_cuda_standin.py, under cuda_standin.c.

python cuda_standin.py STORE FOLDER VARIANT...

Prints a line of JSON for each variant, and on standard error its name before all that is said of it. Kernels do nothing
and memory stays zero, so no figure means anything. What torch hands to cuBLAS and cuDNN, which ask for a driver, is
answered here with tensors of the right shape; what code looks at (a learning rate, counts) is computed on the host.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.unit.conftest import make_spec
from torch import Tensor, nn

from laptime.catalogue import find_optimization
from laptime.engine.build import build, make_recipe, open_data
from laptime.measure.ceilings import measure_ceilings
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.preflight.inspecting import inspect
from laptime.spec import DataSpec
from laptime.variants import resolve
from laptime.worker import run
from laptime.workloads.base import Batch, Output

CUDA, META = torch.device("cuda", 0), torch.device("meta")
_FEW = 8


def shape_of(tensor: Tensor | None) -> Tensor | None:
    return (
        None if tensor is None else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
    )


def like(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor, device=CUDA)


def convolution(images: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    assert (images.device, images.dtype) == (weight.device, weight.dtype)
    return like(torch.ops.aten.convolution(*map(shape_of, (images, weight, bias)), *rest))


def convolution_backward(gradient: Tensor, images: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    assert (gradient.device, gradient.dtype) == (images.device, images.dtype) == (weight.device, weight.dtype)
    bias = gradient.new_zeros(gradient.shape[1])
    return tuple(like(t) if asked else None for t, asked in zip((images, weight, bias), rest[-1], strict=True))


def product(one: Tensor, other: Tensor) -> Tensor:
    assert (one.device, one.dtype) == (other.device, other.dtype)
    return like(torch.matmul(torch.empty_like(one, device=META), torch.empty_like(other, device=META)))


def joined(tensors: list[Tensor], dim: int = 0) -> Tensor:
    if tensors[0].dtype is torch.float64 and sum(t.numel() for t in tensors) <= _FEW:
        return torch.cat([t.cpu() for t in tensors], dim).to(CUDA)
    return like(torch.cat([torch.empty_like(t, device=META) for t in tensors], dim))


def register() -> torch.library.Library:
    """Puts the answers into torch's dispatcher; they hold for as long as what is returned."""
    torch.backends.cudnn.enabled = False
    yes, no = torch.ones((), dtype=torch.bool), torch.zeros((), dtype=torch.bool)
    answers = {
        "convolution": convolution,
        "convolution_backward": convolution_backward,
        "mm": product,
        "bmm": product,
        "addmm": lambda added, one, other, **_: product(one, other),
        "cat": joined,
        "ge.Scalar": lambda tensor, _: yes.to(CUDA).expand(tensor.shape),
        "lt.Scalar": lambda tensor, _: no.to(CUDA).expand(tensor.shape),
    }
    library = torch.library.Library("aten", "IMPL")
    for name, answer in answers.items():
        library.impl(name, answer, "CUDA")
    return library


def trained(data: DataSpec, folder: Path, name: str) -> dict[str, object]:
    """A whole run; its check finds zeros and garbage, and calls it wrong."""
    variant = resolve(name)
    fields = {"optimizations": variant.optimizations, "data": data, "epochs": 2, "batch_size": 8}
    if data.own is not None:
        fields |= {"workload": data.own.name, "batch_size": data.own.batch_size}
    record = run(make_spec(variant=name, device="cuda", **fields), folder)
    setup = record.setup
    assert setup is not None, record.error
    return {
        "status": record.status,
        "error": record.error if record.status == "failed" else None,
        "epochs": len(record.epochs),
        "syncs": record.syncs_per_step,
        "graphed": setup.graphed,
        "stages": sorted({find_optimization(o.name).stage for o in variant.optimizations}),
    }


def reading(data: DataSpec) -> dict[str, object]:
    """A recorded step that reads its loss."""
    variant = resolve("cuda-baseline+graph")
    spec = make_spec(device="cuda", data=data, optimizations=variant.optimizations)
    recipe = make_recipe(spec, open_data(spec), variant.optimizations)
    whole = recipe.forward

    def forward(net: nn.Module, batch: Batch) -> Output:
        output = whole(net, batch)
        output.loss.item()
        return output

    recipe = replace(recipe, forward=forward)
    parts = build(recipe, StepMarks())
    try:
        Session(parts, recipe, StepMarks(), lambda *_: None).warm_up(Plan(1, 1, None))
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": None}


def halved(data: DataSpec) -> dict[str, object]:
    """What a look into a training of a user's own says of bf16 on a GPU."""
    assert data.own is not None
    found = inspect(f"{data.path}:{data.own.attribute}", "cuda").own
    assert found is not None
    return {"reason": found.refused.get("bf16")}


def probed(data: DataSpec) -> dict[str, object]:
    """The ceilings of a GPU, of which each is measured with tensors of its own."""
    return {"ceilings": measure_ceilings(CUDA).model_dump(exclude={"load"})}


OTHERS = {"reading": reading, "halved": halved, "probed": probed}


def main(store: str, folder: str, *names: str) -> None:
    held = register()
    data = DataSpec.model_validate_json(store)
    for name in names:
        sys.stderr.write(f"{name}\n")
        found = OTHERS[name](data) if name in OTHERS else trained(data, Path(folder, name), name)
        sys.stdout.write(f"{json.dumps({'variant': name, **found})}\n")
    del held


if __name__ == "__main__":
    main(*sys.argv[1:])
