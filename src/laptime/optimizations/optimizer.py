"""What updates the parameters: the rule, its groups, and how its kernels run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.dead_taps import crops

Groups = list[dict[str, Any]]
MakeGroups = Callable[[nn.Module], Groups]


def fused_optimizer(recipe: Recipe, options: Options) -> Recipe:
    """Updates all parameters in one kernel."""
    return replace(recipe, optimizer_options={**recipe.optimizer_options, "fused": True})


def sgd_nesterov(recipe: Recipe, options: Options) -> Recipe:
    """SGD with Nesterov momentum instead of Adam, with a learning rate of its own.

    It stands before the batch in the catalogue, so that a larger batch scales this rate.
    """
    rate, momentum = float(options["lr"]), float(options["momentum"])
    chosen = {**recipe.optimizer_options, "momentum": momentum, "nesterov": True}
    return replace(recipe, make_optimizer=sgd, learning_rate=rate, optimizer_options=chosen)


def decay(recipe: Recipe, options: Options) -> Recipe:
    """Weight decay: decoupled for Adam, which becomes AdamW; in the gradient for SGD, as is usual there.

    Sources: Loshchilov and Hutter 2017 (arXiv:1711.05101); none on norms and biases, He et al. 2018
    (arXiv:1812.01187).
    """
    amount = float(options["amount"])
    rule = sgd if recipe.make_optimizer is sgd else adamw
    return replace(
        recipe,
        make_optimizer=rule if options["norms"] else partial(rule, make_groups=matrices_and_vectors),
        optimizer_options={**recipe.optimizer_options, "weight_decay": amount},
    )


def one_group(model: nn.Module) -> Groups:
    """All parameters alike."""
    return [{"params": list(model.parameters())}]


def adamw(
    model: nn.Module, learning_rate: float | Tensor, make_groups: MakeGroups = one_group, **options: Any
) -> Optimizer:
    """Adam with decoupled weight decay."""
    return torch.optim.AdamW(make_groups(model), lr=learning_rate, **options)


def sgd(
    model: nn.Module, learning_rate: float | Tensor, make_groups: MakeGroups = one_group, **options: Any
) -> Optimizer:
    """SGD; it counts no steps, so it can be captured as it is and has no option for it."""
    options.pop("capturable", None)
    return torch.optim.SGD(make_groups(model), lr=learning_rate, **options)


def matrices_and_vectors(model: nn.Module) -> Groups:
    """Two groups: kernels and matrices, then norms and biases, which are not decayed."""
    parameters = list(model.parameters())
    vectors = [p for p in parameters if p.dim() < 2]
    return [{"params": [p for p in parameters if p.dim() >= 2]}, {"params": vectors, "weight_decay": 0.0}]


def build_optimizer(recipe: Recipe, model: nn.Module) -> Optimizer:
    """The recipe's optimizer over a model's parameters, and over the factors of dead taps where decay moves them."""
    rate = torch.tensor(recipe.learning_rate, device=recipe.device) if recipe.rate_on_device else recipe.learning_rate
    optimizer = recipe.make_optimizer(model, rate, **recipe.optimizer_options)
    _follow_decay(optimizer, model)
    spare_copies(optimizer)
    return optimizer


# Looking at a smaller tensor takes as long as copying it.
_LEAST_COPIED = 1 << 14


def spare_copies(optimizer: Optimizer) -> None:
    """Spares Adam's fused update on a CPU a copy of each channels_last gradient; all else stays, to the last bit.

    torch's kernel walks weights, gradients and moments by address, but first copies a gradient that is not contiguous,
    and leaves the copy unread (FusedAdamKernel.cpp, torch 2.4 to 2.15). With channels last by name, too, all are
    contiguous.
    """
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        return  # SGD finds its state by what it is given here
    gather = optimizer._init_group  # type: ignore[attr-defined]

    def turned(group: dict[str, Any], *lists: list[Tensor]) -> bool:
        some_complex: bool = gather(group, *lists)
        for place, weight in enumerate(list(lists[0]) if group["fused"] else ()):
            if weight.numel() < _LEAST_COPIED or weight.is_contiguous() or weight.device.type != "cpu":
                continue
            alike = [found for found in lists if found and found[place].shape == weight.shape]
            if weight.dim() > 2 and all(found[place].movedim(1, -1).is_contiguous() for found in alike):
                for found in alike:
                    found[place] = found[place].movedim(1, -1)
        return some_complex

    optimizer._init_group = turned  # type: ignore[attr-defined]


def _follow_decay(optimizer: Optimizer, model: nn.Module) -> None:
    """Lets an optimizer decay the factors of dead taps, each in the group of its weight.

    Only what was made says how each group decays: a user's own optimizer parts the parameters as it likes, and AdamW
    decays without being told to.
    """
    factors = {id(weight): (weight, crop.factor) for weight, crop in crops(model).values()}
    moved: list[tuple[Tensor, Tensor]] = []
    for group in optimizer.param_groups:
        if group.get("weight_decay"):
            joining = [factors[id(p)] for p in group["params"] if id(p) in factors]
            group["params"] = [*group["params"], *(factor for _, factor in joining)]
            moved += joining
    if moved:
        optimizer.register_step_pre_hook(_without_gradient(moved))


def _without_gradient(moved: list[tuple[Tensor, Tensor]]) -> Callable[..., None]:
    """A hook for weights and their factors: a factor gets a gradient of zero, or none where its weight has none.

    An optimizer skips what has no gradient, and leaves it undecayed: the weight of a frozen kernel, and so its factor.
    """
    zeros = [torch.zeros_like(factor) for _, factor in moved]

    def hook(*_: object) -> None:
        for (weight, factor), zero in zip(moved, zeros, strict=True):
            factor.grad = None if weight.grad is None else zero

    return hook
