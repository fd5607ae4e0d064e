"""A recorded training step beside the same step launched piece by piece, from one state and on one batch.

The one-step comparison looks at forward and backward alone, and at no recording. What a recording adds can be wrong by
itself: a buffer that is read where it no longer stands, an optimizer that was left out, a gradient that is added to.
"""

from __future__ import annotations

from torch import Tensor

from laptime.engine.distances import relative_error
from laptime.engine.reset import reset, snapshot, tensors
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.graph import device_work, recording_of
from laptime.records import CheckRecord, RecordingCheck
from laptime.workloads.base import Counts

# Both sides run the same kernels in the same precision; what is left are sums in another order, of which the first step
# of Adam makes whole ones where a gradient is next to zero: of one in a thousand parameters, 0.06. A step that is left
# out is off by 1, a gradient that is taken twice by 1 in the optimizer's first moment.
_LOSS, _MOVED = 1e-2, 0.25
# A loss is measured against at least this: a net that has learnt its few samples has next to none.
_LEAST_LOSS = 0.1

Moved = dict[str, dict[str, Tensor]]
"""What a step moved, by kind and name."""


def check_recording(p: Parts, recipe: Recipe) -> RecordingCheck | None:
    """Replays a run's recording once, and takes the step without it, each from the state that the run has now.

    The recording is given up: the step without it works in as much memory again, and so does all that comes after.
    Leaves weights, optimizer and schedule at some other place.  # all ranks

    Args:
        p: a run's parts, through with all that is counted, written and profiled.
        recipe: that they were built from.

    Returns:
        None where nothing is replayed.
    """
    step = recording_of(p.step)
    if step is None or not step.recorded:
        return None
    batch, saved = next(iter(p.loader.epoch(0))), snapshot(p)
    reset(p, recipe, saved)
    found_loss, found = _loss(step(p, batch)), _moved(p, saved)
    step.forget()
    reset(p, recipe, saved)
    loss, expected = _loss(device_work(p, batch)), _moved(p, saved)
    errors = {kind: _error(found[kind], expected[kind]) for kind in expected}
    worst = max(errors, key=lambda kind: errors[kind] if errors[kind] == errors[kind] else float("inf"))
    return RecordingCheck(
        loss_error=abs(found_loss - loss) / max(abs(loss), _LEAST_LOSS),
        loss_tolerance=_LOSS,
        moved=worst,
        error=errors[worst],
        tolerance=_MOVED,
    )


def with_recording(check: CheckRecord | None, recording: RecordingCheck | None) -> CheckRecord | None:
    """The one-step comparison with that of the recording."""
    if check is None or recording is None:
        return check
    return check.model_copy(update={"recording": recording, "passed": check.passed and recording.passed})


def _loss(counts: Counts) -> float:
    return float(counts.loss_sum) / counts.count


def _moved(p: Parts, saved: dict[str, Tensor]) -> Moved:
    """How far parameters and buffers are from where they were, and the optimizer's states, which were at zero."""
    moved = {name: value.detach() - saved[name] for name, value in tensors(p).items()}
    own = {name for name, _ in p.model.named_parameters()}
    kinds: Moved = {
        "parameters": {name: moved[name] for name in own},
        "buffers": {name: moved[name] for name in moved.keys() - own},
    }
    for place, (parameter, state) in enumerate(p.optimizer.state.items()):
        for kind, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                kinds.setdefault(kind, {})[str(place)] = value.clone()
    return kinds


def _error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    if all(found[name].equal(value) for name, value in expected.items()):
        return 0.0  # nothing moved, perhaps
    return relative_error(found, expected)
