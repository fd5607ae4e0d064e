"""The sharp comparison of a step: layer by layer, in the variant's own precision, BatchNorm's statistics held still.

Then next to nothing is left of rounding, and one wrong kernel shows.
"""

from __future__ import annotations

from laptime.catalogue import classes_of, of_stage
from laptime.data.boxes.tensors import BoxData
from laptime.engine.distances import Farthest, comparable_gradient, farthest, layer_errors, within, worst_layer
from laptime.engine.one_step import Side, Specs, Steps

# Largest relative error of one layer's gradient in the sharp comparison. Measured over seeds, batches and weights
# (docs/log.md): 0.012 in fp32, 0.011 in bf16 against plain bf16, mostly single values across a kink; a gradient that is
# 30 % off in one layer shows 0.3. Numeric changes beside the precision (a compiler's fusions) round elsewhere than
# plain autocast does, at worst as far from it as it is from fp32: 0.20. So does another memory layout where images are
# larger and few: of 8 with 96x96 pixels a BatchNorm's weight in bf16 is 0.21 off fp32 by itself, and 0.15 off that in
# channels last.
SHARP_EXACT, SHARP_PRECISION, SHARP_NUMERIC = 5e-2, 0.1, 0.25


def compare_layers(steps: Steps, chosen: Specs) -> Farthest | None:
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
    precision = of_stage(chosen, "precision")
    rest = tuple(o for o in chosen if o not in precision)
    if not rest:
        return None
    if isinstance(steps.data, BoxData):
        chosen, precision = rest, ()
    strict = "numeric" not in classes_of(chosen)
    plain = steps.take(precision, Side(strict=strict, frozen=True))
    expected = plain.gradients
    if not comparable_gradient(plain.loss, expected):
        return None
    found = steps.take(chosen, Side(strict=strict, frozen=True)).gradients
    layer, error = worst_layer(found, expected)
    if "numeric" in classes_of(rest):
        return Farthest(layer, error, SHARP_NUMERIC)
    if precision and not within(error, SHARP_PRECISION):
        return beside_rounding(
            layer_errors(found, expected), layer_errors(expected, steps.take((), Side(frozen=True)).gradients)
        )
    return Farthest(layer, error, SHARP_PRECISION if precision else SHARP_EXACT)


def beside_rounding(errors: dict[str, float], rounded: dict[str, float]) -> Farthest | None:
    """The worst layer, where one that plain autocast itself rounds far from fp32 may be as far from that.

    Another memory layout rounds elsewhere there, as a compiler does.

    Args:
        errors: relative errors by layer against plain autocast.
        rounded: those of plain autocast against fp32.
    """
    allowed = {k: SHARP_NUMERIC if rounded.get(k, 0.0) > SHARP_PRECISION else SHARP_PRECISION for k in errors}
    return farthest(errors, allowed)
