"""Two steps of a user's own training, taken before a ladder: what they give, or what is wrong with them, by line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from laptime.data.own import refused as own_refused
from laptime.data.own.importing import told_with_line
from laptime.data.own.opened import OwnData
from laptime.errors import RunError, shorten
from laptime.own.user_code import complaint, place_in
from laptime.values.copies import copy_of
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.tallies import changed, globals_of, numbers_of
from laptime.values.trees import Tree, cut, mapped, samples, tensors
from laptime.workloads.base import Batch
from laptime.workloads.own import answered
from laptime.workloads.own_backward import forward_behind
from laptime.workloads.own_carried import Carried, Counting, Start, carried
from laptime.workloads.own_checked import check_loss, check_model, check_share, check_trained, loss_line
from laptime.workloads.own_judged import judged_by
from laptime.workloads.own_leaves import leaves_of, left_untrained, untrained
from laptime.workloads.own_stepping import refuse_seldom_stepped, refuse_stepped, steps_noted

# Two losses of the same numbers.
_SAME = 1e-5


@dataclass(frozen=True)
class Stepped:
    """What two steps forward and back have shown.

    Attributes:
        model: the net, in training mode.
        copied: the same, or another that has taken no step where it holds what its last one gave: nobody can copy that.
        outputs: what it gave in the first, each time that the loss called it.
        judged: whether the loss gives an accuracy in evaluation.
        uncopied: why the net can't be copied, as optimizations do that change it; empty where it can.
        counted: attributes of the net and of the user's object that each step changes by Python code.
        twice: whether the loss differentiates gradients that go through what the net gives, as a penalty on them does.
        told: what a user must know of the steps: what they carry along, and weights that they do not train.
    """

    model: nn.Module
    copied: nn.Module
    outputs: Sequence[Tree]
    judged: bool
    uncopied: str
    counted: tuple[str, ...]
    twice: bool
    told: tuple[str, ...]


def stepped(data: OwnData, batch: Tree, test_batch: Tree) -> Stepped:
    """Takes two steps on a batch of the training data, and evaluates one of the test data.

    Raises:
        RunError: the user's code failed, or gives what can't be trained with.
    """
    user, file = data.workload, data.file
    model = _new_net(data)
    uncopied = _uncopied(model)
    outputs, graphed = list[Tree](), list[bool]()
    with told_with_line("train() of the net", file, user.model):
        model.train()  # which may leave frozen parts in evaluation
    kept, start = _versions(user, model), Start(user, model)
    with told_with_line("loss()", file, user.loss), _noted(model, outputs, graphed), steps_noted() as steps:
        # A loss may change its batch in place.
        loss, accuracy = answered(user, model, Batch(mapped(batch, torch.clone)), file)
        value = loss.item()
    line = loss_line(data)
    check_loss(loss, line, data, samples(batch))
    check_share(accuracy, line, data)
    leaves = leaves_of(loss)
    _backward(data, model, batch, loss)
    check_trained(model, line)
    numbers = [*numbers_of(user, model), *globals_of(user, model)]
    counting = Counting(user, model, numbers)
    with told_with_line("loss() of a second step", file, user.loss), steps_noted() as more_steps:
        loss, _ = answered(user, model, Batch(mapped(batch, torch.clone)), file)
    refuse_stepped(line, steps, more_steps)
    foreign = untrained(model, leaves, leaves_of(loss))
    _backward(data, model, batch, loss)  # fails where the net goes on from the graph of the step before
    found = (*changed(numbers), *start.filled())
    moved = tuple(name for name, was in kept.items() if _versions(user, model).get(name, was) != was)
    carries = _carried(data, batch, start, (value, counting.moved(), moved))
    refuse_seldom_stepped(line, user, model, lambda: _asked(data, model, batch))
    judged, tests = judged_by(data, model, test_batch)
    counted = tuple(name for name in found if name not in getattr(user, "unread", ()))
    told = (own_refused.moving(moved), carries.told, tests, left_untrained(foreign, line))
    return Stepped(
        model=model.train(),
        copied=_copyable(data, model),
        outputs=outputs,
        judged=judged,
        uncopied=uncopied,
        counted=(*counted, *carries.names),
        twice=bool(graphed),
        told=tuple(filter(None, told)),
    )


def _new_net(data: OwnData) -> nn.Module:
    """The user's net, which a second call must make anew; raises RunError."""
    user, file = data.workload, data.file
    torch.manual_seed(0)
    begun = drawn()
    with told_with_line("model()", file, user.model):
        model, another = user.model(), user.model()
        if _sizes(another) != _sizes(model):  # those may be drawn
            put_back_drawn(begun)
            another = user.model()
    made = place_in(file, (), (user.model,))
    check_model(model, data, made)
    if {id(p) for p in model.parameters() if p.requires_grad} & {id(p) for p in another.parameters()}:
        raise RunError(
            f"model() of {file.name} gave the same weights twice{made}: make a new net in each call, since each seed "
            "and each side of a comparison begins with its own."
        )
    if others := sorted({name for name, _ in _sizes(model) ^ _sizes(another)}):
        raise RunError(
            f"model() of {file.name} gave other weights when it was called again ({shorten(', '.join(others))}){made}: "
            "count layers in the net that is made, and in nothing that stays, since variants are checked on nets of a "
            "second call."
        )
    return model


def _sizes(model: object) -> set[tuple[str, tuple[int, ...]]]:
    """Weights by name; of what is no net, and of layers without a size yet, which are refused, there are none."""
    weights = model.named_parameters() if isinstance(model, nn.Module) else ()
    return {(name, tuple(p.shape)) for name, p in weights if not is_lazy(p)}


def _carried(data: OwnData, batch: Tree, start: Start, seen: tuple[float, tuple[str, ...], tuple[str, ...]]) -> Carried:
    """What two steps carry along to a third one, before which is put back what a run puts back.

    Args:
        data: the user's.
        batch: that of the steps.
        start: where they began.
        seen: the first loss; attributes whose objects count; those of the user's object whose tensors have changed.
    """
    first, objects, moved = seen
    kept = tuple(name for name in start.kept() if name not in moved)
    start.back()
    losses = first, first

    def given(some: Tree) -> float:
        return _asked(data, start.model, some).item()

    with suppress(Exception, SystemExit):  # whatever a user's code raises: a run that comes there tells it
        again = given(batch)
        # Of what has moved a notice tells already; weights that the net sets itself are put back in a run alone.
        if (kept or not moved) and not start.set_weights():
            losses = first, again
        if math.isclose(first, losses[1], rel_tol=_SAME) and (count := samples(batch)) > 1:
            read, halves = start.read(lambda: given(cut(batch, count, count // 2)))
            kept, losses = (read, halves) if read else (kept, losses)
    return carried(loss_line(data), objects, kept, losses)


def _versions(user: object, model: nn.Module) -> dict[str, list[tuple[int, int]]]:
    """By attribute of the user's object which tensors it holds and how often each was written to, but for the net's.

    A mean teacher, a queue of features: what a step changes of them is neither put back behind the warm-up nor kept.
    """
    mine = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return {
        name: [(id(t), 0 if t.is_inference() else t._version) for t in held if id(t) not in mine]
        for name, value in getattr(user, "__dict__", {}).items()
        if (held := _held(value))
    }


def _held(value: object) -> list[Tensor]:
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [value] if isinstance(value, Tensor) else []


def _uncopied(model: nn.Module) -> str:
    try:
        copy_of(model)
    except Exception as error:  # whatever a net holds: locks, files, handles of libraries
        return f"{type(error).__name__}: {shorten(' '.join(str(error).split()), 160)}"
    hooked = next((name for name, p in model.named_parameters() if has_hooks(p)), "")
    return f"{hooked} has hooks for its gradient, which copies of weights lose" if hooked else ""


def _copyable(data: OwnData, model: nn.Module) -> nn.Module:
    """A net that has taken steps, or a new one where it holds what its last step gave, which nobody can copy."""
    if not _uncopied(model):
        return model
    with told_with_line("model()", data.file, data.workload.model):
        return data.workload.model()


def has_hooks(parameter: Tensor) -> bool:
    """Whether a weight's gradient goes through a function of the user's, which bounds it say."""
    return bool(parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))


def _noted(model: nn.Module, outputs: list[Tree], graphed: list[bool]) -> AbstractContextManager[object]:
    """Within it, what a net gives is noted, and gradients of that which have a graph themselves.

    Not of a scripted one, which takes no hooks.
    """
    if isinstance(model, torch.jit.ScriptModule):
        return nullcontext()

    def passed(gradient: Tensor) -> None:
        if torch.is_grad_enabled():  # as by create_graph=True alone
            graphed.append(True)

    def note(_net: nn.Module, _given: object, output: Tree) -> None:
        outputs.append(output)
        for tensor in tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(passed)

    return model.register_forward_hook(note)


def _backward(data: OwnData, model: nn.Module, batch: Tree, loss: Tensor) -> None:
    try:
        loss.backward()
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        blamed = forward_behind(lambda: _again(data, model, batch))
        told = complaint(error, data.file, (data.workload.loss,), blamed)
        raise RunError(f"backward through loss() failed: {told}.") from error


def in_double(model: nn.Module) -> dict[str, str]:
    """Why faster precisions are left out of a net in float64: neither autocast nor TF32 touches its numbers."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    told = "its weights are float64, which it leaves as they are"
    return dict.fromkeys(("bf16", "fp16", "tf32"), told) if kinds == {torch.float64} else {}


def fails_in_bf16(data: OwnData, model: nn.Module, batch: Tree, kind: str) -> dict[str, str]:
    """Why bf16 is left out on `cpu` or `cuda` here: a step fails in it, as with observers, or without a kernel.

    On a GPU it has to be one that goes through in fp32: why another does not is told when it trains.
    """
    device = torch.device(kind)
    if kind == "cuda":
        try:
            model, batch = model.to(device), mapped(batch, lambda tensor: tensor.to(device))
            _waited(lambda: _again(data, model, batch), device)
        except (Exception, SystemExit):  # a net that is not for GPUs, or a GPU that others fill
            return {}

    def back() -> None:
        with torch.autocast(kind, torch.bfloat16):
            loss = _asked(data, model, batch)
        loss.backward()

    try:
        _waited(back, device)
    except torch.OutOfMemoryError:  # not for bf16: others came in between
        return {}
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        told = complaint(error, data.file, (data.workload.loss,), forward_behind(back))
        return {"bf16": f"a step of its net on this {kind.replace('cuda', 'gpu').upper()} fails in bf16: {told}"}
    return {}


def _waited(work: Callable[[], None], device: torch.device) -> None:
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # what fails in a kernel is told then


def _again(data: OwnData, model: nn.Module, batch: Tree) -> None:
    _asked(data, model, batch).backward()


def _asked(data: OwnData, model: nn.Module, batch: Tree) -> Tensor:
    return answered(data.workload, model, Batch(mapped(batch, torch.clone)), data.file)[0]
