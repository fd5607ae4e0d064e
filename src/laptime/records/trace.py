"""A trace boiled down to a few numbers (`laptime.trace/1`): what advice rests on, and `profile/breakdown.json`.

Milliseconds and counts are means over the recorded steps unless another thing is said.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from laptime.records.base import Readable
from laptime.records.breakdown import Quartiles

TRACE_SCHEMA = "laptime.trace/1"

# In the order in which they claim a step's time: each takes only what none before it has.
CATEGORIES = (
    "kernel",
    "copy",
    "fill",
    "communication",
    "runtime",
    "data_loading",
    "cpu_op",
    "other",
)

# Convolutions and matrix products by name: what matrix units and short precisions are for.
MATRIX_WORK = re.compile(r"conv|(^|[:_])(b?addb?mm|mm|bmm|matmul|linear|gemm)\b|scaled_dot|_mm$", re.IGNORECASE)
# The window of a transposed convolution.
TRANSPOSED = "transposed"
# That of an element-wise operator whose maps are in both memory formats.
MIXED = "NCHW and NHWC"


class OperatorRow(Readable):
    """An operator, by name and shapes of its inputs where the trace has them.

    Attributes:
        shapes: of the inputs, empty where the trace has none.
        dtype: type of the operands of a convolution or matrix product (`fp32`, `bf16`, `fp16`, else torch's name for
            it); empty of other operators, and where the trace does not say.
        window: how a convolution's kernel moves, such as `stride [2, 2] padding [1, 1] dilation [1, 1]`, or
            `transposed`; of an element-wise operator `NCHW and NHWC` where its maps are in both; empty as `dtype` is.
        chain: operators above it that only pass the call on (their time is all its own): `aten::linear`, ...
        calls: in a step.
        self_ms, total_ms: on the host, without and with what it calls, in a step.
        device_self_ms: kernels that it launched itself, in a step.
        region: the named region that most of it lies in (`forward`, ...); empty outside of any.
        source: the user's line, `file.py:12`, where the trace has stacks.
    """

    name: str
    shapes: str = ""
    dtype: str = ""
    window: str = ""
    chain: tuple[str, ...] = ()
    calls: float = 0.0
    self_ms: float = 0.0
    total_ms: float = 0.0
    device_self_ms: float = 0.0
    region: str = ""
    source: str = ""


class KernelStats(Readable):
    """Kernels of a step.

    Attributes:
        short: share of kernels below 10 microseconds.
        graphed: share of kernels that a recorded CUDA graph launched; None of older records.
        busy_ms: the device at work on anything; overlaps count once.
        idle_ms: the rest of the step.
        unexplained_idle_ms: idle time in which the host waited for no data and no synchronisation.
        layout_ms: kernels or operators that only reorder memory (NCHW to NHWC and back).
    """

    calls: float = 0.0
    median_us: float | None = None
    short: float | None = None
    graphed: float | None = None
    busy_ms: float = 0.0
    idle_ms: float = 0.0
    unexplained_idle_ms: float = 0.0
    layout_ms: float | None = None


class CopyRow(Readable):
    """Copies of one kind between host and device, in a step.

    Attributes:
        kind: `HtoD` or `DtoH`.
        pageable: from memory that is not page-locked; None where the trace does not say.
        fresh: copies of what was filled on the host just before.
    """

    kind: Literal["HtoD", "DtoH", "DtoD"]
    pageable: bool | None = None
    calls: float = 0.0
    mib: float = 0.0
    ms: float = 0.0
    fresh: float = 0.0
    source: str = ""


# The wait in which a scaler of losses asks whether all gradients are finite.
SCALER = "GradScaler.step"


class SyncRow(Readable):
    """Waits of the host for the device from one place, in a step.

    Attributes:
        name: the operator above it, such as `aten::item`, or SCALER; else the runtime's call.
        copies: which way the copy goes that it waits for, `HtoD` or `DtoH`; empty for none, and where not known.
        wait_ms: host time inside.
        idle_after_ms: how long the device then stood idle, until it got work again.
    """

    name: str
    calls: float = 0.0
    wait_ms: float = 0.0
    idle_after_ms: float = 0.0
    source: str = ""
    copies: str = ""


class CollectiveRow(Readable):
    """Collectives of one name, in a step; `exposed_ms` is what no computation hides, nor another name has counted."""

    name: str
    calls: float = 0.0
    mib: float | None = None
    ms: float = 0.0
    exposed_ms: float = 0.0


class UnusedGraph(Readable):
    """Operators of forward passes that autograd recorded and no backward went through; counts of a step that has such.

    Only convolutions and matrix products make a forward pass: steps with none of them unused count as steps without.

    Attributes:
        steps: how many of the recorded steps have such operators; 0 where every graph was used.
        operators: those that were recorded for nothing.
        matrix_work: convolutions and matrix products among them.
        share: of all operators that were recorded.
        ms: host time of those operators, of which recording is a small part.
        regions: where they lie, most first.
        sources: the user's lines, most first, where the trace has stacks: the nearest that no used operator comes from.
    """

    steps: int = 0
    operators: float = 0.0
    matrix_work: float = 0.0
    share: float = 0.0
    ms: float = 0.0
    regions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


# What autograd calls the gradient of a write into a part of a tensor.
WRITTEN = "CopySlices"


class SliceRow(Readable):
    """Gradients of slices of tensors of one shape, in a step: tensors of zeros but for the slice, which are added up.

    Or, of writes into slices, copies of the whole gradient.

    Attributes:
        name: `aten::select_backward` (`x[:, t]`), `aten::slice_backward` (`x[:, t:u]`) or WRITTEN (`x[:, t] = y`).
        shapes: of the whole tensor.
        within: the net of torch's own that took the slices, such as `aten::gru`, which slices packed sequences; empty
            of those that are taken elsewhere.
        calls: in a step.
        slices: how many different parts are taken of such a tensor, or written; `calls / slices` tensors are sliced.
        ms: host time with zeros, copying and adding up.
        parts_ms: the same by operator, each its self time.
        source: the user's line, where the trace has stacks.
    """

    name: str
    shapes: str
    within: str = ""
    calls: float = 0.0
    slices: int = 0
    ms: float = 0.0
    parts_ms: dict[str, float] = Field(default_factory=dict)
    source: str = ""


class CompilerUse(Readable):
    """How often torch.compile's compiler ran in recorded steps.

    Attributes:
        steps: those in which it ran; 0 where steps only ran what it had made before.
        of: recorded steps.
        first: whether the first of them is among those.
        ms: what it took in one of them, a mean.
        counted: whether they are in the summary's numbers, since there are no others.
    """

    steps: int = 0
    of: int = 0
    first: bool = False
    ms: float = 0.0
    counted: bool = False


class Allocations(Readable):
    """Calls that ask a GPU's driver for memory or give it back, which torch's cache of memory is there to spare.

    Attributes:
        steps: how many of the recorded steps have such; 0 where none has.
        calls: in a step; `frees`: those of them that give it back, which wait for the device.
        ms: host time in them, in a step.
    """

    steps: int = 0
    calls: float = 0.0
    frees: float = 0.0
    ms: float = 0.0


class TraceSummary(Readable):
    """A trace in numbers.

    Attributes:
        source: the file, by its name alone.
        device: `cuda` where the trace holds kernels.
        compute_major: the first number of the GPU's compute capability; None where the trace does not say.
        precision: the operands' type in which convolutions and matrix products spend most of their time (under TF32
            `fp32`, as the operands are); None where the trace does not say.
        steps: recorded steps, from `ProfilerStep` marks.
        step_ms: on the host's clock. Where a GPU's host runs ahead and waits in one step for all, or behind them all,
            `step_mean_ms` is the step, and this is not.
        step_mean_ms: of the marked steps; where a GPU did what they launched behind them, of the time that it took.
        device_step_ms: on the GPU's own clock, from the first kernel that a step launched to that of the next; None on
            a CPU, and where no two steps in a row have kernels.
        compute_ms: what single steps take beside the data wait that nothing hides, of a GPU on its own clock;
            `wait_ms`: that wait. None where the GPU's clock is, and of older summaries.
        attribution_ms: a step by category, see CATEGORIES; adds up to the mean step.
        regions_ms: host time of the named regions `data`, `forward`, `backward`, `optimizer`, where they are recorded.
        elementwise_calls: small element-wise operators in a step, which a compiler would fuse; None where not known.
        elementwise_ms: their self time.
        mixed_ms: that of those whose maps are in two memory formats; None where the trace does not say (torch before
            2.4, or without shapes), and of older summaries.
        optimizer_ms: of the optimizer's step; None where the trace does not show it.
        optimizer_calls: operators or kernels that it took in a step.
        gc_ms: Python's garbage collector; None where not recorded.
        unused_graph: None where the trace has no numbers of autograd's nodes, or no backward, and of older summaries.
        slices: gradients of slices, by time; none where the trace does not say where they lie, nor in older summaries.
        compiler: None where nothing in the trace is compiled, and of older summaries.
        allocations: None on a CPU and of older summaries.
        left_out_ms: a recorded step that is in none of the numbers, since it took several times as long as any other.
        devices: how many worked in the trace; the numbers are of the one with most kernels. 0 on a CPU, and of older
            summaries.
        rank, world: of a distributed trace.
        missing: what the trace does not hold, so that rules that need it abstain: `shapes`, `stacks`, `memory`,
            `regions`, `data` (neither a DataLoader's mark nor a region of that name), `device`.
    """

    schema_: str = Field(default=TRACE_SCHEMA, alias="schema")
    source: str = ""
    device: Literal["cpu", "cuda"] = "cpu"
    device_name: str = ""
    compute_major: int | None = None
    precision: str | None = None
    torch: str = ""
    steps: int = 0
    step_ms: Quartiles
    step_mean_ms: float
    device_step_ms: Quartiles | None = None
    compute_ms: Quartiles | None = None
    wait_ms: Quartiles | None = None
    attribution_ms: dict[str, float] = Field(default_factory=dict)
    regions_ms: dict[str, float] = Field(default_factory=dict)
    operators: tuple[OperatorRow, ...] = ()
    kernels: KernelStats | None = None
    copies: tuple[CopyRow, ...] = ()
    syncs: tuple[SyncRow, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    elementwise_calls: float | None = None
    elementwise_ms: float | None = None
    mixed_ms: float | None = None
    optimizer_ms: float | None = None
    optimizer_calls: float | None = None
    gc_ms: float | None = None
    unused_graph: UnusedGraph | None = None
    slices: tuple[SliceRow, ...] = ()
    compiler: CompilerUse | None = None
    allocations: Allocations | None = None
    left_out_ms: float | None = None
    devices: int = 0
    rank: int | None = None
    world: int | None = None
    missing: tuple[str, ...] = ()
