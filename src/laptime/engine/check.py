"""One step of a variant beside one step of the baseline, on the user's machine, before its time is believed.

Compiled and bf16 kernels have been wrong before. Both start from the same weights and see the same batch; statistical
and model optimizations change the trajectory on purpose and are left out of the comparison: quality judges them.

On a GPU the baseline's side runs in strict fp32, without the TF32 that torch allows convolutions by default; so does an
exact variant's, whose other kernels would else differ by TF32's rounding and not by a mistake. Numeric variants keep
the modes that were timed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from laptime.catalogue import classes_of, find_optimization
from laptime.data.tensors import ImageData
from laptime.engine.build import build, make_recipe
from laptime.engine.plain import plain_gradients
from laptime.optimizations.base import Modes, Parts
from laptime.records import CheckRecord
from laptime.spec import OptimizationSpec, RunSpec


@dataclass(frozen=True)
class Tolerance:
    """Largest relative errors of loss and whole gradient (L2) that a class may show in one step."""

    loss: float
    gradient: float


# Above what was measured over seeds and batches (docs/log.md): exact ones reach 1e-6 in the loss and 1e-2
# in the gradient, where rounding moves a value across the kink of ReLU or max-pooling; bf16 8e-3 and 0.38, most of it
# from BatchNorm over few samples at random initialization. A wrong kernel shows errors of about 1, a gradient at half
# its length one of 0.5: the numeric tolerance stays below that.
TOLERANCES = {"exact": Tolerance(1e-4, 5e-2), "numeric": Tolerance(3e-2, 0.48)}

# A power of two: small fp16 gradients do not vanish, and dividing by it is exact.
_LOSS_SCALE = 1024.0
_STRICT = Modes(matmul_tf32=False, cudnn_tf32=False)


def comparable(optimizations: tuple[OptimizationSpec, ...]) -> tuple[OptimizationSpec, ...]:
    """The exact and numeric ones of a list."""
    return tuple(o for o in optimizations if find_optimization(o.name).klass in TOLERANCES)


def check_one_step(spec: RunSpec, data: ImageData, batch_size: int) -> CheckRecord | None:
    """Compares loss and gradients of one step with the baseline's.

    Args:
        spec: the run, with what was chosen by timing written out; its baseline is the same without optimizations.
        data: where the batch comes from: the first one that each side's own loader gives.
        batch_size: the variant's own, for both sides: kernels are chosen by it.

    Returns:
        None where the variant has nothing to compare (the baseline itself, or statistical optimizations alone).
    """
    chosen = comparable(spec.optimizations)
    if not chosen:
        return None
    sized = spec.model_copy(update={"batch_size": batch_size})
    klass = "numeric" if "numeric" in classes_of(chosen) else "exact"
    loss_before, before = _one_step(sized, data, (), strict=True)
    loss_after, after = _one_step(sized, data, chosen, strict=klass == "exact")
    tolerance = TOLERANCES[klass]
    loss_error = abs(loss_after - loss_before) / max(abs(loss_before), 1e-12)
    gradient_error = relative_error(after, before)
    return CheckRecord(
        klass=klass,
        loss_baseline=loss_before,
        loss_variant=loss_after,
        loss_error=loss_error,
        loss_tolerance=tolerance.loss,
        gradient_error=gradient_error,
        gradient_tolerance=tolerance.gradient,
        passed=_within(loss_error, tolerance.loss) and _within(gradient_error, tolerance.gradient),
    )


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """||found - expected|| / ||expected|| over all tensors together; infinite where names differ."""
    if found.keys() != expected.keys():
        return math.inf
    difference = sum(float((found[k].double() - expected[k].double()).square().sum()) for k in expected)
    norm = sum(float(v.double().square().sum()) for v in expected.values())
    return math.sqrt(difference / norm) if norm else math.inf


def _within(error: float, limit: float) -> bool:
    return math.isfinite(error) and error <= limit


def _one_step(
    spec: RunSpec, data: ImageData, optimizations: tuple[OptimizationSpec, ...], strict: bool
) -> tuple[float, dict[str, Tensor]]:
    recipe = make_recipe(spec, data, optimizations)
    if strict:
        recipe = replace(recipe, modes=replace(_STRICT, benchmark=recipe.modes.benchmark))
    parts: Parts = build(recipe, mark=lambda _: None)
    output = parts.forward(parts.net, next(iter(parts.loader.epoch(0))))
    scale = _LOSS_SCALE if recipe.loss_scaling else 1.0
    (scale * output.loss).backward()
    gradients = {k: v.detach().to("cpu", torch.float64) / scale for k, v in plain_gradients(parts.model).items()}
    return float(output.loss.detach()), gradients
