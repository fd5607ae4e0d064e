"""One step of a variant beside one step of the baseline, on the user's machine, before its time is believed.

Compiled and bf16 kernels have been wrong before. Both start from the same weights and see the same batch; statistical
and model optimizations change the trajectory on purpose and are left out of the comparison: quality judges them.

How a side's step is taken, and what stands still in it: `laptime.engine.one_step`.

There are three comparisons. The wide one is a training step beside the fp32 baseline's: it sees everything, and most of
what it sees in bf16 is rounding that BatchNorm's statistics over few samples enlarge. The sharp one holds BatchNorm's
statistics still on both sides and compares layer by layer with the baseline *in the variant's own precision*, as plain
autocast gives it (`laptime.engine.layers`). Where the wide one finds more
than its tolerance, the step is cut at its BatchNorms (`laptime.engine.pieces`): that sees all that the wide one does,
nothing enlarged, and decides in its place. A compiler's step can't be cut, nor can that of several ranks: in half
precision the same step in fp32 decides there (`laptime.engine.full_precision`), of ranks together with the pieces of
the whole batch on one process.

A loss that is near zero because its terms cancel may be off by what rounding these does to the baseline's own
(`laptime.engine.loss_noise`); its gradients are compared as any.

What the step brings BatchNorm's running statistics, which no gradient shows, is compared norm by norm beside the wide
one, and in the pieces.

On a GPU the baseline's side runs in strict fp32, without the TF32 that torch allows convolutions by default; so does an
exact variant's, whose other kernels would else differ by TF32's rounding and not by a mistake. Numeric variants keep
the modes that were timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from laptime.catalogue import as_checked, class_of, classes_of, of_stage
from laptime.data.boxes.tensors import BoxData
from laptime.engine.distances import Farthest, farthest, incomparable, loss_error, relative_error, within
from laptime.engine.fits import out_of_memory
from laptime.engine.full_precision import compare_in_full_precision, in_full_precision
from laptime.engine.layers import compare_layers
from laptime.engine.loss_noise import loss_noise
from laptime.engine.norm_statistics import statistics_errors
from laptime.engine.one_step import Side, Specs, Step, Steps, without_ranks
from laptime.engine.pieces import compare_pieces
from laptime.optimizations.base import AnyData
from laptime.optimizations.sync_batchnorm import UnsyncedError
from laptime.records import CheckRecord, FullPrecisionCheck, PiecesCheck
from laptime.spec import RunSpec
from laptime.world import ALONE, World

Found = TypeVar("Found")


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

# EfficientNet-B5's 39 blocks of BatchNorm turn rounding into other gradients: torch's own autocast on the untouched net
# is off by up to 1.4 in the gradient and 0.22 in the loss, and one honest way of rounding differs from another as much
# as seeds do (docs/log.md). In fp32 RegNet over four images is off by 0.14 in the gradient, in another memory layout
# alone. So the step piece by piece decides there, and that in fp32 where a compiler leaves nothing to cut, or ranks
# exchange values. Where none of these can be had the wide tolerance grows to three times what rounding does to the
# baseline's gradient, the loss's in proportion, if the sharp comparison is passed ten times over; BatchNorm's own
# training kernels are not seen then, but for their running statistics, which may be three times as far off as plain
# autocast's.
_SHARP_MARGIN, _ROUNDINGS = 10.0, 3.0

# The largest error of what a step brings a norm's running statistics. Measured over nine nets, seeds and batches
# (docs/log.md): 0.016 in fp32, 4e-6 of ResNet-18; in bf16 0.01 to 0.05 of most, to 0.9 of deep ones over few samples,
# growing from norm to norm. A variance that is 20 % off shows 0.2, a momentum of 0.2 instead of 0.1, or a batch that is
# counted twice, 0.9 to 1, in the first norms as well as in the last.
STATISTICS = {"exact": 5e-2, "numeric": 0.1}


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
    if world.size > 1 and without_ranks(chosen) == chosen:
        if not world.first:
            return None
        # Weak scaling is another trajectory; what a rank computes is compared on rank 0's part.
        sized = spec.model_copy(update={"batch_size": -(-batch_size // world.size)})
        world = ALONE
    klass = "numeric" if "numeric" in classes_of(chosen) else "exact"
    steps = Steps(sized, data, world)
    try:
        found = steps.take(chosen, Side(world, strict=klass == "exact"))
    except UnsyncedError:
        # Nothing stands for local statistics, which are another trajectory: what a rank computes is compared.
        alone = spec.model_copy(update={"optimizations": without_ranks(spec.optimizations)})
        return check_one_step(alone, data, -(-batch_size // world.size)) if world.first else None
    wide = _wide(steps, klass, chosen, found) if world.first else None
    if world.size > 1 and world.agreed(wide is not None and not wide.right):
        in_full_precision(steps, chosen)  # all ranks' part in what rank 0 then compares
    return _compared(steps, klass, chosen, wide) if wide is not None else None


@dataclass(frozen=True)
class _Wide:
    """The wide comparison: both steps, how far one is off the other, and whether that is within what a class may show.

    Attributes:
        allowed: what the error may be.
        norms: how far each norm's running statistics are off.
        statistics: the farthest of them.
    """

    found: Step
    expected: Step
    error: Tolerance
    allowed: Tolerance
    norms: dict[str, float]
    statistics: Farthest | None
    right: bool


def _wide(steps: Steps, klass: str, chosen: Specs, found: Step) -> _Wide:
    expected = steps.take((), Side())
    error, norms = step_error(found, expected), statistics_errors(found.statistics, expected.statistics)
    statistics = farthest(norms, dict.fromkeys(norms, STATISTICS[klass]))
    allowed = _with_noise(steps, klass, chosen, error)
    right = _both_within(error, allowed) and _right(statistics)
    return _Wide(found, expected, error, allowed, norms, statistics, right)


def _with_noise(steps: Steps, klass: str, chosen: Specs, error: Tolerance) -> Tolerance:
    """What a class may show, of a loss that is off as much as rounding its terms may move it, where that is more."""
    usual = TOLERANCES[klass]
    if klass != "numeric" or within(error.loss, usual.loss) or not within(error.gradient, usual.gradient):
        return usual
    noise = _if_it_fits(lambda: loss_noise(steps, without_ranks(chosen))) or 0.0
    return Tolerance(max(usual.loss, noise), usual.gradient) if within(noise, _FINITE.loss) else usual


def _compared(steps: Steps, klass: str, chosen: Specs, wide: _Wide) -> CheckRecord:
    """All comparisons of a variant's step with the baseline's.  # rank 0"""
    error, statistics, allowed, right = wide.error, wide.statistics, wide.allowed, wide.right
    alone = without_ranks(chosen)
    sharp = compare_layers(steps, alone)
    cut = None if right or alone != chosen else _if_it_fits(lambda: compare_pieces(steps, chosen, klass))
    if klass == "numeric" and not (right or cut or _right(statistics)):
        statistics = farthest(wide.norms, _autocast_statistics(steps, chosen, wide.expected))
        right = _both_within(error, allowed) and _right(statistics)
    pieces, full = (cut, None) if right or cut else _apart(steps, klass, chosen, sharp)
    if cut is not None:
        right = cut.passed and _both_within(error, _FINITE)
    elif full is not None:
        decided = full.passed and (pieces is None or pieces.passed)
        right = decided and _both_within(error, _FINITE) and _right(statistics)
    elif not right:
        allowed = _tolerance(klass, error, sharp, lambda: _moved_by_rounding(steps, wide.expected))
        right = _both_within(error, allowed) and _right(statistics)
    return CheckRecord(
        klass=klass,
        loss_baseline=wide.expected.loss,
        loss_variant=wide.found.loss,
        loss_error=error.loss,
        loss_tolerance=allowed.loss,
        gradient_error=error.gradient,
        gradient_tolerance=allowed.gradient,
        incomparable=incomparable(wide.found.gradients, wide.expected.gradients),
        layer=sharp.name if sharp else None,
        layer_error=sharp.error if sharp else None,
        layer_tolerance=sharp.tolerance if sharp else None,
        statistics=statistics.name if statistics else None,
        statistics_error=statistics.error if statistics else None,
        statistics_tolerance=statistics.tolerance if statistics else None,
        pieces=pieces,
        full_precision=full,
        lost=steps.kept.lost(),
        passed=right and _right(sharp),
    )


def _apart(
    steps: Steps, klass: str, chosen: Specs, sharp: Farthest | None
) -> tuple[PiecesCheck | None, FullPrecisionCheck | None]:
    """What decides of a step in half precision that can't be cut: all of it in fp32, and half precision by itself.

    Of several ranks the latter is what one process computes of the whole batch, in pieces; what they exchange, and
    their BatchNorm, is seen in fp32.

    Returns:
        Pieces, where there are some, and the step in fp32; nothing where it has no half precision, or nothing else has
        seen that: of a detector layers are compared in fp32.
    """
    alone = without_ranks(chosen)
    ranked = alone != chosen and bool(of_stage(chosen, "precision"))
    pieces = _if_it_fits(lambda: compare_pieces(steps, alone, klass)) if ranked else None
    if pieces is None and (sharp is None or isinstance(steps.data, BoxData)):
        return None, None
    full = _if_it_fits(lambda: compare_in_full_precision(steps, chosen))
    return (pieces, full) if full is not None else (None, None)


def _right(found: Farthest | None) -> bool:
    """Whether what was compared is right, if anything was."""
    return found is None or found.right


def _autocast_statistics(steps: Steps, chosen: Specs, expected: Step) -> dict[str, float]:
    """What each norm's running statistics may be off by where plain autocast itself is far off; costs a step."""
    plain = of_stage(chosen, "precision")
    moved = statistics_errors(steps.take(plain, Side(strict=False)).statistics, expected.statistics)
    return {name: max(STATISTICS["numeric"], _ROUNDINGS * error) for name, error in moved.items()}


def _if_it_fits(compare: Callable[[], Found | None]) -> Found | None:
    """What a further comparison finds; None where it has no room, since it keeps more than a step that fits."""
    try:
        return compare()
    except Exception as error:
        if out_of_memory(error):
            return None
        raise


def _tolerance(klass: str, error: Tolerance, sharp: Farthest | None, moved: Callable[[], float]) -> Tolerance:
    """What loss and whole gradient may be off by; `moved` costs a step and is asked only where it decides."""
    usual = TOLERANCES[klass]
    certain = sharp is not None and within(_SHARP_MARGIN * sharp.error, sharp.tolerance)
    if klass != "numeric" or _both_within(error, usual) or not certain:
        return usual
    wider = max(1.0, _ROUNDINGS * moved() / usual.gradient)
    return Tolerance(wider * usual.loss, wider * usual.gradient)


def step_error(found: Step, expected: Step) -> Tolerance:
    """How far loss and whole gradient of a step are off."""
    return Tolerance(loss_error(found.loss, expected.loss), relative_error(found.gradients, expected.gradients))


def step_within(found: Step, expected: Step) -> bool:
    """Whether a step is the expected one, but for what exact changes round."""
    return _both_within(step_error(found, expected), TOLERANCES["exact"])


def _both_within(error: Tolerance, allowed: Tolerance) -> bool:
    return within(error.loss, allowed.loss) and within(error.gradient, allowed.gradient)


def _moved_by_rounding(steps: Steps, before: Step) -> float:
    """How far the baseline's own gradient in fp32 moves when nothing but its weights is rounded to bfloat16."""
    return relative_error(steps.take((), Side(rounded=True)).gradients, before.gradients)
