"""Back to the plain architecture and from it: weights, gradients and optimizer state in the baseline's layout.

What replaced a module keeps its parameters' names; only cropped kernels have another shape (`dead_taps.Crop`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from laptime.errors import DataError
from laptime.optimizations.dead_taps import Crop, crops

# Dead taps that one optimizer moved from one start agree to rounding; anything else has learnt from other images.
_SAME = 1e-4

State = dict[str, Any]


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict that the plain architecture loads: contiguous CPU tensors."""
    state = dict(model.state_dict())
    for name, (weight, crop) in crops(model).items():
        state[f"{name}.weight"] = crop.whole(weight)
    return {k: v.detach().cpu().contiguous().clone() for k, v in state.items()}


def load_plain_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Loads a state dict of the plain architecture, in place: live taps into the weights, dead ones into the crops.

    Raises:
        DataError: names or shapes differ from those of the plain architecture.
    """
    own = dict(state)
    cut = crops(model)
    for name, (_, crop) in cut.items():
        whole = own.get(f"{name}.weight")
        if whole is not None and whole.shape == crop.full.shape:
            own[f"{name}.weight"] = whole[crop.live]
        elif whole is not None:
            raise DataError(
                f"{name}.weight has shape {tuple(whole.shape)} instead of {tuple(crop.full.shape)}: give a state dict "
                "of the plain architecture."
            )
    try:
        model.load_state_dict(own)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"the state dict does not fit ({reason}): give one of the plain architecture.") from error
    for name, (_, crop) in cut.items():
        crop.full = state[f"{name}.weight"].detach().to("cpu", crop.full.dtype).clone()
        crop.factor.fill_(1.0)


def plain_gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients by the plain architecture's parameter names; zeros where there is none."""
    found = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()}
    for name, (_, crop) in crops(model).items():
        found[f"{name}.weight"] = crop.filled(found[f"{name}.weight"], 0.0)
    return found


def removed_parameters(model: nn.Module) -> int:
    """Parameters that the plain architecture has and this model does not."""
    return sum(crop.full.numel() - weight.numel() for weight, crop in crops(model).values())


def plain_optimizer_state(model: nn.Module, optimizer: Optimizer) -> State:
    """The optimizer's state dict as the plain net's optimizer loads it, with the same groups of parameters.

    Dead taps have no gradient, so their moments are zero in Adam and AdamW; in SGD their momentum is weight decay's,
    and the crop's factor has been through it.
    """
    by_weight = {id(weight): crop for weight, crop in crops(model).values()}
    factors = {id(crop.factor) for crop in by_weight.values()}
    state: dict[int, State] = {}
    groups: list[State] = []
    count = 0
    for group in optimizer.param_groups:
        kept = [p for p in group["params"] if id(p) not in factors]
        groups.append({**group, "params": list(range(count, count + len(kept)))})
        for index, p in enumerate(kept, start=count):
            if p in optimizer.state:
                state[index] = _whole(optimizer, p, by_weight.get(id(p)))
        count += len(kept)
    return {"state": state, "param_groups": groups}


def _whole(optimizer: Optimizer, weight: Tensor, crop: Crop | None) -> State:
    found = dict(optimizer.state[weight])
    if crop is None:
        return {k: v.clone() if isinstance(v, Tensor) else v for k, v in found.items()}
    shared = optimizer.state.get(crop.factor, {})
    return {
        k: crop.filled(v, shared.get(k, 0.0)) if _is_by_weight(v, weight) else v.clone() if isinstance(v, Tensor) else v
        for k, v in found.items()
    }


def load_plain_optimizer_state(model: nn.Module, optimizer: Optimizer, state: State) -> None:
    """Loads the state dict of the plain net's optimizer; the model must have its plain state already.

    Raises:
        DataError: other groups, or dead taps that have learnt (from larger images), which no cropped net could follow.
    """
    cut = {id(weight): crop for weight, crop in crops(model).values()}
    owners = {id(crop.factor): crop for crop in cut.values()}
    found: dict[int, State] = {}
    groups, plain, own = [], 0, 0
    for group, given in zip(optimizer.param_groups, _groups(state, optimizer), strict=True):
        of_crop: dict[int, State] = {}
        for index, p in enumerate(group["params"], start=own):
            if id(p) in owners:
                entry = of_crop.get(id(owners[id(p)]))
            else:
                entry = state["state"].get(plain)
                plain += 1
                crop = cut.get(id(p))
                if entry is not None and crop is not None:
                    of_crop[id(crop)] = _of_factor(entry, crop, optimizer)
                    entry = {k: v[crop.live] if _is_by_weight(v, crop.full) else v for k, v in entry.items()}
            if entry is not None:
                # Copies: torch would take the step counters as they are, and then count in the given state too.
                found[index] = {k: v.clone() if isinstance(v, Tensor) else v for k, v in entry.items()}
        groups.append({**given, "params": list(range(own, own + len(group["params"])))})
        own += len(group["params"])
    optimizer.load_state_dict({"state": found, "param_groups": groups})
    _lay_out(optimizer)


def _lay_out(optimizer: Optimizer) -> None:
    """Moments in the memory format of their weights, since fused kernels walk both by address."""
    for weight, entry in optimizer.state.items():
        for name, value in entry.items():
            if _is_by_weight(value, weight):
                entry[name] = torch.empty_like(weight).copy_(value)


def _groups(state: State, optimizer: Optimizer) -> list[State]:
    groups: list[State] = state["param_groups"]
    if len(groups) != len(optimizer.param_groups):
        raise DataError(
            f"the optimizer state has {len(groups)} groups of parameters instead of {len(optimizer.param_groups)}: "
            "give one of the same optimizer on the plain net."
        )
    return groups


def _of_factor(entry: State, crop: Crop, optimizer: Optimizer) -> State:
    """A crop factor's state from that of the whole kernel: what dead taps have, as a share of the taps themselves."""
    dead = crop.dead()
    taps = crop.full[dead]
    found = dict(entry)
    for key, value in entry.items():
        if not _is_by_weight(value, crop.full):
            continue
        values = value.detach().cpu()[dead].to(taps.dtype)
        place = int(taps.abs().argmax())
        share = values[place] / taps[place] if taps[place] else torch.zeros_like(taps[place])
        alike = torch.allclose(values, share * taps, rtol=_SAME, atol=_SAME * float(values.abs().max()))
        if not alike or (share and not isinstance(optimizer, SGD)):
            raise DataError(
                f"{key} of the optimizer state moves taps that are dead at this image size, so it comes from training "
                "on other images: leave out dead-taps or start with a fresh optimizer."
            )
        found[key] = share.reshape(1)
    return found


def _is_by_weight(value: object, weight: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == weight.shape and value.dim() > 1
