"""Between host and device, on a GPU: copies, and waits of the host that leave the device without work."""

from __future__ import annotations

from laptime.advice.figures import ms
from laptime.advice.outcome import MissingSignalError, Outcome, Proposal, known, lines_of
from laptime.advice.signals import Signals
from laptime.records.trace import SCALER, CopyRow, SyncRow

_LEAST_COPY = 0.03
# Fewer than one in ten steps is no pattern of the step: a progress line, a checkpoint.
_EVERY_STEP = 0.1
# Pinned memory alone about doubles the rate; copied beside the step, nothing of it is left to see.
_PINNED = (0.4, 1.0)
_BESIDE = (0.5, 1.0)
# In a short trace a single one is more than one in ten steps: it must come twice, or in every second step.
_OFTEN, _TWICE = 0.5, 2
_GB_S = 1.048576  # a MiB in a millisecond
_KEPT = "total += loss.detach()  # instead of loss.item(); read `total` once after the epoch"
# What the host waits for since it must know how many there are.
_SIZES = ("aten::nonzero", "aten::masked_select", "aten::unique", "aten::_unique2")
_OF_KNOWN_SIZE = "torch.where(mask, x, 0)  # instead of x[mask], nonzero or unique, whose sizes the host waits for"
# A fused optimizer is given the scale and the check's result, and looks at them on the device.
_SCALED = "torch.optim.AdamW(..., fused=True)  # or SGD's: it checks gradients on the device; bf16 needs no GradScaler"
_MOVES = ("aten::to", "aten::_to_copy", "aten::copy_")


def pinned_copies(s: Signals) -> Outcome:
    """Page-locked batches, copied beside the step."""
    if s.device != "cuda" or s.pinned:
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.copies, "the copies of a trace")
    sent = [r for r in rows if r.kind == "HtoD" and r.pageable is not False]
    slow = [r for r in sent if r.pageable]
    taken, mib = sum(r.ms for r in slow), sum(r.mib for r in slow)
    copy = _exposed(s, taken)
    if copy < _LEAST_COPY * step:
        if not slow and _exposed(s, sum(r.ms for r in sent)) >= _LEAST_COPY * step:
            raise MissingSignalError("whether copies are out of pageable memory")
        # A wait does not say which copy it is for, and those out of pageable memory are waited for in any case.
        return None if slow else _waited_for(s, step, [r for r in rows if r.kind == "HtoD" and r.pageable is False])
    return Proposal(
        "pinned-copies",
        "Batches are copied from pageable memory while the device waits: pin them and copy beside the step.",
        (
            f"{copy:.2f} of {ms(step)} ms a step copy {mib:.1f} MiB to the device and nothing beside it "
            f"({mib / taken * _GB_S:.1f} GB/s)",
        ),
        (_PINNED[0] * copy, _PINNED[1] * copy),
        0.7,
        remedy="pinned",
        code='DataLoader(..., pin_memory=True) and batch.to("cuda", non_blocking=True)',
        klass="exact",
        lines=lines_of(*(r.source for r in slow)),
    )


def _exposed(s: Signals, copy: float) -> float:
    """What of copies no kernel hides, at most: the trace tells it of all copies together."""
    return copy if s.exposed_copy_ms is None else min(copy, s.exposed_copy_ms)


def _waited_for(s: Signals, step: float, locked: list[CopyRow]) -> Outcome:
    """Copies that could run beside the step, since their memory is page-locked, and that the host waits for."""
    if not locked:
        return None
    waits = [w for w in known(s.syncs, "the waits of a trace") if w.copies == "HtoD" and _is_often(w.calls, s)]
    copy, idle = _exposed(s, sum(r.ms for r in locked)), sum(w.idle_after_ms for w in waits)
    stalled = min(copy + min(idle, sum(w.wait_ms for w in waits)), step)
    if not waits or stalled < _LEAST_COPY * step:
        return None
    return Proposal(
        "pinned-copies",
        "The host waits for each batch's copy though the batch is page-locked: copy it beside the step.",
        (f"{copy:.2f} of {ms(step)} ms a step copy the batch; {idle:.2f} ms after it the device has no work yet",),
        (_BESIDE[0] * stalled, _BESIDE[1] * stalled),
        0.7,
        remedy="pinned",
        code='batch.to("cuda", non_blocking=True)  # of the next batch, on a stream of its own',
        klass="exact",
        lines=lines_of(*(w.source for w in waits)),
    )


def synchronisation(s: Signals) -> Outcome:
    """The host reads a value in each step, and the device idles until it gets work again.

    Without the wait a step still takes what the host does beside it, so no more goes than the host waits.
    """
    if s.device != "cuda":
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.syncs, "the waits of a trace")
    often = sorted((r for r in rows if _is_read(r, s)), key=lambda r: -r.idle_after_ms)
    idle = min(sum(r.idle_after_ms for r in often), sum(r.wait_ms for r in often), step)
    if idle <= 0:
        return None
    return Proposal(
        "synchronisation",
        "The host waits for the device within the step, which then idles: keep values there, read them once an epoch.",
        tuple(
            f"{r.name} waits {r.wait_ms:.2f} ms {r.calls:.1f} times a step and leaves the device idle for "
            f"{r.idle_after_ms:.2f} ms"
            for r in often[:3]
        ),
        (0.5 * idle, idle),
        0.7,
        remedy="no-reads" if s.reads and often[0].name != SCALER else "",
        code=_instead(often[0].name),
        klass="exact",
        lines=lines_of(*(r.source for r in often)),
    )


def _instead(name: str) -> str:
    """What to write instead of a wait."""
    if name == SCALER:
        return _SCALED
    return _OF_KNOWN_SIZE if name in _SIZES else _KEPT


def _is_read(row: SyncRow, s: Signals) -> bool:
    """Whether a wait comes often enough, and is none for a copy of the batch, which `pinned-copies` speaks of."""
    often = _is_often(row.calls, s)
    if row.copies == "HtoD":
        return False
    if not often or row.name not in _MOVES or row.copies == "DtoH":
        return often
    copies = known(s.copies, "the copies of a trace")
    return not any(c.kind == "HtoD" and c.pageable is not False for c in copies)


def _is_often(calls: float, s: Signals) -> bool:
    """Whether what comes so many times a step belongs to the steps, as far as so short a trace can tell."""
    return calls >= _OFTEN or (calls >= _EVERY_STEP and calls * (s.trace_steps or 0) >= _TWICE)


def created_on_cpu(s: Signals) -> Outcome:
    """A tensor is filled on the host and copied in each step."""
    if s.device != "cuda":
        return None
    known(s.step_ms, "the step's time")
    rows = [r for r in known(s.copies, "the copies of a trace") if r.kind == "HtoD" and _is_often(r.fresh, s)]
    copy = sum(r.ms * min(1.0, r.fresh / r.calls) for r in rows if r.calls > 0)
    if copy <= 0:
        return None
    return Proposal(
        "created-on-cpu",
        "Tensors are made on the CPU in each step and then moved: make them on the device.",
        (f"{sum(r.fresh for r in rows):.1f} copies a step are of what was just filled; they take {copy:.2f} ms",),
        (0.8 * copy, copy),
        0.75,
        code="torch.zeros(..., device=device)  # instead of torch.zeros(...).to(device)",
        klass="exact",
        lines=lines_of(*(r.source for r in rows)),
    )
