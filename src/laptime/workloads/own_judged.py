"""A user's loss on test data: what it gives in evaluation mode, or why it gives nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.importing import told_with_line
from laptime.data.own.opened import OwnData
from laptime.errors import RunError
from laptime.own.protocol import Workload
from laptime.values.trees import Tree, mapped
from laptime.workloads.base import Batch
from laptime.workloads.own import answered, has_evaluation
from laptime.workloads.own_carried import LEFT_OUT, Judging, moved_by_tests
from laptime.workloads.own_checked import check_share, loss_line


def judged_by(data: OwnData, model: nn.Module, batch: Tree) -> tuple[bool, str]:
    """Whether the loss gives an accuracy in evaluation, and what to say of what it changes there.

    Args:
        data: the user's.
        model: the net, which is left in evaluation mode unless the loss changes that.
        batch: of the test data.

    Raises:
        RunError: the user's code failed, or gives no share as accuracy.
    """
    user, line = data.workload, loss_line(data)
    judging, modes = Judging(user, model.eval()), list[bool]()
    try:
        with told_with_line("loss() on the test data", data.file, user.loss), _asking_none(), _noted(model, modes):
            _, judged = _asked(data, model, batch)
    except RunError as error:
        # A LightningModule has a step of its own for that.
        if isinstance(user, LightningWorkload) or not _goes(data, model.train(), batch):
            raise
        raise RunError(f"{str(error).removesuffix('.')}: {_in_training_alone(user)}.") from error
    check_share(judged, f"{line} on the test data", data)
    # A LightningModule's steps put back what they change, and what its validation changes it does under a Trainer, too.
    moved = () if isinstance(user, LightningWorkload) else judging.moved()
    remedy = ""
    if moved and any(modes):
        with _left_in_evaluation(model.eval()):
            remedy = LEFT_OUT if _goes(data, model, batch) else _in_training_alone(user)
    return judged is not None, moved_by_tests(line, moved, remedy)


def _in_training_alone(user: Workload) -> str:
    """What helps where a net gives its loss in training mode alone, as torchvision's detectors do."""
    by = "which evaluate() judges" if has_evaluation(user) else "and judge it by an evaluate() of your own"
    return (
        "its net gives a loss in training mode alone, so return torch.tensor(torch.nan) where model.training is not "
        f"set, {by}"
    )


def _asked(data: OwnData, model: nn.Module, batch: Tree) -> tuple[Tensor, Tensor | None]:
    return answered(data.workload, model, Batch(mapped(batch, torch.clone)), data.file)


def _goes(data: OwnData, model: nn.Module, batch: Tree) -> bool:
    """Whether the loss of a batch can be had in the mode that the net is in."""
    try:
        with torch.no_grad():
            _asked(data, model, batch)
    except (Exception, SystemExit):  # whatever a user's code raises
        return False
    return True


@contextmanager
def _left_in_evaluation(model: nn.Module) -> Iterator[None]:
    """Within it train() of a net and its parts changes nothing."""
    parts = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    for module in parts:
        vars(module)["train"] = lambda mode=True, itself=module: itself
    try:
        yield
    finally:
        for module in parts:
            del vars(module)["train"]


@contextmanager
def _asking_none() -> Iterator[None]:
    """Within it nothing has gradients, as in evaluation; what asks for one all the same is told what helps."""
    with torch.no_grad():
        try:
            yield
        except RuntimeError as error:
            if "does not require grad" in str(error):
                error.args = (
                    f"{error}; test data go through it without gradients: torch.enable_grad() lets them be asked for",
                )
            raise


def _noted(model: nn.Module, modes: list[bool]) -> AbstractContextManager[object]:
    """Within it, the net's mode is noted at each call; not of a scripted one, which takes no hooks."""
    if isinstance(model, torch.jit.ScriptModule):
        return nullcontext()
    return model.register_forward_pre_hook(lambda net, _given: modes.append(net.training))
