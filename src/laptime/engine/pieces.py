"""A training step cut at its BatchNorms, each piece of it begun from the baseline's own values.

In a whole step BatchNorm's statistics over few samples enlarge what rounding leaves, from layer to layer: on
EfficientNet-B5 an honest bf16 step's gradient is off by its own length. So the baseline's step in fp32 is taken once
more, and what goes into each BatchNorm and comes out of it is kept, forward and backward. In the variant's step each of
these values is compared where it arrives, and the baseline's goes on in its place: each BatchNorm, and what lies
between one and the next, is judged by itself. All runs in training mode, by the variant's own kernels, the loss too;
nothing is held still but what is random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from laptime.catalogue import of_stage
from laptime.engine.distances import comparable_gradient, layer_errors, loss_error, relative_error, within, worst_of
from laptime.engine.norm_statistics import statistics_errors
from laptime.engine.one_step import Side, Specs, Steps
from laptime.records import PiecesCheck


@dataclass(frozen=True)
class Allowed:
    """What a step's errors may be, each relative to the baseline's value.

    Attributes:
        loss: of the loss.
        gradient: of the whole gradient.
        exactly: of what goes into and comes out of a BatchNorm, of what that gives backward and of its running
            statistics.
        between: of a gradient on its way from one BatchNorm to the one before.
        kinks: and of that where the baseline's own moves by a third of it, once the values at the cuts are rounded.
        layer: of one layer's gradient.
    """

    loss: float
    gradient: float
    exactly: float
    between: float
    kinks: float
    layer: float


# Measured over eight nets, seeds and batches against fp32 (docs/log.md).
# numeric: a bf16 step is off by at most 4e-3 in the loss and in the whole gradient, 5e-3 in what goes into and comes
# out of a BatchNorm and in what it gives backward. That is the rounding of numbers of 8 bits here and there, on any
# machine, so four times it is allowed; a variance that is 20 % off in one layer shows 4e-2 and more. A gradient between
# two BatchNorms: 0.04 of honest steps, 0.09 of smoothed labels. Values near kinks move more of it (0.08 behind
# max-pooling), but so they do in the baseline. One layer's gradient as the sharp comparison has it, and the most that
# is allowed of any: one that is 30 % off shows 0.3.
# exact: 5e-6 everywhere, 1e-4 of running statistics; one value that crosses a kink is some hundredths of a small layer.
ALLOWED = {
    "exact": Allowed(loss=1e-4, gradient=1e-2, exactly=1e-3, between=5e-2, kinks=5e-2, layer=5e-2),
    "numeric": Allowed(loss=1e-2, gradient=2e-2, exactly=2e-2, between=5e-2, kinks=0.25, layer=0.25),
}
_ROUNDINGS = 3.0
# A layer's gradient counts as one hundredth of the whole at least: between squeeze and excitation a single value across
# a kink is a good part of a layer's, 0.26 of RegNet's whose gradient is 0.007 of the whole; so measured it is 0.18.
_LEAST_SHARE = 1e-2

Place = str
_REACHES = "the gradient that reaches"


class Cuts:
    """The values at the cuts of one step: kept of the baseline's, compared and replaced in a variant's.

    Args:
        given: those of the baseline's step; None for that step itself.
        rounded: whether these values go on rounded to bfloat16.

    Attributes:
        kept: the values by place, in the baseline's layout and precision.
        errors: relative errors (L2) by place; of a place that the other side doesn't have, or in another shape, none,
            and `alike` says so.
    """

    def __init__(self, given: Cuts | None = None, rounded: bool = False) -> None:
        self.given, self.rounded = given, rounded
        self.kept: dict[Place, Tensor] = {}
        self.errors: dict[Place, float] = {}
        self.alike, self._scale, self._calls = True, 1.0, dict[str, int]()

    def attach(self, model: nn.Module, scale: float) -> None:
        """Cuts a net for its next step, whose loss is multiplied by `scale` before it goes backward."""
        self._scale = scale
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm):
                module.forward = partial(self._through, name, module, module.forward)  # type: ignore[method-assign]

    def compare(self, place: Place, value: Tensor, scale: float = 1.0) -> Tensor:
        """What goes on in a value's place, in its own layout and precision: the baseline's, where there is one."""
        if self.given is None:
            self.kept[place] = value.detach().clone()
            return value
        expected = self.given.kept.get(place)
        if expected is None or expected.shape != value.shape:
            self.alike = False
            return value
        difference = (value.detach().to(expected.dtype) / scale - expected).norm()
        self.errors[place] = float(difference) / max(float(expected.norm()), 1e-300)
        return torch.empty_like(value).copy_(scale * (expected.bfloat16() if self.rounded else expected))

    def backward(self, place: Place, gradient: Tensor) -> Tensor:
        """The same of a gradient."""
        return self.compare(f"the gradient {place}", gradient, self._scale)

    def _through(
        self,
        name: str,
        module: nn.Module,
        forward: Callable[[Tensor], Tensor],
        input: Tensor,  # noqa: A002 - torch's name, by which it may be given
    ) -> Tensor:
        """A BatchNorm's forward pass between two cuts."""
        call = self._calls[name] = self._calls.get(name, 0) + 1
        told = name if call == 1 else f"{name} (call {call})"
        # Forward it gives what backward reaches it, and the other way round.
        found = forward(_cut(input, self, f"that reaches {told}", f"that {told} gives"))
        return _cut(found, self, f"that {told} gives", f"that reaches {told}")


class _Cut(torch.autograd.Function):
    """One value at a cut, forward and backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, cuts: Cuts, forth: Place, back: Place) -> Tensor:
        """Any shape to the same; a copy, since activations may write into what a BatchNorm gives."""
        ctx.cuts, ctx.back = cuts, back
        found = cuts.compare(f"the value {forth}", value)
        return found.clone() if found is value else found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """See the class."""
        return ctx.cuts.backward(ctx.back, gradients[0]), None, None, None


def _cut(value: Tensor, cuts: Cuts, forth: Place, back: Place) -> Tensor:
    found: Tensor = _Cut.apply(value, cuts, forth, back)
    return found


def compare_pieces(steps: Steps, chosen: Specs, klass: str) -> PiecesCheck | None:
    """Compares a variant's step with the baseline's in fp32, piece by piece, at the cost of two or three steps.

    Args:
        steps: of one process; what ranks exchange is no part of a piece.
        chosen: the variant's optimizations.
        klass: exact or numeric, which says what is allowed.

    Returns:
        None where the step can't be cut: a compiler would compile the cuts too, ranks exchange values, there is no
        BatchNorm or it is called otherwise than in the baseline, or the gradient is nothing but rounding.
    """
    if of_stage(chosen, "compile", "parallel"):
        return None
    given, allowed = Cuts(), ALLOWED[klass]
    expected = steps.cut((), Side(), given)
    if not given.kept or not comparable_gradient(expected.loss, expected.gradients):
        return None
    cuts = Cuts(given)
    found = steps.cut(chosen, Side(strict=klass == "exact"), cuts)
    if not cuts.alike or cuts.errors.keys() != given.kept.keys():
        return None
    norms = statistics_errors(found.statistics, expected.statistics)
    exact = cuts.errors | {f"the running statistics of {name}": error for name, error in norms.items()}
    errors = exact | layer_errors(found.gradients, expected.gradients, _LEAST_SHARE)
    limits = dict.fromkeys(exact, allowed.exactly) | dict.fromkeys(found.gradients, allowed.layer)
    limits |= _between(steps, given, cuts, allowed)
    worst = worst_of({place: error / limits[place] for place, error in errors.items()})
    return PiecesCheck(
        loss_error=loss_error(found.loss, expected.loss),
        loss_tolerance=allowed.loss,
        gradient_error=relative_error(found.gradients, expected.gradients),
        gradient_tolerance=allowed.gradient,
        place=worst,
        error=errors[worst],
        tolerance=limits[worst],
    )


def _between(steps: Steps, given: Cuts, found: Cuts, allowed: Allowed) -> dict[Place, float]:
    """What gradients that reach a BatchNorm may be off by; costs a step where kinks may have to say."""
    usual = {place: allowed.between for place in found.errors if place.startswith(_REACHES)}
    if allowed.kinks <= allowed.between or all(within(found.errors[place], allowed.between) for place in usual):
        return usual
    rounded = Cuts(given, rounded=True)
    steps.cut((), Side(), rounded)
    return {place: min(max(allowed.between, _ROUNDINGS * rounded.errors[place]), allowed.kinks) for place in usual}
