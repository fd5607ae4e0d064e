"""What follows backward: the optimizer's kernels, clearing gradients, reading values."""

from __future__ import annotations

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Abstain, Outcome, Proposal, known, lines_of
from laptime.advice.signals import Signals
from laptime.records.breakdown import UpdateRecord

_LEAST = 0.05
_LEAST_OWN = 0.03
# More calls than this in one update are a loop over tensors, unless an operator of many tensors makes them.
_LOOP_CALLS = 60
# In this order: a fused update counts its steps by an operator on many tensors.
_BY_NAME = {"aten::_fused_": "fused", "aten::_foreach_": "foreach"}
_ZEROES = frozenset(("aten::zero_", "aten::_foreach_zero_"))
# Where nobody timed it, what of its time goes with the fused kernel. A loop over tensors on a CPU: ResNet-18 with Adam
# lost 76 % on an Intel Xeon and 80 % on a Zen 4 by its epochs, 85 % of the part on a Zen 3 (docs/log.md, 21 and
# 24 November 2026), and 61 % in a trial before; on a GPU launches alone decide, by guess.
_GONE = {("cpu", "single"): (0.65, 0.90), ("cuda", "single"): (0.80, 0.95), ("cuda", "foreach"): (0.20, 0.60)}
_OTHER = (0.10, 0.40)
# Around what a trial says, which is of another minute.
_TRIED = (0.95, 1.05)
_LEAST_TRIED = 0.05


def optimizer(s: Signals) -> Outcome:
    """One fused kernel instead of operations on each tensor."""
    step, updates = known(s.step_ms, "the step's time"), known(s.optimizer_ms, "the optimizer's time")
    if updates < _LEAST * step or s.has("fused-optimizer"):
        return None
    kernel = s.optimizer_kernel or _kernel_of_trace(s)
    if known(kernel, "how the optimizer's kernels run") == "fused":
        return None
    gone, words = _tried(s.updates, updates) if s.updates and s.updates.own_ms > 0 else _expected(s, str(kernel))
    low, high = gone
    if low < _LEAST_TRIED:
        return Abstain(f"the fused kernel is no faster here: {words}")
    tensors = f" over {s.parameter_tensors} tensors" if s.parameter_tensors else ""
    how = "in a loop" + tensors if kernel == "single" else f"with {kernel} kernels" + tensors
    return Proposal(
        "optimizer",
        "The optimizer makes several passes over parameters and moments: use its fused kernel.",
        (
            f"it takes {ms(updates)} of {ms(step)} ms a step ({percent(updates / step)}), {how}",
            words,
        ),
        (low * updates, high * updates),
        0.8,
        remedy="fused-optimizer",
        code="fused=True  # in the arguments of Adam, AdamW, SGD or Adagrad",
        klass="exact",
    )


def _kernel_of_trace(s: Signals) -> str | None:
    """How the optimizer runs by the operators that a trace shows in it; a fused one launches many kernels, too."""
    names = {r.name for r in s.operators or () if r.region == "optimizer"}
    for prefix, kernel in _BY_NAME.items():
        if any(name.startswith(prefix) for name in names):
            return kernel
    return "single" if (s.optimizer_calls or 0) > _LOOP_CALLS else None


def _tried(trial: UpdateRecord, updates: float) -> tuple[tuple[float, float], str]:
    """What of the update goes, low and high, by a trial on this machine, and its figures.

    One end is the share that the trial lost. A loop over tensors makes new ones all the time, which takes longer in a
    step, where backward has left the memory in pieces, than by itself; a fused kernel makes none. So the other end is
    the fused trial beside the step's own update.
    """
    shares = sorted(1 - trial.fused_ms / whole for whole in (trial.own_ms, updates))
    words = f"timed by itself, an update takes {trial.own_ms:.2f} ms as it is and {trial.fused_ms:.2f} ms fused"
    return (_TRIED[0] * shares[0], min(_TRIED[1] * shares[1], 1.0)), words


def _expected(s: Signals, kernel: str) -> tuple[tuple[float, float], str]:
    """The same by what was measured elsewhere."""
    low, high = _GONE.get((s.device, kernel), _OTHER)
    return (low, high), f"where it was measured, the fused kernel took away {percent(low)} to {percent(high)} of that"


def zero_grad(s: Signals) -> Outcome:
    """Gradients are filled with zeros instead of being given up, and backward adds to them."""
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    fills = [r for r in rows if _ZEROES & {r.name, *r.chain}]
    marked = [r for r in fills if r.region == "optimizer"]
    fills = marked or [r for r in fills if not r.region]
    if s.device == "cuda":
        # The host's calls hide behind the device; a fill there stands for itself unless it is folded into its caller.
        places = {r.region for r in fills}
        below = [r for r in rows if r.name == "aten::fill_" and r.region in places]
        spent = sum(r.device_self_ms for r in {*fills, *below})
    else:
        spent = sum(r.total_ms for r in fills)
    # Outside of any region they may be of something else: those of gradients take no longer than the update.
    if spent <= 0 or (not marked and s.device == "cpu" and s.optimizer_ms is not None and spent > s.optimizer_ms):
        return None
    return Proposal(
        "zero-grad",
        "Gradients are filled with zeros in each step: set them to None instead.",
        (f"filling them takes {spent:.2f} of {ms(step)} ms a step, and backward then adds instead of writing",),
        (0.8 * spent, 1.5 * spent),
        0.6,
        code="optimizer.zero_grad(set_to_none=True)",
        klass="exact",
        lines=lines_of(*(r.source for r in fills)),
    )


def reads(s: Signals) -> Outcome:
    """On a CPU the time of reading and logging values in each step; on a GPU see `synchronisation`."""
    if s.device == "cuda" or (s.reads is False and s.read_ms is None):  # what it does not do has no time to record
        return None
    step, spent = known(s.step_ms, "the step's time"), known(s.read_ms, "the time of reads")
    if spent < _LEAST_OWN * step:
        return None
    return Proposal(
        "reads",
        "Each step reads and logs values: keep sums as tensors and read them once an epoch.",
        (f"reading takes {spent:.2f} of {ms(step)} ms a step",),
        (0.8 * spent, spent),
        0.7,
        remedy="no-reads",
        code="total += loss.detach()  # read once after the epoch",
        klass="exact",
    )
