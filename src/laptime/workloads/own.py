"""A user's own workload in the terms of the engine."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.opened import OwnData
from laptime.errors import RunError, UsageError
from laptime.own.protocol import Workload as Protocol
from laptime.own.user_code import parameters_of, place_in, wanted
from laptime.spec import RunSpec
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.hooks import hooked_once
from laptime.values.judging import set_mode
from laptime.values.momenta import begun_late
from laptime.values.tallies import Unwritten, globals_of, numbers_of, put_back_numbers, untouched
from laptime.values.trees import mapped, tensors
from laptime.workloads.base import Batch, Output

Kind = Literal["score", "error"]
"""What an evaluation of the user's own gives: of a score more is better, and 1 is perfect; of an error less."""

_STEPPED = {"optimizer": "SGD or Adam", "schedule": "OneCycleLR or CosineAnnealingLR"}


class OwnWorkload:
    """What a user's object says, as `laptime.workloads.base.Workload`."""

    def __init__(self, name: str, data: OwnData) -> None:
        self.name, self.user, self.file = name, data.workload, data.file
        self.numbers, self.globals = data.numbers, data.globals
        self.is_lightning = isinstance(data.workload, LightningWorkload)

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        """See `Workload.make_model`; the user's model() loads weights itself."""
        self.restart()
        model = self.user.model()
        if not isinstance(model, nn.Module):
            raise RunError(f"model() of {self.file.name} gave {type(model).__name__}: return a torch.nn.Module.")
        self.numbers, self.globals = numbers_of(self.user), globals_of(self.user, model)
        spread(model)
        return model

    def paced(self, steps: int, epochs: int, size: int) -> None:
        """Tells a LightningModule the steps of an epoch, the epochs, and the samples of a step of all ranks."""
        if isinstance(self.user, LightningWorkload):
            self.user.paced(steps, epochs, size)

    def stepping(self, parts: object) -> None:
        """Tells it what trains, of whose optimizer its steps may tell the rates."""
        if isinstance(self.user, LightningWorkload):
            self.user.stepping(parts)

    def restart(self) -> None:
        """Takes back what the user's object has counted in the steps since its net was made, and what globals have."""
        put_back_numbers([*self.numbers, *self.globals])

    def forward(self, model: nn.Module, batch: Batch) -> Output:
        """See `Workload.forward`."""
        with looked_at(self.user) if _shapes_alone(batch) else nullcontext():
            loss, accuracy = answered(self.user, model, batch, self.file)
        if batch.more and isinstance(self.user, LightningWorkload):
            self.user.global_step -= 1  # which counts the optimizer's steps
        correct = None if accuracy is None else accuracy.detach().double() * len(batch)
        return Output(loss, correct, len(batch))

    def smoothed(self, amount: float) -> None:
        """See `Workload.smoothed`; a loss of the user's own has no labels that are known here."""
        return

    def by_sample(self, smoothing: float) -> None:
        """See `Workload.by_sample`; loss() gives the mean."""
        return

    def steady(self, model: nn.Module) -> None:
        """See `Workload.steady`; what a user's net chooses is not known here."""


def spread(model: nn.Module) -> None:
    """Gives buffers memory of their own where expand() shows a value in several places: none can be put back there."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            sizes = buffer.shape if buffer.layout == torch.strided else ()
            if any(size > 1 and buffer.stride(axis) == 0 for axis, size in enumerate(sizes)):
                setattr(module, name, buffer.contiguous())


@contextmanager
def looked_at(user: Protocol) -> Iterator[None]:
    """Within it a pass may change the user's object and any tensor, and draw numbers; behind it all is undone."""
    before = drawn()
    with untouched(user), Unwritten():
        try:
            yield
        finally:
            put_back_drawn(before)


def _shapes_alone(batch: Batch) -> bool:
    return any(tensor.is_meta for tensor in tensors(batch.inputs))


def answered(user: Protocol, model: nn.Module, batch: Batch, file: Path) -> tuple[Tensor, Tensor | None]:
    """What the user's loss gives: the loss, and the accuracy where there is one.

    The loss may take parts out of its batch (`batch.pop("labels")`): its containers are copies, its tensors are not.

    Raises:
        RunError: it gives something else than a scalar with one more scalar or none behind it.
    """
    given: Any = user.loss(model, mapped(batch.inputs, lambda tensor: tensor))
    pair = given if isinstance(given, tuple) else (given, None)
    wrong = len(pair) != 2 or not _scalar(pair[0]) or not (pair[1] is None or _scalar(pair[1]))
    if wrong:
        raise RunError(
            f"loss() gave {_shown(given)} (line {_line(user)} of {file.name}): return the mean over the samples, a "
            "scalar tensor of floats, or that and the accuracy, which is one, too (no .item())."
        )
    return pair


def _scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point()


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return type(value).__name__


def _line(user: Protocol) -> int | str:
    code = getattr(inspect.unwrap(user.loss), "__code__", None)
    return code.co_firstlineno if code else "unknown"


def has_evaluation(user: Protocol) -> bool:
    """Whether a workload says itself what it is judged by."""
    return getattr(user, "evaluate", None) is not None


class Batches:
    """Test data in batches, for an evaluation that may ask for their number and go through them again."""

    def __init__(self, begin: Callable[[], Iterator[Any]], samples: int, size: int) -> None:
        self.begin, self.count = begin, -(-samples // size)

    def __iter__(self) -> Iterator[Any]:
        return self.begin()

    def __len__(self) -> int:
        return self.count


def evaluated(user: Protocol, model: nn.Module, batches: Batches, file: Path) -> tuple[Kind, float]:
    """What the user's own evaluation gives: which kind it is, and the number.

    It may go backward through the net, for the worst inputs say: the gradients of the training stay as they are, also
    where it fails.

    Raises:
        RunError: it gives no number, or a score above 1.
    """
    function: Any = user.evaluate  # type: ignore[attr-defined]
    kind: Kind = "score" if getattr(user, "higher_is_better", True) else "error"
    kept = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        for parameter, _ in kept:
            parameter.grad = None  # else backward would add to what is kept
        given = function(model, batches)
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient
    number = isinstance(given, Real) or (isinstance(given, Tensor) and given.numel() == 1)
    value = float(given) if number else math.nan
    if not number or (kind == "score" and value > 1):
        shown = f"{value:g}" if number else _shown(given)
        place = place_in(file, (), (inspect.unwrap(function),))
        raise RunError(
            f"evaluate() gave {shown}{place}: return one number, 1 at best, or set higher_is_better = False."
        )
    return kind, value


def own_optimizer(user: Protocol | None) -> Callable[..., Optimizer] | None:
    """The user's optimizer of a net, with further options as far as its class knows them; None without one."""
    factory = getattr(user, "optimizer", None)
    if factory is None:
        return None
    by_name, begun = takes_model(user), dict[str, Any]()

    def make(model: nn.Module, learning_rate: float | Tensor, **options: Any) -> Optimizer:
        put_back_drawn(begun.setdefault("first", drawn()))  # one that draws when it is made does so alike each time
        given = model if by_name else list(model.parameters())
        made: Optimizer = hooked_once(model, lambda: factory(given, learning_rate))
        anew = remade(made, **options)
        if anew is not made:  # code of the user's own may have kept it, and reads its rates
            vars(made).update(vars(anew))
        set_mode(made, "train")
        return made

    return make


def takes_model(user: Protocol | None) -> bool:
    """Whether the user's optimizer(model, lr) wants the net, for groups by name, and no list of parameters."""
    try:
        return next(iter(parameters_of(user.optimizer)), "") == "model"  # type: ignore[union-attr]
    except (AttributeError, TypeError, ValueError):  # there is none, or Python knows nothing of it
        return False


def remade(made: Optimizer, **options: Any) -> Optimizer:
    """An optimizer anew with further options, as far as its class takes them."""
    wanted = {k: v for k, v in options.items() if takes(type(made), k)}
    if not wanted:
        return made
    if wanted.get("fused") and takes(type(made), "foreach"):
        wanted["foreach"] = None  # the user's own choice of kernels, beside which torch allows no fused one
    known = {k: v for k, v in made.defaults.items() if takes(type(made), k)}
    # Each group names all that it was made with, which would win over an argument for all.
    anew = type(made)([{**g, **wanted} for g in made.param_groups], **{**known, **wanted})
    if made.state:  # a checkpoint's moments, which the user's code has loaded
        anew.load_state_dict({**anew.state_dict(), "state": made.state_dict()["state"]})
    return begun_late(anew) if wanted.get("fused") else anew


def check_stepped(made: object, function: str, told: str) -> None:
    """Refuses what has no step that can be taken after each batch.

    Args:
        made: what the user's function gave.
        function: its name, `optimizer`, `configure_optimizers` or `schedule`.
        told: its file, with the line.

    Raises:
        UsageError: it has none, or one that wants more than the gradients that are there.
    """
    step, kind = getattr(made, "step", None), type(made).__name__
    what = "schedule" if function == "schedule" else "optimizer"
    if isinstance(made, tuple | list | dict) and what == "optimizer" and len(made) > 1:
        raise UsageError(
            f"{function}() of {told} gave {len(made)} optimizers in a {kind}, and one is stepped after each batch: "
            "make one with a group of weights for each, and train several nets in one loss (docs/own-workload.md, "
            "Several nets)."
        )
    if not callable(step):
        raise UsageError(f"{function}() of {told} gave {kind}, which has no step(): return the {what} itself.")
    if asked := wanted(step):
        raise UsageError(
            f"{function}() of {told} gave {kind}, whose step() wants {asked[0]!r}, and nothing is given after a batch: "
            f"return one that needs none, such as {_STEPPED[what]}."
        )


def own_schedule(user: Protocol | None, epochs: int) -> Callable[[Optimizer, int], Any] | None:
    """The user's schedule over the steps of so many epochs; None without one."""
    factory = getattr(user, "schedule", None)
    return factory and (lambda optimizer, steps: factory(optimizer, steps // epochs, epochs))


def clip_norm(user: Protocol | None) -> float | None:
    """The largest norm of the user's gradient; None for any."""
    found: float | None = getattr(user, "clip_norm", None)
    return found


def takes(kind: type[Optimizer], option: str) -> bool:
    """Whether optimizers of a class have an option."""
    return option in parameters_of(kind)


def workload_name(spec: RunSpec) -> str:
    """How a run's workload is called."""
    return spec.data.own.name if spec.data.own else spec.workload


def probe_optimizer(user: Protocol, model: nn.Module, rate: float) -> Optimizer:
    """The optimizer that a user's workload trains with."""
    made = own_optimizer(user)
    return made(model, rate) if made else torch.optim.Adam(model.parameters(), lr=rate)


def rates_of(optimizer: Optimizer) -> list[float]:
    """The learning rate of each group."""
    return [float(group["lr"]) for group in optimizer.param_groups]
