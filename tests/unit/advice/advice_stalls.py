"""What graphs for nobody, a compiler, a driver and memory formats change in the steps: for their rules, or not."""

from __future__ import annotations

from laptime.records import Allocations, CompilerUse, OperatorRow, ThreadsRecord, UnusedGraph
from laptime.records.trace import MIXED
from laptime.spec import OptimizationSpec

UNUSED = UnusedGraph(steps=5, operators=40, matrix_work=10, share=0.3, ms=9.0, sources=("train.py:31",))
ASKED = Allocations(steps=8, calls=4.0, frees=2.0, ms=1.0)

KEPT_GRADIENTS = (
    ({"unused_graph": UNUSED}, {"unused_graph": UNUSED.model_copy(update={"steps": 2})}),
    # Once in five recorded steps, a small part of the net, a metric.
    tuple(
        {"unused_graph": UNUSED.model_copy(update=few)} for few in ({"steps": 1}, {"share": 0.06}, {"matrix_work": 1})
    ),
)
RECOMPILED = (
    (
        {"compiler": CompilerUse(steps=3, of=20, ms=400.0)},
        {"compiler": CompilerUse(steps=1, of=20, first=True, ms=900.0)},
    ),
    ({"compiler": CompilerUse(of=20)}, {}),
)
DRIVER_MEMORY = (
    ({"allocations": ASKED, "trace_steps": 20},),
    tuple(
        {"allocations": ASKED.model_copy(update=few), "trace_steps": 20}
        for few in ({"steps": 1}, {"ms": 0.01}, {"steps": 0})
    ),
)
_MAPPED = {"page_faults": 10_000.0, "system_cpu_ms": 25.0, "threads": 2}
MEMORY_PAGES = (
    (_MAPPED, {**_MAPPED, "threads": 1}, {"page_faults": 20_000.0, "system_cpu_ms": 60.0, "threads": 16}),
    (
        {
            **_MAPPED,
            "page_faults": 1500.0,
            "system_cpu_ms": 4.0,
        },  # less than a twentieth of the step
        {**_MAPPED, "page_faults": 300.0},  # the kernel does something else, or pages are large
        {**_MAPPED, "optimizations": (OptimizationSpec(name="keep-pages"),)},
        {**_MAPPED, "page_faults": 90_000.0, "system_cpu_ms": 250.0},  # more than the step
    ),
)
_FEWER = (ThreadsRecord(count=2, pass_ms=90.0), ThreadsRecord(count=1, pass_ms=70.0))
THREADS = (
    ({"fewer_threads": _FEWER},),
    (
        {"fewer_threads": tuple(reversed(_FEWER))},
        {"fewer_threads": (_FEWER[0], ThreadsRecord(count=1, pass_ms=87.0))},
        {"fewer_threads": _FEWER, "optimizations": (OptimizationSpec(name="threads"),)},
    ),
)
_MET = OperatorRow(name="aten::add_", shapes="[64, 240, 16, 16] [64, 240, 16, 16]", window=MIXED, calls=4)
MIXED_FORMATS = (
    (
        {"mixed_ms": 6.0, "operators": (_MET.model_copy(update={"self_ms": 6.0, "device_self_ms": 6.0}),)},
        {"mixed_ms": 5.0, "channels_last": True, "operators": (_MET.model_copy(update={"self_ms": 5.0}),)},
    ),
    ({"mixed_ms": 0.2}, {"mixed_ms": 0.0}),
)
