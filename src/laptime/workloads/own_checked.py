"""What a user's model() and loss() give, or what is wrong with it, by line."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.finite import unfinite
from laptime.data.own.opened import OwnData
from laptime.errors import RunError, shorten
from laptime.own.user_code import place_in

# What gives no number of numbers.
AT_ZERO = "a logarithm, a root or a division at 0"


def check_model(model: object, data: OwnData, made: str) -> None:
    """Raises RunError for what is no net, or none that can be trained as it is."""
    file, where = data.file, "__init__()" if isinstance(data.workload, LightningWorkload) else "model()"
    if not isinstance(model, nn.Module):
        raise RunError(f"model() of {file.name} gave {type(model).__name__}{made}: return a torch.nn.Module.")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise RunError(
            f"model() of {file.name} gave a net in {type(model).__name__}{made}: return the net itself, which the "
            "rungs ddp and dp wrap."
        )
    lazy = [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if is_lazy(tensor)]
    if lazy:
        raise RunError(
            f"model() of {file.name} gave layers without a size yet ({shorten(', '.join(lazy))}){made}: call the net "
            f"once on a sample in {where}, or say what they take."
        )
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    if empty := [name for name, tensor in tensors.items() if tensor.is_meta]:
        raise RunError(
            f"model() of {file.name} gave tensors on the device meta, which hold no numbers "
            f"({shorten(', '.join(empty))}){made}: make the net on the CPU in {where}, or bring it there by to_empty() "
            "and set its weights."
        )
    if inferred := [name for name, tensor in tensors.items() if tensor.is_inference()]:
        raise RunError(
            f"model() of {file.name} gave tensors of torch.inference_mode(), to which nothing can be written "
            f"({shorten(', '.join(inferred))}){made}: make the net without it; torch.no_grad() is for weights that "
            "are set by hand."
        )


def check_trained(model: nn.Module, line: str) -> None:
    """Raises RunError where no gradient has reached the net."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    if wanted and all(p.grad is None for p in wanted):
        raise RunError(
            f"{line} gave a loss that does not come from the net that it is given: call that one, `model`, since "
            "others that are kept are not trained."
        )


def loss_line(data: OwnData) -> str:
    """What gives the loss, with its line."""
    user, file = data.workload, data.file
    name, function = ("training_step", user.step) if isinstance(user, LightningWorkload) else ("loss", user.loss)
    return f"{name}() of {file.name}{place_in(file, (), (function,))}"


def check_loss(loss: Tensor, line: str, data: OwnData, count: int) -> None:
    """Raises RunError for a loss of the first `count` samples that is no number, or has no graph."""
    if not math.isfinite(loss.item()):
        held = unfinite(data.train, range(count), known=False)
        said = f"{line} gave {loss.item()} on the first batch"
        if held.values:
            raise RunError(f"{said}, which holds {held.told}: {held.remedy(data)}.")
        raise RunError(f"{said}: look for {AT_ZERO} in it, and at its inputs.")
    user = data.workload
    if isinstance(user, LightningWorkload) and user.skips and loss.is_leaf:
        raise RunError(
            f"{line} skips the first {count} samples ({user.skips}), on which two steps are tried: let it train on "
            "them, and skip what it must by what a batch holds."
        )
    if not loss.requires_grad:
        raise RunError(f"{line} gave a loss without a graph: compute it from the model's output, without detach().")


def check_share(accuracy: Tensor | None, line: str, data: OwnData) -> None:
    """Raises RunError for an accuracy that is no share."""
    share = 0.0 if accuracy is None else accuracy.item()
    if not 0 <= share <= 1:
        remedy = "return a share from 0 to 1, or the loss alone"
        if isinstance(data.workload, LightningWorkload):
            remedy = "log a share from 0 to 1, or log it under a name without acc"
        raise RunError(f"{line} gave {share:g} as accuracy: {remedy}.")
