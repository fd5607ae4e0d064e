"""State before and after warm-up: the counted run starts from the initial weights, in the same tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, Adadelta, Adam, Adamax, AdamW, Optimizer, RAdam, RMSprop

from laptime.errors import RunError
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.optimizer import build_optimizer
from laptime.values.copies import resize
from laptime.values.draws import seed_all
from laptime.values.tallies import put_back_numbers

_FROM_ZEROS = (SGD, Adadelta, Adam, AdamW, Adamax, RAdam, RMSprop)


def snapshot(p: Parts) -> dict[str, Tensor]:
    """Copies parameters and buffers."""
    return {name: value.detach().clone() for name, value in tensors(p).items()}


def reset(p: Parts, recipe: Recipe, saved: dict[str, Tensor]) -> None:
    """Puts weights, BatchNorm statistics, optimizer, loss scale, schedule and random state back to the start.

    So it does with the numbers that a user's own net or workload counts in attributes, and with what is frozen.

    In place, since captured graphs and views hold the tensors. An optimizer whose zeroed state may not be
    a fresh one is made anew, as is one that a user's code gives moments of its own to begin with: no graph holds it.
    """
    put_back_numbers(p.numbers)
    with torch.no_grad():
        copy_known(tensors(p), saved)
    fresh = build_optimizer(recipe, p.model)
    with torch.no_grad():
        copy_known(tensors(p), saved)  # again, since an optimizer() of the user's own may scale weights
        if p.average is not None:
            p.average.restart(p.model)
    _forget_gradients(p)
    if starts_from_zeros(p.optimizer) and not fresh.state:
        _zero(p.optimizer)
        if recipe.warmup_calls > 1:  # a graph holds it
            _reset_rates(p.optimizer, fresh)
        else:  # the one that code of the user's own knows
            fresh.state.update(p.optimizer.state)
            p.optimizer = fresh
    else:
        p.optimizer = fresh
    if p.scaler.is_enabled():
        p.scaler.load_state_dict(GradScaler(p.device.type).state_dict())  # fills its tensors, replaces none
    p.schedule = recipe.make_schedule(p.optimizer, recipe.epochs * len(p.loader))
    seed_all(recipe.seed)


def _forget_gradients(p: Parts) -> None:
    """Takes away what has come together in weights that no optimizer is given, whose gradients nobody sets to zero."""
    stepped = {id(weight) for group in p.optimizer.param_groups for weight in group["params"]}
    for weight in p.model.parameters():
        if weight.grad is not None and id(weight) not in stepped:
            weight.grad.zero_()


def copy_known(own: dict[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Fills tensors with those saved by the same names.

    A buffer that a net has made or enlarged meanwhile, a mask for longer sequences say, follows from its inputs and
    stays; one that is empty on either side is filled by the first batch, as torch's observers are, and is state.

    Raises:
        RunError: there is a weight that is not among those saved, since a step has made or renamed it.
    """
    for name, value in own.items():
        found = saved.get(name)
        if found is not None and found.shape != value.shape and 0 in (found.numel(), value.numel()):
            resize(value, found)
        if isinstance(value, nn.Parameter) and (found is None or found.shape != value.shape):
            raise RunError(
                f"the net has had no weight {name!r} of shape {tuple(value.shape)} before its first step, so nothing "
                "can be put back there: make layers, prunings and parametrizations in model()."
            )
        if isinstance(value, nn.Parameter) or (found is not None and found.shape == value.shape):
            value.copy_(saved[name])


def starts_from_zeros(optimizer: Optimizer) -> bool:
    """Whether an optimizer's state, set to zeros, is that of a fresh one.

    NAdam's product of momenta starts from one, Rprop's steps from the learning rate, and of others nobody knows. SGD
    takes its first gradient whole, and with dampening would take less of it from a buffer of zeros.
    """
    if type(optimizer) not in _FROM_ZEROS:
        return False
    return not any(group.get("dampening") for group in optimizer.param_groups)


def _zero(optimizer: Optimizer) -> None:
    with torch.no_grad():
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()


def _reset_rates(optimizer: Optimizer, fresh: Optimizer) -> None:
    """Gives each group the rate that a fresh optimizer begins with: a user's groups have rates of their own."""
    for group, begun in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(float(begun["lr"]))
        else:
            group["lr"] = begun["lr"]
        group.pop("initial_lr", None)


def tensors(p: Parts) -> dict[str, Tensor]:
    """Parameters and buffers of a run's model, by name."""
    return dict(p.model.named_parameters()) | dict(p.model.named_buffers())
