"""What a user's own optimizer is not for (kernels that it has not, others that step it), and how it parts a net."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from laptime.data.lightning.module import LightningWorkload
from laptime.data.lightning.optimizer import forgotten, has_step_hooks
from laptime.data.own.opened import OwnData
from laptime.errors import UsageError, shorten
from laptime.own.protocol import Workload as Protocol
from laptime.own.user_code import place_in
from laptime.values.draws import State, have_drawn
from laptime.values.hooks import has_set_hooks
from laptime.values.judging import has_modes
from laptime.values.strides import out_of_order
from laptime.workloads.own import probe_optimizer, remade, takes, takes_model


def hooked(optimizer: Optimizer) -> bool:
    """Whether an optimizer's steps do more than those of its class: they have hooks, or a function in their place."""
    return has_step_hooks(optimizer) or "step" in vars(optimizer)


def unfused(made: Optimizer) -> dict[str, str]:
    """What needs the fused kernel of a user's optimizer, where its parameters or options are not for it.

    One that is made anew with that kernel has the options of its groups, and of what its class keeps beside them the
    defaults.

    Args:
        made: before its first step.
    """
    kind, told = type(made).__name__, ""
    if hooked(made):
        told = f"steps of its {kind} have hooks or were replaced, and one made anew with a fused kernel has neither"
        return dict.fromkeys(("fused-optimizer", "fp16", "graph"), told)
    if not takes(type(made), "fused"):  # else its own first step would be taken here
        return {}
    if told := out_of_order(made):  # before a step by addresses, which might write beyond what a weight has
        return dict.fromkeys(("fused-optimizer", "fp16", "graph"), told)
    try:
        fused = remade(made, fused=True)
        lost = forgotten(made, fused)
        fused.step()
    except Exception as error:  # whatever torch says of complex weights, sparse gradients, options
        told = f"{kind} has no fused kernel for it ({shorten(' '.join(str(error).split()), 160)})"
    else:
        if lost:
            told = f"its {kind}, made anew with a fused kernel, has another {' and another '.join(lost)}"
    return dict.fromkeys(("fused-optimizer", "fp16", "graph"), told) if told else {}


def begun_with(made: Optimizer) -> dict[str, str]:
    """What cuts or lays out the weights anew, or zeroes moments in place, where a user's code has loaded moments.

    Args:
        made: before its first step; torch's own have no state by then, but for Adagrad.
    """
    torchs = type(made).__module__.startswith("torch.optim.") and not isinstance(made, torch.optim.Adagrad)
    if not (made.state and torchs):
        return {}
    told = f"its {type(made).__name__} begins with moments that were loaded, of weights as model() gives them"
    return dict.fromkeys(("channels-last", "dead-taps", "graph"), told)


def apart(made: Optimizer, model: nn.Module, begun: State) -> dict[str, str]:
    """What has ranks step apart, since each would draw for itself, or hands parts of a gradient to hooks.

    Args:
        made: behind two steps.
        model: its net.
        begun: where the generators of the process were before it was made.
    """
    refused = {}
    if has_set_hooks(model):
        refused = dict.fromkeys(("dead-taps", "ddp", "flat-reduce"), "its optimizer() sets hooks for whole gradients")
    if have_drawn(begun):
        told = f"its {type(made).__name__} draws random numbers, which each rank would draw otherwise"
        refused |= dict.fromkeys(("ddp", "flat-reduce"), told)
    return refused


def habits(user: Protocol, model: nn.Module, rate: float) -> tuple[Literal["modes", "hooks"], ...]:
    """What a script must do beside making the user's optimizer: see `OwnSpec.optimizer`."""
    made = probe_optimizer(user, model, rate)
    found: list[Literal["modes", "hooks"]] = ["modes"] if has_modes(made) else []
    return (*found, "hooks") if has_set_hooks(model) else tuple(found)


def scattered(made: Optimizer) -> dict[str, str]:
    """What copies all gradients into one tensor, where some of them are sparse."""
    gradients = (p.grad for group in made.param_groups for p in group["params"] if p.grad is not None)
    sparse = any(gradient.layout != torch.strided for gradient in gradients)
    told = "its sparse gradients go into no flat tensor; ddp exchanges them as they are"
    return {"flat-reduce": told} if sparse else {}


def stepped_by_others(made: Any, schedule: object) -> dict[str, str]:
    """What hands an optimizer to torch's schedules or to Lightning's Trainer, where they don't take it.

    Its step is taken once more for this: one that wraps another optimizer may take no closure, or not call it, and one
    that changes gradients in place leaves none behind a trainer's step to be compared.

    Args:
        made: the optimizer, or what has a step as one has.
        schedule: the user's own, which a larger batch goes through; None without one.
    """
    kind, called = type(made).__name__, list[int]()
    refused = {}
    if not isinstance(made, Optimizer):
        steered = ("onecycle", "linear-decay", *(() if schedule else ("large-batch",)))
        refused = dict.fromkeys(steered, f"torch's schedules take no {kind}, which is no torch.optim.Optimizer")

    def closure() -> Tensor:
        called.append(1)
        return torch.zeros(())

    before = _gradients(made)
    try:
        made.step(closure=closure)
    except Exception as error:  # whatever a user's code raises
        told = type(error).__name__
        refused["lightning"] = f"the step of its {kind} takes no closure as Lightning gives it ({told})"
    else:
        if not called:
            refused["lightning"] = f"the step of its {kind} does not call the closure that Lightning gives it"
        elif any(not torch.equal(*pair) for pair in zip(before, _gradients(made), strict=True)):
            refused["lightning"] = f"the step of its {kind} changes gradients, which are compared behind it"
    return refused


def _gradients(made: Any) -> list[Tensor]:
    """Copies of the gradients that an optimizer steps by, but for sparse ones."""
    held = (p.grad for group in getattr(made, "param_groups", ()) for p in group["params"])
    return [gradient.detach().clone() for gradient in held if gradient is not None and gradient.layout == torch.strided]


def left_out(user: Protocol, model: nn.Module, rate: float) -> str:
    """What to say of a net's parameters that the user's optimizer leaves out; empty where it leaves none out.

    What the net itself has frozen is meant to stay.
    """
    groups = _groups(probe_optimizer(user, model, rate), model)
    wanted = [name for name, p in model.named_parameters() if p.requires_grad]
    lost = [name for name in wanted if groups[name] is None]
    if not lost:
        return ""
    lightning = isinstance(user, LightningWorkload)
    function, maker = ("configure_optimizers", "__init__") if lightning else ("optimizer", "model")
    return (
        f"{function}() leaves {len(lost)} of {len(wanted)} parameters out ({shorten(', '.join(lost))}), which stay as "
        f"they are: give them a group, or freeze them in {maker}() (requires_grad_(False)), which saves their "
        "gradients."
    )


def check_groups(data: OwnData, plain: nn.Module, changed: nn.Module, rate: float) -> None:
    """Refuses groups that follow what optimizations change in a net: not its names, and not its weights' axes.

    Args:
        data: of the user's workload.
        plain: as model() gave it.
        changed: the net of a variant.
        rate: any learning rate.

    Raises:
        UsageError: a parameter comes into another group than in the plain net.
    """
    if plain is changed or not takes_model(data.workload):
        return
    before, now = (_groups(probe_optimizer(data.workload, net, rate), net) for net in (plain, changed))
    other = next((name for name in before if now.get(name) != before[name]), None)
    if other is not None:
        function: Any = data.workload.optimizer  # type: ignore[attr-defined]
        raise UsageError(
            f"optimizer() of {data.file.name} puts {other} into another group than in the plain net, since this "
            f"variant has another module in its place{place_in(data.file, (), (function,))}: form groups by names and "
            "p.ndim, not by classes of modules or sizes of weights."
        )


def _groups(made: Optimizer, model: nn.Module) -> dict[str, int | None]:
    """By name of each parameter the place of its group; None for what is in none."""
    places = {id(p): place for place, group in enumerate(made.param_groups) for p in group["params"]}
    return {name: places.get(id(p)) for name, p in model.named_parameters()}
