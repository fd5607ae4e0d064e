"""What torch.compile does while a run goes on: how long, how often, and whether inside a counted epoch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from laptime.records import CompileRecord


class CompileWatch:
    """Adds up what the compiler does between `start` and `stop`.

    Seconds and events come from dynamo's own callbacks, which enclose tracing, the backend's work for forward and
    backward, and the recording of CUDA graphs; nested ones count once. The rest is read from dynamo's counters, the
    only place that tells graphs and breaks apart.
    """

    def __init__(self) -> None:
        self.seconds, self.events, self.recompiles = 0.0, 0, 0
        self._began = 0.0
        self._before: dict[str, int] = {}
        self.record = CompileRecord()

    def start(self) -> None:
        """Forgets what earlier runs of this process compiled, and listens."""
        torch.compiler.reset()  # a code object holds eight graphs at most, and takes eager silently after them
        from torch._dynamo.callback import on_compile_end, on_compile_start

        on_compile_start(self._on_start)
        on_compile_end(self._on_end)
        self._before = _counts()

    def stop(self) -> None:
        """Listens no longer, and keeps the record of what was done."""
        from torch._dynamo.callback import callback_handler

        since = {name: count - self._before[name] for name, count in _counts().items()}
        self.record = CompileRecord(recompiles=self.recompiles, **since)

        with contextlib.suppress(ValueError):  # a reset has taken them out already
            callback_handler.remove_start_callback(self._on_start)
            callback_handler.remove_end_callback(self._on_end)

    def _on_start(self, event: Any) -> None:
        self._began = time.perf_counter()

    def _on_end(self, event: Any) -> None:
        self.seconds += time.perf_counter() - self._began
        self.events += 1
        # An id is frame/graph: the first graph of a frame is 0, others were made because it did not fit.
        frame = str(getattr(event, "compile_id", "")).partition("/")
        tracing = getattr(getattr(event, "callback_trigger", None), "name", "") == "DYNAMO"
        self.recompiles += tracing and frame[2].partition("_")[0] not in ("", "0")


@contextlib.contextmanager
def watching(compiled: bool) -> Iterator[CompileWatch | None]:
    """A watch over a run that compiles; None for others, which need no compiler imported."""
    if not compiled:
        yield None
        return
    watch = CompileWatch()
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def _counts() -> dict[str, int]:
    from torch._dynamo.utils import counters

    caches = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "cache_hits": caches,
    }
