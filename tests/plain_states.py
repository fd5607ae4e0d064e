"""States of a net with cropped kernels as the plain one's, and the other way round: a training goes on in either."""

import itertools

import torch
from torch import Tensor, nn

from laptime.optimizations.dead_taps import crops


def dead(crop) -> Tensor:
    """Mask of the dead taps, of the whole kernel's shape."""
    mask = torch.ones_like(crop.full, dtype=torch.bool)
    mask[crop.live] = False
    return mask


def load_plain_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Loads a state dict of the plain architecture, in place: live taps into the weights, dead ones into the crops."""
    own, cut = dict(state), crops(model)
    for name, (_, crop) in cut.items():
        own[f"{name}.weight"] = state[f"{name}.weight"][crop.live]
    model.load_state_dict(own)
    for name, (_, crop) in cut.items():
        crop.full = state[f"{name}.weight"].detach().clone()
        crop.factor.fill_(1.0)


def plain_optimizer_state(model, optimizer):
    """The optimizer's state dict as the plain net's optimizer loads it, with the same groups of parameters.

    Dead taps have no gradient, so their moments are zero in Adam and AdamW; in SGD their momentum is weight decay's,
    and the crop's factor has been through it.
    """
    by_weight = {id(weight): crop for weight, crop in crops(model).values()}
    factors = {id(crop.factor) for crop in by_weight.values()}
    state, groups, count = {}, [], 0
    for group in optimizer.param_groups:
        kept = [p for p in group["params"] if id(p) not in factors]
        groups.append({**group, "params": list(range(count, count + len(kept)))})
        for index, p in enumerate(kept, start=count):
            if p in optimizer.state:
                state[index] = _whole(optimizer, p, by_weight.get(id(p)))
        count += len(kept)
    return {"state": state, "param_groups": groups}


def _whole(optimizer, weight, crop):
    found = {k: v.clone() if isinstance(v, Tensor) else v for k, v in optimizer.state[weight].items()}
    if crop is not None:
        shared = optimizer.state.get(crop.factor, {})
        found |= {k: crop.filled(v, shared.get(k, 0.0)) for k, v in found.items() if _is_by_weight(v, weight)}
    return found


def load_plain_optimizer_state(model, optimizer, state) -> None:
    """Loads the state dict of the plain net's optimizer; the model must have its plain state already."""
    cut = {id(weight): crop for weight, crop in crops(model).values()}
    factors = {id(crop.factor): id(weight) for weight, crop in crops(model).values()}
    numbers, found, groups = itertools.count(), {}, []
    order = [p for group in optimizer.param_groups for p in group["params"]]
    given = {id(p): state["state"].get(next(numbers)) for p in order if id(p) not in factors}
    for index, p in enumerate(order):
        entry, crop = given.get(factors.get(id(p), id(p))), cut.get(factors.get(id(p), id(p)))
        if entry is not None and crop is not None:
            entry = _of_factor(entry, crop) if id(p) in factors else _of_live(entry, crop)
        if entry is not None:
            # Copies: torch would take the step counters as they are, and then count in the given state too.
            found[index] = {k: v.clone() if isinstance(v, Tensor) else v for k, v in entry.items()}
    for group, plain in zip(optimizer.state_dict()["param_groups"], state["param_groups"], strict=True):
        groups.append({**plain, "params": group["params"]})
    optimizer.load_state_dict({"state": found, "param_groups": groups})
    for weight, entry in optimizer.state.items():
        for name, value in entry.items():
            if _is_by_weight(value, weight):  # fused kernels walk weights and moments by address
                entry[name] = torch.empty_like(weight).copy_(value)


def _of_live(entry, crop):
    return {k: v[crop.live] if _is_by_weight(v, crop.full) else v for k, v in entry.items()}


def _of_factor(entry, crop):
    """A crop factor's state from that of the whole kernel: what dead taps have, as a share of the taps themselves."""
    taps, found = crop.full[dead(crop)], dict(entry)
    place = int(taps.abs().argmax())
    for key, value in entry.items():
        if _is_by_weight(value, crop.full):
            found[key] = (value[dead(crop)].to(taps.dtype)[place] / taps[place]).reshape(1)
    return found


def _is_by_weight(value, weight) -> bool:
    return isinstance(value, Tensor) and value.shape == weight.shape and value.dim() > 1
