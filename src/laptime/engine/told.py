"""What went wrong in a run, in one sentence; in a training of the user's own with the line of theirs and what helps."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

from laptime.engine.fits import of_one_sample, out_of_memory
from laptime.errors import lacking, shorten
from laptime.optimizations.base import Recipe
from laptime.optimizations.samples import stand_in
from laptime.own.user_code import complaint
from laptime.workloads.own_backward import forward_behind

# Where torch goes backward: none of the user's lines takes part in what fails there.
_BACKWARD = str(Path("torch", "autograd", "graph.py"))
# What torch calls the numbers of a precision, where an operation has no kernel for them or mixes them with others.
_CALLED = {"bf16": ("bfloat16",), "fp16": ("half", "float16")}


def explain(
    error: BaseException, own: Path | None = None, makers: Iterable[object] = (), recipe: Recipe | None = None
) -> str:
    """One sentence for an unexpected error: out of memory by its name, everything else by type and place.

    Args:
        error: as it was caught.
        own: the file of a workload of the user's own, whose line is named.
        makers: functions of the user's that made what the error is about, see `complaint`.
        recipe: what failed of the user's own, see `told`; None where nothing may be tried again.
    """
    text = shorten(" ".join(str(error).split()), 300)
    if out_of_memory(error):
        return f"out of memory ({text[:200]}): make the batch smaller."
    if own is not None:
        return f"{told(error, own, makers, recipe)}; see log.txt."
    if (known := of_one_sample(error) or lacking(error)) is not None:
        return f"{known}."
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} (in {Path(frame.filename).name}, line {frame.lineno}; see log.txt)."


def told(error: BaseException, own: Path, makers: Iterable[object] = (), recipe: Recipe | None = None) -> str:
    """What went wrong in a training of the user's own, without a full stop, see `complaint`.

    Where backward failed, with the line of the forward pass that is behind it; where an operation can't take numbers of
    the recipe's precision, with what helps.

    Args:
        error: as it was caught.
        own: the user's file.
        makers: see `complaint`.
        recipe: whose step is taken once more where backward failed; None where it can't be.
    """
    if recipe is None:
        return complaint(error, own, makers)
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    blamed = forward_behind(lambda: _backward(recipe)) if any(f.endswith(_BACKWARD) for f in frames) else []
    said, words = complaint(error, own, makers, blamed), str(error).lower()
    lacks = any(name in words for name in _CALLED.get(recipe.precision, ()))
    return f"{said}: leave {recipe.precision} out, whose numbers it does not take" if lacks else said


def _backward(recipe: Recipe) -> None:
    batch = stand_in(recipe, recipe.batch_size, recipe.device)
    recipe.forward(recipe.model.to(recipe.device).train(), batch).loss.backward()
