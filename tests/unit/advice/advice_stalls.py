"""What graphs for nobody, a compiler and a driver change in the steps: for their rules, to fire and not to."""

from __future__ import annotations

from laptime.records import Allocations, CompilerUse, UnusedGraph

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
