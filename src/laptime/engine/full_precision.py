"""A compiled step without its half precision, beside the baseline's in fp32.

A compiler's step can't be cut at its BatchNorms, and on a deep net over few samples what bfloat16 rounds is enlarged to
most of a gradient: DenseNet-121 under plain autocast is off by 0.7 at any batch of small images (docs/log.md). In fp32
the same step is off by less than 0.01 there, so it shows whether the compiler's kernels are right, BatchNorm's in
training and the loss among them. What half precision adds, the sharp comparison has seen layer by layer.
"""

from __future__ import annotations

from laptime.catalogue import find_optimization
from laptime.engine.distances import comparable_gradient, loss_error, relative_error
from laptime.engine.one_step import Side, Specs, Steps
from laptime.records import FullPrecisionCheck

# Of 32 honest steps of eight nets the loss is off by at most 2e-3 and the gradient by 0.14, of RegNet over four images;
# of others by 1e-4 and 0.04. A loss that is 10 % off shows 0.1, half a gradient 0.5.
_LOSS, _GRADIENT = 5e-3, 0.2


def compare_in_full_precision(steps: Steps, chosen: Specs) -> FullPrecisionCheck | None:
    """Compares a compiled variant's step in fp32 with the baseline's, at the cost of compiling it once more.

    Args:
        steps: of one process.
        chosen: the variant's optimizations.

    Returns:
        None where it is not compiled, has no other precision to leave out, or exchanges with other ranks; or where the
        gradient is nothing but rounding.
    """
    stages = {find_optimization(o.name).stage for o in chosen}
    if not {"compile", "precision"} <= stages or "parallel" in stages:
        return None
    expected = steps.take((), Side())
    if not comparable_gradient(expected.loss, expected.gradients):
        return None
    found = steps.take(tuple(o for o in chosen if find_optimization(o.name).stage != "precision"), Side())
    return FullPrecisionCheck(
        loss_error=loss_error(found.loss, expected.loss),
        loss_tolerance=_LOSS,
        gradient_error=relative_error(found.gradients, expected.gradients),
        gradient_tolerance=_GRADIENT,
    )
