"""Lines of a script that follow from options: learning rate, optimizer, what changes the model, wrappers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from laptime.catalogue import LARGE_BATCHES, LINEAR_WARMUP

# Of what stands in a function, behind four blanks.
_WIDTH = 116

Chosen = dict[str, dict[str, Any] | None]
"""Every optimization of the catalogue with underscores: its options, None where the variant does not have it."""


@dataclass(frozen=True)
class Fit:
    """What the baseline of a workload takes on a machine.

    Attributes:
        batch_size: samples of a step.
        workers: loader processes.
        notes: where it is less than the tutorials ask for, why.
    """

    batch_size: int
    workers: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Base:
    """What the baseline of a workload trains with.

    Attributes:
        clipped, schedule: whether the user's own bounds the gradient, and moves the learning rate.
        micro_batch: samples of the user's own that go through the net at once, at most; None for all of a batch.
        weighted: whether the user's own draws its samples by weights.
        judged: what the user's own evaluation gives, `score` or `error`; empty without one.
        lightning, numbered: whether the user's own is a LightningModule; whether its steps read their batch's number.
        by_name: whether the user's own optimizer takes the net, not a list of parameters.
        begun: whether the user's own has its loader workers begin with a function.
        modes: whether the user's own optimizer trains other weights than it judges.
    """

    batch_size: int
    learning_rate: float
    device: str
    own: bool
    boxes: bool = False
    clipped: bool = False
    micro_batch: int | None = None
    schedule: bool = False
    weighted: bool = False
    judged: str = ""
    lightning: bool = False
    numbered: bool = False
    by_name: bool = False
    begun: bool = False
    modes: bool = False
    sgd: Mapping[str, float] = field(default_factory=dict)


def listed(before: str, names: list[str]) -> list[str]:
    """A list in a function: on one line, or where that is too long with a line for each name."""
    whole = f"{before}[{', '.join(names)}]"
    return [whole] if len(whole) <= _WIDTH else [f"{before}[", *(f"    {name}," for name in names), "]"]


def called(function: str, arguments: list[str]) -> list[str]:
    """A call in a function: on one line, or where that is too long with the arguments on a line of their own."""
    inside = ", ".join(arguments)
    whole = f"{function}({inside})"
    return [whole] if len(whole) <= _WIDTH else [f"{function}(", f"    {inside}", ")"]


def batch_size(o: Chosen, base: Base) -> int:
    """The batch of the variant."""
    large = o["large_batch"]
    if o["fixed_shapes"] is not None:
        return int(o["fixed_shapes"]["batch"])
    return base.batch_size if large is None else large["size"] or max(LARGE_BATCHES[base.device], base.batch_size)


def micro_batch(o: Chosen, base: Base) -> int | None:
    """Samples that go through the net at once, at most; None where whole batches do."""
    whole, most = batch_size(o, base), base.micro_batch
    return most if most is not None and most < whole and o["whole_batch"] is None else None


def learning_rate(o: Chosen, base: Base) -> float:
    """The learning rate at the baseline's batch, or the one that was given for the larger one."""
    sgd, large = o["sgd_nesterov"], o["large_batch"]
    if large is not None and large["max_lr"]:
        return float(large["max_lr"])
    return base.learning_rate if sgd is None else float(sgd["lr"])


def rate_lines(o: Chosen, base: Base) -> list[str]:
    """How the peak of the learning rate comes about; nothing where it is the constant."""
    lines, large, cycle = [], o["large_batch"], o["onecycle"] or o["linear_decay"]
    if large is not None and not large["max_lr"]:
        lines.append("# Square-root scaling, the rule for Adam: Malladi et al. 2022 (arXiv:2205.10287).")
        lines.append(f"rate = LEARNING_RATE * math.sqrt(data.batch_size / min({base.batch_size}, len(data)))")
    if cycle is not None and cycle["factor"] != 1:
        lines.append(f"rate = {'rate' if lines else 'LEARNING_RATE'} * {cycle['factor']}")
    return lines


def schedule_lines(o: Chosen, base: Base, rate: str) -> list[str]:
    """What makes the schedule of the learning rate, whose peak is named `rate`; nothing where it is constant."""
    if base.schedule:
        return ["schedule = workload.schedule(optimizer, steps, epochs)"]
    large, linear = o["large_batch"], o["linear_decay"]
    kind = "onecycle" if o["onecycle"] else large["schedule"] if large else "constant"
    if linear or kind == "linear":
        share = f"lambda step: share_of_peak(step, epochs * steps, {linear['warmup'] if linear else LINEAR_WARMUP})"
        return [f"schedule = LambdaLR(optimizer, {share})"]
    if kind == "constant":
        return []
    # A user's own optimizer may have groups at rates of their own.
    peaks = ['peaks = [group["lr"] for group in optimizer.param_groups]'] if base.own else []
    peak = "peaks" if base.own else rate
    return [
        *peaks,
        "# One step more than is taken: the last call of step() only prepares a rate that is not used.",
        f"schedule = OneCycleLR(optimizer, max_lr={peak}, total_steps=epochs * steps + 1, cycle_momentum=False)",
    ]


def optimizer_lines(o: Chosen, base: Base, rate: str) -> list[str]:
    """What makes the optimizer; `rate` is the name of its learning rate."""
    made = _optimizer_made(o, base, rate)
    if base.device == "cpu" and o["fused_optimizer"] and o["channels_last"] and not base.sgd and not o["sgd_nesterov"]:
        made.append("spare_copies(optimizer)  # of gradients, which nobody reads")
    return made


def _optimizer_made(o: Chosen, base: Base, rate: str) -> list[str]:
    decay, sgd = o["decay"], o["sgd_nesterov"]
    before = []
    if o["graph"]:
        before = [f"lr = torch.tensor({rate}, device=DEVICE)  # where a recorded step reads it"]
        rate = "lr"
    kernel = {
        "fused": bool(o["fused_optimizer"] or o["fp16"] or o["graph"]),
        "capturable": bool(o["graph"] and not sgd),
    }
    arguments = [f"{name}=True" for name, wanted in kernel.items() if wanted]
    if base.sgd:
        options = [f"{name}={value}" for name, value in base.sgd.items()]
        return called("optimizer = torch.optim.SGD", ["model.parameters()", f"lr={rate}", *options, *arguments])
    if base.own and not sgd and not decay:
        made = _users_own(base, rate)
        again = [f"optimizer = remade(optimizer, {', '.join(arguments)})  # one kernel for all parameters"]
        modes = ["optimizer.train()  # which trains other weights than it judges"]
        return [made, *(again if arguments else ()), *(modes if base.modes else ())]
    rest = [f"weight_decay={decay['amount']}"] if decay else []
    rest += [f"momentum={sgd['momentum']}", "nesterov=True"] if sgd else []
    kind = "SGD" if sgd else "AdamW" if decay else "Adam"
    parameters = "matrices_and_vectors(model)" if decay and not decay["norms"] else "model.parameters()"
    return [*before, *called(f"optimizer = torch.optim.{kind}", [parameters, f"lr={rate}", *arguments, *rest])]


def _users_own(base: Base, rate: str) -> str:
    factory, given = "workload.optimizer", "model" if base.by_name else "list(model.parameters())"
    if not base.by_name and not base.lightning:
        factory = '(getattr(workload, "optimizer", None) or torch.optim.Adam)'
    return f"optimizer = {factory}({given}, {rate})"


def process_lines(o: Chosen) -> list[str]:
    """What holds for the whole process."""
    lines, threads = [], o["threads"]
    ranks = o["ddp"] is not None or o["flat_reduce"] is not None
    if threads is not None and (threads["count"] or not ranks):
        lines.append("# As many threads as this process may use cores; denormal numbers cost hundreds of cycles each.")
        allowed = 'len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()'
        lines.append(f"torch.set_num_threads({threads['count'] or allowed})")
    if threads is not None:
        lines.append("torch.set_flush_denormal(True)")
    if o["keep_pages"] is not None:
        lines.append("set_malloc_thresholds(_KEPT_BYTES)  # freed memory stays with the process")
    if o["tf32"] is not None:
        lines.append('torch.set_float32_matmul_precision("high")  # products of fp32 tensors with 10 bits of mantissa')
    if o["cudnn_benchmark"] is not None:
        lines.append("torch.backends.cudnn.benchmark = True  # cuDNN times its kernels for each new shape")
    return lines


def model_lines(o: Chosen, timed: bool, base: Base) -> list[str]:
    """What changes the model, in the order of the stages."""
    lines = []
    for name, call in (("fixed_shapes", "fix_shape"), ("folded_norms", "fold_norms"), ("gathered_rois", "gather_rois")):
        if o[name] is not None:
            lines.append(f"{call}(model)")
    resizing = o["progressive_resizing"]
    if o["dead_taps"] is not None or o["products"] is not None:
        seen = "next(data.in_order(2))" if base.own else "[data.image_size]"
        if resizing is not None:
            lines.append(f"grown = sides(data.image_size, given.epochs, {', '.join(map(str, resizing.values()))})")
            seen = "list(dict.fromkeys((data.image_size, *grown)))"
        lines.append(f"sizes = map_sizes(model, {seen})")
    if o["dead_taps"] is not None:
        lines.append("crop_dead_taps(model, sizes)")
    if o["channels_last"] is not None:
        lines.append("model.to(memory_format=torch.channels_last)  # NHWC, which convolution kernels prefer")
        lines += [] if base.boxes else ["spread_means(model)"]
    if o["products"] is not None:
        passing = "data.batch_size" if micro_batch(o, base) is None else "min(data.batch_size, MICRO_BATCH)"
        lines.append(f"use_products(model, sizes{f', {passing}' if timed else ''})")
    return lines


def net_lines(o: Chosen, autocast: str, base: Base) -> list[str]:
    """What wraps the model for the training step alone."""
    lines = []
    compiling = o["compile"] or o["compile_graphed"]
    if compiling is not None:
        if compiling["backend"] == "inductor" and compiling["layout"] != "keep":
            lines.append(f'options = torch._inductor.list_mode_options("{compiling["mode"]}")')
            lines.append('options |= {"layout_optimization": True, "force_layout_optimization": True}')
            lines.append('options |= {"keep_output_stride": False}')
        lines.append(f"net = torch.compile(net, {_compiler(compiling)})")
    if o["ddp"] is not None:
        moving = compiling is not None or micro_batch(o, base) is not None
        whole = "WholeLoss(net)" if base.own and not base.lightning else "net"
        lines += _ddp_lines(o["ddp"], moving, base.device, whole)
    if o["dp"] is not None:
        if autocast:
            lines.append(f"net = UnderAutocast(net, {autocast.removeprefix('torch.autocast(')}")
        lines.append("net = nn.DataParallel(net)  # copies the net to all GPUs in each step")
    return lines


def _ddp_lines(options: dict[str, Any], moving: bool, device: str, wrapped: str) -> list[str]:
    arguments, made = ['device_ids=[int(os.environ["LOCAL_RANK"])]'] if device == "cuda" else [], []
    if options["tuned"]:
        # BatchNorm's statistics are evened out before an evaluation, so no step sends them.
        tuned: dict[str, object] = {"gradient_as_bucket_view": True, "broadcast_buffers": False}
        if options["bucket_mb"]:
            tuned["bucket_cap_mb"] = options["bucket_mb"]
        else:
            made.append("# bucket_cap_mb is torch's own here; a run tries some sizes out")
        tuned |= {} if moving else {"static_graph": True}
        made.append("tuned = {" + ", ".join(f'"{name}": {value}' for name, value in tuned.items()) + "}")
        arguments.append("**tuned")
    made.append(f"net = DistributedDataParallel({', '.join([wrapped, *arguments])})")
    if options["reduce"] == "bf16":
        made.append("net.register_comm_hook(None, bf16_compress_hook)  # gradients travel in 16 bits")
    return made


def _compiler(options: dict[str, Any]) -> str:
    arguments = [f'backend="{options["backend"]}"', f"dynamic={options['dynamic']}"]
    if options["backend"] != "inductor":
        return ", ".join(arguments)
    if options["layout"] == "keep":
        return ", ".join([*arguments, f'mode="{options["mode"]}"'])
    return ", ".join([*arguments, "options=options"])
