"""A step in half precision that can't be cut at its BatchNorms, without that precision, beside the baseline's in fp32.

A compiler's step can't be cut, nor can that of ranks, whose BatchNorms exchange values; and on a deep net over few
samples what bfloat16 rounds is enlarged to most of a gradient: DenseNet-121 under plain autocast is off by 0.7 at any
batch of small images (docs/log.md). In fp32 the same step is off by less than 0.01 there, so it shows whether the
compiler's kernels are right, what ranks exchange, BatchNorm's in training and the loss among them. What half precision
adds, the sharp comparison has seen layer by layer, or the pieces of the whole batch on one process.
"""

from __future__ import annotations

from laptime.catalogue import of_stage
from laptime.engine.distances import comparable_gradient, loss_error, relative_error
from laptime.engine.one_step import Side, Specs, Step, Steps
from laptime.records import FullPrecisionCheck

# Of 32 honest steps of eight nets the loss is off by at most 2e-3 and the gradient by 0.14, of RegNet over four images;
# of others by 1e-4 and 0.04. A loss that is 10 % off shows 0.1, half a gradient 0.5.
_LOSS, _GRADIENT = 5e-3, 0.2


def in_full_precision(steps: Steps, chosen: Specs) -> Step | None:
    """A variant's step without its half precision; None where it has none.  # all ranks of the steps' world"""
    halved = of_stage(chosen, "precision")
    if not halved:
        return None
    return steps.take(tuple(o for o in chosen if o not in halved), Side(steps.world))


def compare_in_full_precision(steps: Steps, chosen: Specs) -> FullPrecisionCheck | None:
    """Compares a variant's step in fp32 with the baseline's, at the cost of compiling it once more.

    Args:
        steps: those of several ranks have taken theirs before (`in_full_precision`), since rank 0 alone compares.
        chosen: the variant's optimizations.

    Returns:
        None where it is neither compiled nor that of ranks, has no other precision to leave out, or where the gradient
        is nothing but rounding.
    """
    expected = steps.take((), Side())
    if not of_stage(chosen, "compile", "parallel"):
        return None
    if not comparable_gradient(expected.loss, expected.gradients):
        return None
    found = in_full_precision(steps, chosen)
    if found is None:
        return None
    return FullPrecisionCheck(
        loss_error=loss_error(found.loss, expected.loss),
        loss_tolerance=_LOSS,
        gradient_error=relative_error(found.gradients, expected.gradients),
        gradient_tolerance=_GRADIENT,
    )
