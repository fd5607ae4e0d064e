"""Signals for the tests of advice: each fires one rule, and the change beside it must not."""

from __future__ import annotations

from dataclasses import replace

from advice_loading import LOADING
from advice_nets import HOT, NETS, PRECISION
from advice_stalls import DRIVER_MEMORY, KEPT_GRADIENTS, MEMORY_PAGES, MIXED_FORMATS, RECOMPILED, THREADS

from laptime.advice.signals import Signals
from laptime.records import LayoutRecord
from laptime.records.trace import CollectiveRow, CopyRow, KernelStats, OperatorRow, SyncRow, UnusedGraph
from laptime.spec import OptimizationSpec


def specs(*names: str) -> tuple[OptimizationSpec, ...]:
    return tuple(OptimizationSpec(name=n) for n in names)


def cpu(**changes: object) -> Signals:
    """A step of 100 ms on two cores in which nothing is wrong."""
    plain = Signals(
        subject="cpu-baseline",
        workload="cifar",
        variant="cpu-baseline",
        optimizations=(),
        step_ms=100.0,
        noise=0.01,
        load=0.5,
        cores=2,
        ranks=1,
        wait_ms=1.0,
        forward_ms=33.0,
        backward_ms=62.0,
        optimizer_ms=4.0,
        read_ms=0.0,
        fetch_cpu_share=0.9,
        process_cpu_ms=195.0,
        gc_ms=0.1,
        first_batch_s=0.01,
        epoch_s=10.0,
        steps=100,
        evaluate_s=0.2,
        checkpoint_s=0.0,
        test_samples=100,
        loader="items",
        workers=0,
        pinned=False,
        reads=True,
        optimizer_kernel="single",
        parameter_tensors=62,
        channels_last=False,
        compiled=False,
        graphed=False,
        biased_before_norm=0,
        train_mib=150.0,
        batch_size=32,
        whole_batch=32,
        dead_share=0.0,
        precision="fp32",
        passes=((32, 30.0), (512, 480.0)),
        peak_mib=1000.0,
        memory_mib=24_000.0,
        activations_mib=50.0,
        floor_share=0.3,
        operators=(OperatorRow(name="aten::mkldnn_convolution", self_ms=20.0, calls=20, shapes=CONV_LARGE),),
        collectives=(),
        trace_steps=5,
        unused_graph=UnusedGraph(),
        bf16_gain=0.5,
        compile_gain=0.5,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def gpu(**changes: object) -> Signals:
    """A step of 10 ms on a GPU in which nothing is wrong."""
    plain = cpu(
        subject="cuda-baseline",
        variant="cuda-baseline",
        device="cuda",
        step_ms=10.0,
        wait_ms=0.05,
        forward_ms=3.0,
        backward_ms=6.0,
        optimizer_ms=0.4,
        process_cpu_ms=10.0,
        memory_mib=80_000.0,
        peak_mib=50_000.0,
        epoch_s=10.0,
        steps=1000,
        operators=(OperatorRow(name="aten::cudnn_convolution", device_self_ms=2.0, calls=20),),
        kernels=KernelStats(calls=300, median_us=25.0, short=0.1, busy_ms=9.5, idle_ms=0.5, layout_ms=0.0),
        trace_steps=5,
        copies=(),
        syncs=(),
        elementwise_calls=10.0,
        elementwise_ms=0.2,
        bf16_gain=None,
        bf16_rates=1.0,
        compile_gain=None,
        passes=((32, 3.0), (512, 48.0)),
        gc_ms=0.01,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def each(some: tuple[dict[str, object], ...]) -> tuple[Signals, ...]:
    return tuple(cpu(**changes) for changes in some)


CONV_LARGE = "[[32, 64, 16, 16], [64, 64, 3, 3], []]"
CONV_DEAD = "[[32, 512, 1, 1], [512, 512, 3, 3], []]"
_DEAD = (OperatorRow(name="aten::mkldnn_convolution", self_ms=20.0, calls=3, shapes=CONV_DEAD),)
_HOT = (
    OperatorRow(name="aten::mkldnn_convolution", self_ms=40.0, calls=20, shapes="[[32, 64, 4, 4], [64, 64, 3, 3]]"),
)
_OLD = {"bf16": "begins at 8.0"}
_SORT = (OperatorRow(name="aten::sort", self_ms=60.0, calls=1),)
_COLLECTIVE = CollectiveRow(name="nccl:all_reduce", calls=4, mib=40.0, ms=4.0, exposed_ms=3.0)
_COPY = CopyRow(kind="HtoD", pageable=True, calls=2, mib=6.0, ms=1.2, source="train.py:31")
_LOCKED = _COPY.model_copy(update={"pageable": False})
_IDLE = KernelStats(calls=900, median_us=4.0, short=0.9, busy_ms=5.0, idle_ms=5.0, unexplained_idle_ms=4.0)
_MOVE = SyncRow(name="aten::copy_", calls=2.0, wait_ms=1.5, idle_after_ms=1.5, source="train.py:31")
_SENT = _MOVE.model_copy(update={"copies": "HtoD"})
_ITEM = SyncRow(name="aten::item", calls=1.0, wait_ms=6.0, idle_after_ms=1.5, source="train.py:40")


# Rule: signals on which it must say something, and ones close to them on which it must not.
CASES: dict[str, tuple[tuple[Signals, ...], tuple[Signals, ...]]] = {
    "too-noisy": ((cpu(noise=0.2), cpu(load=3.4)), (cpu(), cpu(load=2.2))),
    "near-the-roof": (
        (cpu(floor_share=0.8),),
        (cpu(), cpu(floor_share=0.8, wait_ms=5.0), cpu(floor_share=1.2)),
    ),
    **{name: (tuple(cpu(**c) for c in fires), tuple(cpu(**c) for c in quiet)) for name, (fires, quiet) in LOADING},
    "worker-start": (
        (cpu(workers=2, worker_start_s=0.6, loader="theirs"), cpu(workers=2, worker_start_s=0.6, optimizations=None)),
        (
            cpu(workers=2, worker_start_s=0.1, loader="theirs"),
            cpu(worker_start_s=0.6, loader="theirs"),
            cpu(workers=2, worker_start_s=0.6),
        ),
    ),
    "first-batch": (
        (cpu(workers=2, first_batch_s=0.8, worker_start_s=0.0),),
        (
            cpu(workers=2),
            cpu(first_batch_s=0.8),
            cpu(workers=2, first_batch_s=0.8, worker_start_s=0.7),
            cpu(workers=2, first_batch_s=0.8, worker_start_s=0.0, wait_ms=300.0, copy_ms=250.0),
        ),
    ),
    "pinned-copies": (
        (gpu(copies=(_COPY,)), gpu(copies=(_LOCKED,), syncs=(_SENT,))),
        (
            gpu(copies=(_COPY,), pinned=True),
            gpu(copies=(_LOCKED,)),
            gpu(copies=(_LOCKED,), syncs=(_SENT.model_copy(update={"copies": "DtoH"}),)),
            gpu(copies=(_LOCKED,), syncs=(_SENT.model_copy(update={"calls": 0.02}),), trace_steps=200),
            gpu(
                copies=(_LOCKED.model_copy(update={"ms": 0.1}),), syncs=(_SENT.model_copy(update={"idle_after_ms": 0}),)
            ),
            gpu(copies=(_LOCKED,), syncs=(_SENT,), pinned=True),
            gpu(copies=(_LOCKED, _COPY.model_copy(update={"ms": 0.01})), syncs=(_SENT,)),  # the labels' alone may be
            gpu(copies=(_COPY.model_copy(update={"ms": 0.1}),)),
            gpu(copies=(_COPY.model_copy(update={"pageable": None}),)),
            cpu(copies=(_COPY,), copy_ms=20.0),
        ),
    ),
    "synchronisation": (
        (
            gpu(syncs=(_ITEM,)),
            gpu(syncs=(_ITEM.model_copy(update={"calls": 0.4}),)),
            gpu(syncs=(_MOVE,), copies=(_LOCKED,)),
            gpu(syncs=(_MOVE.model_copy(update={"copies": "DtoH"}),), copies=(_COPY,)),
        ),
        (
            gpu(),
            gpu(syncs=(_ITEM.model_copy(update={"calls": 0.2}),)),
            gpu(syncs=(_ITEM.model_copy(update={"calls": 0.02}),), trace_steps=200),
            gpu(syncs=(_MOVE,), copies=(_COPY,)),
            gpu(syncs=(_SENT,), copies=(_COPY,)),
            gpu(syncs=(_SENT,), copies=(_LOCKED,)),
            cpu(syncs=(_ITEM,)),
        ),
    ),
    "created-on-cpu": (
        (
            gpu(copies=(_COPY.model_copy(update={"fresh": 1.0}),)),
            gpu(copies=(_COPY.model_copy(update={"fresh": 0.2}),), trace_steps=10),
        ),
        (
            gpu(copies=(_COPY,)),
            gpu(copies=(_COPY.model_copy(update={"fresh": 0.2}),)),  # one in five recorded steps
            gpu(copies=(_COPY.model_copy(update={"fresh": 0.02}),), trace_steps=200),
        ),
    ),
    "launch-bound": (
        (gpu(kernels=_IDLE),),
        (
            gpu(),
            gpu(kernels=_IDLE, graphed=True),
            gpu(kernels=_IDLE.model_copy(update={"median_us": 40.0})),
            gpu(kernels=_IDLE.model_copy(update={"unexplained_idle_ms": 1.0})),
            cpu(kernels=_IDLE),
        ),
    ),
    "batch-size": (
        (cpu(optimizer_ms=40.0, forward_ms=20.0, backward_ms=39.0, passes=((32, 30.0), (512, 240.0))),),
        (
            cpu(),
            cpu(optimizer_ms=40.0, passes=((32, 30.0),)),
            cpu(optimizer_ms=40.0, activations_mib=3000.0),
            cpu(optimizer_ms=40.0, steps=2),
            cpu(optimizer_ms=40.0, optimizations=specs("large-batch")),
        ),
    ),
    "precision": (
        (gpu(bf16_rates=0.5, refusals=_OLD), gpu(bf16_rates=4.0), *each(PRECISION[0])),
        (gpu(bf16_rates=1.0), gpu(refusals={**_OLD, "fp16": "begins at 7.0"}), *each(PRECISION[1])),
    ),
    "channels-last": (
        (
            cpu(kernels=KernelStats(layout_ms=8.0)),
            gpu(kernels=KernelStats(layout_ms=1.0)),
            cpu(layouts=LayoutRecord(nchw_ms=60.0, nhwc_ms=40.0, share=0.8)),
        ),
        (
            cpu(layouts=LayoutRecord(nchw_ms=40.0, nhwc_ms=44.0, share=0.8)),
            # A trial counts for more than what a trace calls a reorder.
            cpu(layouts=LayoutRecord(nchw_ms=40.0, nhwc_ms=39.5, share=1.0), kernels=KernelStats(layout_ms=8.0)),
            cpu(kernels=KernelStats(layout_ms=8.0), channels_last=True),
            cpu(),
            cpu(kernels=KernelStats(layout_ms=8.0), operators=(OperatorRow(name="aten::add", self_ms=3.0),)),
        ),
    ),
    "mixed-formats": tuple(tuple(side(**c) for c in some for side in (cpu, gpu)) for some in MIXED_FORMATS),
    "dead-taps": (
        (
            cpu(dead_share=0.6, optimizer_ms=40.0, operators=(OperatorRow(name="aten::mm", region="forward"),)),
            cpu(dead_share=None, operators=_DEAD),
        ),
        (cpu(), cpu(dead_share=None), cpu(dead_share=0.6, optimizations=specs("dead-taps"))),
    ),
    "optimizer": (
        (cpu(optimizer_ms=30.0), gpu(optimizer_ms=3.0), gpu(optimizer_ms=3.0, optimizer_kernel="foreach")),
        (cpu(), cpu(optimizer_ms=30.0, optimizer_kernel="fused"), cpu(optimizer_ms=30.0, optimizer_kernel=None)),
    ),
    "zero-grad": (
        (cpu(operators=(OperatorRow(name="aten::zero_", region="optimizer", self_ms=3.0, total_ms=3.9, calls=62),)),),
        (cpu(), cpu(operators=(OperatorRow(name="aten::zero_", region="forward", self_ms=3.0, calls=62),))),
    ),
    "bias-before-norm": ((cpu(biased_before_norm=3),), (cpu(),)),
    "kept-gradients": tuple(tuple(cpu(**c) for c in some) for some in KEPT_GRADIENTS),
    "evaluation": ((cpu(evaluate_s=2.0),), (cpu(), cpu(evaluate_s=2.0, test_samples=2000))),
    "reads": ((cpu(read_ms=6.0),), (cpu(), gpu(read_ms=6.0))),
    "threads": tuple(map(each, THREADS)),
    "compile": (
        (cpu(compile_gain=1.4, compile_cost_s=60.0), gpu(elementwise_ms=3.0, elementwise_calls=200.0)),
        (
            cpu(compile_gain=0.9),
            cpu(compile_gain=None, elementwise_ms=40.0, elementwise_calls=200.0),
            gpu(),
            cpu(compile_gain=1.4, compiled=True),
        ),
    ),
    "epoch-overhead": ((cpu(evaluate_s=2.0), cpu(checkpoint_s=1.5)), (cpu(), cpu(checkpoint_s=0.05))),
    "recompiled": tuple(tuple(cpu(**c) for c in some) for some in RECOMPILED),
    "memory": ((gpu(peak_mib=76_000.0), gpu(peak_mib=9_000.0)), (gpu(), cpu())),
    "driver-memory": tuple(tuple(gpu(**c) for c in some) for some in DRIVER_MEMORY),
    "memory-pages": tuple(map(each, MEMORY_PAGES)),
    "communication": (
        (gpu(ranks=2, collectives=(_COLLECTIVE,)),),
        (
            gpu(collectives=(_COLLECTIVE,)),
            gpu(ranks=2, collectives=(_COLLECTIVE.model_copy(update={"exposed_ms": 0.2}),)),
        ),
    ),
    "small-messages": (
        (gpu(ranks=2, collectives=(_COLLECTIVE.model_copy(update={"calls": 60.0, "mib": 12.0}),)),),
        (gpu(ranks=2, collectives=(_COLLECTIVE,)), gpu(collectives=(_COLLECTIVE,))),
    ),
    "stragglers": (
        (
            gpu(ranks=4, rank_compute_ms=(3.0, 3.1, 5.5, 3.0)),
            cpu(ranks=2, rank_compute_ms=(40.0, 40.0), rank_own_ms=(43.0, 97.0)),
        ),
        (
            cpu(ranks=2, rank_compute_ms=(40.0, 40.0), rank_own_ms=(96.0, 97.0)),
            gpu(ranks=4, rank_compute_ms=(3.0, 3.1, 3.2, 3.0)),
            gpu(rank_compute_ms=(3.0,)),
        ),
    ),
    "data-parallel": ((gpu(optimizations=specs("dp")),), (gpu(), gpu(optimizations=specs("ddp")))),
    "garbage-collection": ((cpu(gc_ms=4.0),), (cpu(),)),
    **{name: (each(fires), each(quiet)) for name, (fires, quiet) in NETS},
    "hot-operator": ((cpu(operators=_HOT), cpu(operators=_SORT), *each(HOT[0])), (cpu(), *each(HOT[1]))),
}
