"""Traces written by hand in kineto's format, for what no CPU records: kernels, copies, waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PID, MAIN, BACKWARD, DEFAULT, SIDE = 100, 100, 101, 7, 20
DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84929347584, "computeMajor": 9}


class Trace:
    """Collects events; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.meta: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [DEVICE]}
        self._next = 0

    def host(self, cat: str, name: str, begin: float, dur: float, tid: int = MAIN, **args: Any) -> int:
        """Adds an event of the host; returns its external id."""
        self._next += 1
        args = {"External id": self._next, **args}
        event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "ts": begin, "dur": dur, "args": args}
        self.events.append(event)
        return self._next

    def step(self, number: int, begin: float, dur: float) -> None:
        self.host("user_annotation", f"ProfilerStep#{number}", begin, dur)

    def note(self, name: str, begin: float, dur: float) -> None:
        self.host("user_annotation", name, begin, dur)

    def op(self, name: str, begin: float, dur: float, tid: int = MAIN, **args: Any) -> int:
        return self.host("cpu_op", name, begin, dur, tid, **args)

    def line(self, place: str, begin: float, dur: float, caller: str = "") -> None:
        """Adds a Python frame, such as `train.py(31): step`."""
        self.host("python_function", place, begin, dur, **({"CallFrom": caller} if caller else {}))

    def wait(self, begin: float, dur: float, name: str = "cudaStreamSynchronize") -> None:
        self.host("cuda_runtime", name, begin, dur, cbid=131)

    def device(self, cat: str, name: str, begin: float, dur: float, **args: Any) -> None:
        stream = args.pop("stream", DEFAULT)
        args = {"device": 0, "stream": stream, **args}
        event = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": dur, "args": args}
        self.events.append(event)

    def launch(self, op: int, call: float, begin: float, dur: float, name: str = "sm90_gemm", **args: Any) -> None:
        """Adds a launching call of 5 us and the kernel, or copy, that it launched for operator `op`."""
        self._next += 1
        correlation, cat = self._next, str(args.pop("cat", "kernel"))
        tid = args.pop("tid", MAIN)
        call_name = "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync"
        ids = {"External id": op, "correlation": correlation}
        self.host("cuda_runtime", call_name, call, 5, tid, **ids)
        flow = {"cat": "ac2g", "name": "ac2g", "id": correlation, "pid": PID, "tid": tid, "ts": call}
        self.events.append({"ph": "s", **flow})
        self.device(cat, name, begin, dur, **ids, **args)

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({**self.meta, "traceEvents": self.events, "traceName": path.name}, indent=1))
        return path


def training(steps: int = 2, step_us: float = 1000.0) -> Trace:
    """Steps on a GPU that each show one thing of every kind; all step times are multiples of 10 us.

    A step: 0-100 fetch, 100-130 a pageable copy of a fresh fill, 200-400 a kernel with a copy beside it on another
    stream (300-500), 500-580 a small kernel of the backward, 600-700 nccl (of which 50 beside a kernel), 700-740 the
    optimizer, a wait from 690 to 760 in `aten::item`, then nothing on the device.
    """
    trace = Trace()
    for number in range(steps):
        at = number * step_us
        trace.step(number + 3, at, step_us)
        trace.line("train.py(12): main", at, step_us)
        trace.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 100)
        trace.op("aten::zeros", at + 101, 4, **{"Concrete Inputs": ["[64, 8]", ""], "Input Dims": [[], []]})
        move = trace.op("aten::to", at + 106, 20, **{"Input Dims": [[64, 8], [], []]})
        pageable = {"cat": "gpu_memcpy", "bytes": 1 << 20, "name": "Memcpy HtoD (Pageable -> Device)"}
        trace.launch(move, at + 108, at + 110, 20, **pageable)
        conv = trace.op("aten::cudnn_convolution", at + 130, 20, **{"Input Dims": [[8, 3, 32, 32], [8, 3, 3, 3]]})
        trace.launch(conv, at + 135, at + 200, 200)
        out = trace.op("aten::copy_", at + 160, 10, **{"Input Dims": [[8], [8]]})
        pinned = {"cat": "gpu_memcpy", "bytes": 1 << 19, "name": "Memcpy DtoH (Device -> Pinned)", "stream": SIDE}
        trace.launch(out, at + 161, at + 300, 200, **pinned)
        trace.op("autograd::engine::evaluate_function: MulBackward0", at + 400, 60, BACKWARD)
        mul = trace.op("aten::mul", at + 410, 40, BACKWARD, **{"Input Dims": [[8], [8]]})
        trace.launch(mul, at + 420, at + 500, 5, "elementwise_kernel", tid=BACKWARD)
        trace.launch(mul, at + 430, at + 510, 70, "elementwise_kernel", tid=BACKWARD)
        ring = {"stream": SIDE, "Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "Float"}
        trace.device("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 600, 100, **ring)
        trace.note("Optimizer.step#SGD.step", at + 470, 60)
        foreach = trace.op("aten::_foreach_add_", at + 475, 40)
        trace.launch(foreach, at + 480, at + 650, 50, "multi_tensor_apply_kernel")
        trace.launch(foreach, at + 490, at + 730, 10, "multi_tensor_apply_kernel")
        trace.line("<built-in method item of Tensor object at 0x7f00>", at + 685, 80, "train.py:31")
        trace.op("aten::item", at + 686, 76)
        trace.op("aten::_local_scalar_dense", at + 687, 74)
        trace.wait(at + 690, 70)
    return trace
