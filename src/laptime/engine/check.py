"""One step of a variant beside one step of the baseline, on the user's machine, before its time is believed.

Compiled and bf16 kernels have been wrong before. Both start from the same weights and see the same batch; statistical
and model optimizations change the trajectory on purpose and are left out of the comparison: quality judges them.

How a side's step is taken, and what stands still in it: `laptime.engine.one_step`.

There are three comparisons. The wide one is a training step beside the fp32 baseline's: it sees everything, and most of
what it sees in bf16 is rounding that BatchNorm's statistics over few samples enlarge. The sharp one holds BatchNorm's
statistics still on both sides and compares layer by layer with the baseline *in the variant's own precision*, as plain
autocast gives it; then next to nothing is left of rounding, and one wrong kernel shows. Where the wide one finds more
than its tolerance, the step is cut at its BatchNorms (`laptime.engine.pieces`): that sees all that the wide one does,
nothing enlarged, and decides in its place.

On a GPU the baseline's side runs in strict fp32, without the TF32 that torch allows convolutions by default; so does an
exact variant's, whose other kernels would else differ by TF32's rounding and not by a mistake. Numeric variants keep
the modes that were timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from laptime.catalogue import as_checked, class_of, classes_of, find_optimization
from laptime.data.box_tensors import BoxData
from laptime.engine.distances import (
    comparable_gradient,
    layer_errors,
    loss_error,
    relative_error,
    within,
    worst_layer,
    worst_of,
)
from laptime.engine.fits import out_of_memory
from laptime.engine.one_step import Side, Specs, Step, Steps
from laptime.engine.pieces import compare_pieces
from laptime.optimizations.base import AnyData
from laptime.optimizations.sync_batchnorm import UnsyncedError
from laptime.records import CheckRecord, PiecesCheck
from laptime.spec import RunSpec
from laptime.world import ALONE, World


@dataclass(frozen=True)
class Tolerance:
    """Relative errors of loss and whole gradient (L2) in one step: the largest that a class may show, or those seen."""

    loss: float
    gradient: float


# Above what was measured over seeds and batches (docs/log.md): exact ones reach 1e-6 in the loss and 1e-2
# in the gradient, where rounding moves a value across the kink of ReLU or max-pooling; bf16 8e-3 and 0.38, most of it
# from BatchNorm over few samples at random initialization. A wrong kernel shows errors of about 1, a gradient at half
# its length one of 0.5: the numeric tolerance stays below that.
TOLERANCES = {"exact": Tolerance(1e-4, 5e-2), "numeric": Tolerance(3e-2, 0.48)}
# Where another comparison decides in the wide one's place, that must still have numbers.
_FINITE = Tolerance(sys.float_info.max, sys.float_info.max)

# Largest relative error of one layer's gradient in the sharp comparison. Measured over seeds, batches and weights
# (docs/log.md): 0.012 in fp32, 0.011 in bf16 against plain bf16, mostly single values across a kink; a gradient that is
# 30 % off in one layer shows 0.3. Numeric changes beside the precision (a compiler's fusions) round elsewhere than
# plain autocast does, at worst as far from it as it is from fp32: 0.20. So does another memory layout where images are
# larger and few: of 8 with 96x96 pixels a BatchNorm's weight in bf16 is 0.21 off fp32 by itself, and 0.15 off that in
# channels last.
SHARP_EXACT, SHARP_PRECISION, SHARP_NUMERIC = 5e-2, 0.1, 0.25
# EfficientNet-B5's 39 blocks of BatchNorm turn rounding into other gradients: torch's own autocast on the untouched net
# is off by up to 1.4 in the gradient and 0.22 in the loss, and one honest way of rounding differs from another as much
# as seeds do (docs/log.md). So the step piece by piece decides there. Where a step can't be cut (a compiler's, that of
# ranks), the wide tolerance grows to three times what rounding does to the baseline's gradient, the loss's in
# proportion, if the sharp comparison is passed ten times over; BatchNorm's own training kernels are not seen then.
_SHARP_MARGIN, _ROUNDINGS = 10.0, 3.0


@dataclass(frozen=True)
class Sharp:
    """The sharp comparison: the worst layer, its error and the largest that is allowed."""

    layer: str
    error: float
    tolerance: float


def comparable(optimizations: Specs) -> Specs:
    """The exact and numeric ones of a list, with options that can be compared."""
    return tuple(o for o in map(as_checked, optimizations) if class_of(o) in TOLERANCES)


def check_one_step(spec: RunSpec, data: AnyData, batch_size: int, world: World = ALONE) -> CheckRecord | None:
    """Compares loss and gradients of one step with the baseline's; that of several ranks with one process's.

    Args:
        spec: the run, with what was chosen by timing written out; its baseline is the same without optimizations.
        data: where the batch comes from: the first one that each side's own loader gives.
        batch_size: the variant's own, for both sides: kernels are chosen by it.
        world: all ranks take part; rank 0 compares.

    Returns:
        None where the variant has nothing to compare (the baseline itself, or statistical optimizations alone), and on
        all ranks but the first.
    """
    chosen = comparable(spec.optimizations)
    if not chosen:
        return None
    sized = spec.model_copy(update={"batch_size": batch_size})
    if world.size > 1 and not any(find_optimization(o.name).stage == "parallel" for o in chosen):
        if not world.first:
            return None
        # Weak scaling is another trajectory; what a rank computes is compared on rank 0's part.
        sized = spec.model_copy(update={"batch_size": -(-batch_size // world.size)})
        world = ALONE
    klass = "numeric" if "numeric" in classes_of(chosen) else "exact"
    steps = Steps(sized, data, world)
    try:
        loss_after, after = steps.take(chosen, Side(world, strict=klass == "exact"))
    except UnsyncedError:
        # Nothing stands for local statistics, which are another trajectory: what a rank computes is compared.
        rest = tuple(o for o in spec.optimizations if find_optimization(o.name).stage != "parallel")
        alone = spec.model_copy(update={"optimizations": rest})
        return check_one_step(alone, data, -(-batch_size // world.size)) if world.first else None
    if not world.first:
        return None
    loss_before, before = steps.take((), Side())
    error = Tolerance(loss_error(loss_after, loss_before), relative_error(after, before))
    sharp = compare_layers(steps, tuple(o for o in chosen if find_optimization(o.name).stage != "parallel"))
    pieces = None if _both_within(error, TOLERANCES[klass]) else _cut(steps, klass, chosen)
    if pieces is not None:
        allowed, right = TOLERANCES[klass], pieces.passed and _both_within(error, _FINITE)
    else:
        allowed = _tolerance(klass, error, sharp, lambda: _moved_by_rounding(steps, before))
        right = _both_within(error, allowed)
    return CheckRecord(
        klass=klass,
        loss_baseline=loss_before,
        loss_variant=loss_after,
        loss_error=error.loss,
        loss_tolerance=allowed.loss,
        gradient_error=error.gradient,
        gradient_tolerance=allowed.gradient,
        layer=sharp.layer if sharp else None,
        layer_error=sharp.error if sharp else None,
        layer_tolerance=sharp.tolerance if sharp else None,
        pieces=pieces,
        passed=right and (sharp is None or within(sharp.error, sharp.tolerance)),
    )


def _cut(steps: Steps, klass: str, chosen: Specs) -> PiecesCheck | None:
    """The step piece by piece, of a numeric variant in one process; exact ones enlarge no rounding worth the name."""
    exchanged = any(find_optimization(o.name).stage == "parallel" for o in chosen)
    if klass != "numeric" or exchanged:
        return None
    try:
        return compare_pieces(steps, chosen)
    except Exception as error:
        if out_of_memory(error):  # all values at the cuts are kept, which a step that fits may leave no room for
            return None
        raise


def _tolerance(klass: str, error: Tolerance, sharp: Sharp | None, moved: Callable[[], float]) -> Tolerance:
    """What loss and whole gradient may be off by; `moved` costs a step and is asked only where it decides."""
    usual = TOLERANCES[klass]
    certain = sharp is not None and within(_SHARP_MARGIN * sharp.error, sharp.tolerance)
    if klass != "numeric" or _both_within(error, usual) or not certain:
        return usual
    wider = max(1.0, _ROUNDINGS * moved() / usual.gradient)
    return Tolerance(wider * usual.loss, wider * usual.gradient)


def step_within(found: Step, expected: Step) -> bool:
    """Whether a step is the expected one, but for what exact changes round."""
    error = Tolerance(loss_error(found[0], expected[0]), relative_error(found[1], expected[1]))
    return _both_within(error, TOLERANCES["exact"])


def _both_within(error: Tolerance, allowed: Tolerance) -> bool:
    return within(error.loss, allowed.loss) and within(error.gradient, allowed.gradient)


def _moved_by_rounding(steps: Steps, before: dict[str, Tensor]) -> float:
    """How far the baseline's own gradient in fp32 moves when nothing but its weights is rounded to bfloat16."""
    _, rounded = steps.take((), Side(rounded=True))
    return relative_error(rounded, before)


def compare_layers(steps: Steps, chosen: Specs) -> Sharp | None:
    """Compares each layer's gradient with the baseline's in the same precision, BatchNorm's statistics held still.

    One process on its own: what ranks exchange is compared above.

    Layers of a detector are compared in fp32 whatever the precision. Fifty layers with fixed statistics carry
    any other rounding on: in bf16 another memory layout alone moves a layer's gradient by 0.24 (docs/log.md). A wrong
    kernel of half precision is then seen by the wide comparison alone.

    Returns:
        None where there is nothing beside the precision, or where plain autocast gives no finite gradient, or one that
        is nothing but rounding: what the samples of a batch with as many of each class say of a net that gives the same
        for all of them cancels out.
    """
    precision = tuple(o for o in chosen if find_optimization(o.name).stage == "precision")
    rest = tuple(o for o in chosen if o not in precision)
    if not rest:
        return None
    if isinstance(steps.data, BoxData):
        chosen, precision = rest, ()
    strict = "numeric" not in classes_of(chosen)
    loss, expected = steps.take(precision, Side(strict=strict, frozen=True))
    if not comparable_gradient(loss, expected):
        return None
    _, found = steps.take(chosen, Side(strict=strict, frozen=True))
    layer, error = worst_layer(found, expected)
    if "numeric" in classes_of(rest):
        return Sharp(layer, error, SHARP_NUMERIC)
    if precision and not within(error, SHARP_PRECISION):
        return _beside_rounding(
            layer_errors(found, expected), layer_errors(expected, steps.take((), Side(frozen=True))[1])
        )
    return Sharp(layer, error, SHARP_PRECISION if precision else SHARP_EXACT)


def _beside_rounding(errors: dict[str, float], rounded: dict[str, float]) -> Sharp:
    """The worst layer, where one that plain autocast itself rounds far from fp32 may be as far from that.

    Another memory layout rounds elsewhere there, as a compiler does.

    Args:
        errors: relative errors by layer against plain autocast.
        rounded: those of plain autocast against fp32.
    """
    allowed = {k: SHARP_NUMERIC if rounded.get(k, 0.0) > SHARP_PRECISION else SHARP_PRECISION for k in errors}
    layer = worst_of({k: error / allowed[k] for k, error in errors.items()})
    return Sharp(layer, errors[layer], allowed[layer])
