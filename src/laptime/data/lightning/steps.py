"""The steps of a LightningModule behind `forward`, and what they log."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from laptime.data.lightning.refused import overridden
from laptime.own.user_code import parameters_of
from laptime.values.tallies import untouched

# An accuracy by the name that is logged: acc, val_acc1, trainAcc, MulticlassAccuracy; not acceleration.
_ACCURACY = re.compile(r"accurac|acc(?![a-z])", re.IGNORECASE)
_LOSS = re.compile("loss", re.IGNORECASE)


class Steps(nn.Module):
    """A LightningModule whose `forward` is its step: what wraps a net (a compiler, DDP) then wraps the step.

    In training it is training_step(); in evaluation validation_step() where that has a loss, else training_step().

    Args:
        module: the user's.
        number: gives the number of a training batch in its epoch; None where no step reads it.
    """

    def __init__(self, module: Any, number: Callable[[], int] | None = None) -> None:
        super().__init__()
        self.module, self.number = module, number
        self.said: dict[str, Any] = {}
        self.validates = overridden(module, "validation_step") is not None
        steps = ("training_step", "validation_step") if self.validates else ("training_step",)
        self.indexed = {name: len(_by_place(getattr(module, name))) > 1 for name in steps}
        # Of several loaders the first is gone through.
        places = parameters_of(module.validation_step) if self.validates else {}
        self.more = {n: 0 for n in ("dataloader_idx",) if n in places and places[n].default is inspect.Parameter.empty}
        self.still = [part for part in module.modules() if not part.training]
        self.metrics = [(name, found) for name, found in module.named_modules() if is_metric(found)]
        for _, metric in self.metrics:
            metric.distributed_available_fn = _alone
        self.filled = [metric for _, metric in self.metrics]
        self.moving: set[str] | None = None
        module.log = self.note  # log_dict() calls it too; without a Trainer Lightning's own only warns

    def train(self, mode: bool = True) -> Steps:
        """As under Lightning's Trainer, what the module has put into evaluation mode when it was made stays in it."""
        super().train(mode)
        self.moving = None
        for part in self.still:
            part.training = False
        return self

    def to(self, *args: Any, **kwargs: Any) -> Steps:
        """Moves the module by its own method too, which notes its `device`."""
        self.module.to(*args, **kwargs)
        return super().to(*args, **kwargs)

    def note(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Takes what the module logs; without its graph, which nobody could copy."""
        self.said[name] = value.detach() if isinstance(value, Tensor) else value

    def forward(self, batch: Any) -> tuple[Tensor | None, Tensor | None]:
        """The loss of a batch, and what the step logs as accuracy; None of what it does not give."""
        loss = accuracy = None
        if not self.training and self.validates:
            loss = self._step("validation_step", batch)
            loss, accuracy = self._said(_LOSS) if loss is None else loss, self._accuracy()
        if loss is None:
            with nullcontext() if self.training else self._put_back():
                loss = self._step("training_step", batch)
                accuracy = self._accuracy() if accuracy is None else accuracy
        return loss, accuracy

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Within it training_step() judges, which under a Trainer trains alone: what it changes is put back.

        A teacher that follows, a centre, a count. Tensors without gradients are kept where an evaluation's first batch
        has changed them, since a frozen backbone is large.
        """
        held = (*self.named_parameters(), *self.named_buffers())
        still = {name: t for name, t in held if not t.requires_grad and t.layout == torch.strided}
        watched = still if self.moving is None else {n: t for n, t in still.items() if n in self.moving}
        kept = {name: tensor.detach().clone() for name, tensor in watched.items()}
        moved = set[str]()
        try:
            with ExitStack() as stack:
                for part in self.module.modules():
                    if not is_metric(part):
                        stack.enter_context(untouched(part))
                yield
        finally:
            # By their values: what is written through `.data` counts no version.
            moved |= {name for name, was in kept.items() if not torch.equal(still[name], was)}
            with torch.no_grad():
                for name in moved:
                    still[name].copy_(kept[name])
        self.moving = moved

    def _step(self, name: str, batch: Any) -> Tensor | None:
        """Takes a step and returns its loss; None where it gives none.

        Metrics begin anew with each step: what they then hold is that of the batch, and lists in them do not grow.
        Which ones have been filled is kept here: a metric's own count may be put back beside the values that it holds.
        """
        self.said = {}  # anew, so that no compiler asks which names an evaluation has logged
        for metric in self.filled:
            metric.reset()
        step = getattr(self.module, name)
        index = self.number() if self.training and self.number is not None else 0
        more = self.more if name == "validation_step" else {}
        given = step(batch, index, **more) if self.indexed[name] else step(batch, **more)
        self.filled = [metric for _, metric in self.metrics if metric.update_called]
        if isinstance(given, Mapping):
            given = given.get("loss", None if self.training else _named(given.items(), _LOSS))
        if isinstance(given, Tensor) and given.numel() == 1:  # [1] goes backward as well
            given = given.reshape(())
        return given if _scalar(given) else None

    def _said(self, names: re.Pattern[str]) -> Tensor | None:
        """The value that was logged under such a name."""
        return _named(self.said.items(), names)

    def _accuracy(self) -> Tensor | None:
        """The accuracy that the step logs, else that of a metric of such a name, which a hook would log later."""
        found = self._said(_ACCURACY)
        if found is None:
            found = _named([(name.rpartition(".")[2], metric) for name, metric in self.metrics], _ACCURACY)
        return None if found is None else found.float()


def _by_place(step: Any) -> list[inspect.Parameter]:
    """The parameters of a step that take what is given by place."""
    given = parameters_of(step).values()
    return [p for p in given if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]


def _named(values: Iterable[tuple[str, Any]], names: re.Pattern[str]) -> Tensor | None:
    """The scalar under such a name; of several that of the shortest, the whole rather than a part: loss, kl_loss."""
    fitting = sorted((pair for pair in values if names.search(pair[0])), key=lambda pair: len(pair[0]))
    found = (_value_of(value) for _, value in fitting)
    return next((value for value in found if _scalar(value)), None)


def is_metric(value: object) -> bool:
    """Whether a value is a metric of torchmetrics, which comes with Lightning; imports nothing."""
    return any(c.__name__ == "Metric" and c.__module__ == "torchmetrics.metric" for c in type(value).__mro__)


def _value_of(logged: Any) -> Any:
    """What was logged, of a metric its value over the batch; None where it has seen nothing of the batch."""
    metric: Any = logged
    if not isinstance(logged, nn.Module):
        return logged
    return metric.compute() if metric.update_called else None


def _alone() -> bool:
    """Told to metrics, so that none waits for the other ranks: some steps are taken by one of them alone."""
    return False


def _scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0
