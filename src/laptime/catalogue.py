"""Names, classes, needs and options of workloads, optimizations and rungs; without torch, so that listing is quick."""

from __future__ import annotations

from laptime.entries import Class, OptimizationEntry, OptionEntry, Preset, Stage, WorkloadEntry
from laptime.errors import UsageError, shorten, unknown
from laptime.spec import OptimizationSpec, Option

# The order in which optimizations are applied, with the reason of each place.
STAGES: tuple[tuple[Stage, str], ...] = (
    ("process", "threads and number modes hold for everything that follows"),
    ("data", "where the samples are decides what a batch is"),
    ("schedule", "batch size and learning rate are settled before the net is cut to them"),
    ("model", "modules are replaced while their parameters are plain fp32 and no optimizer holds them"),
    ("layout", "memory format is a property of the parameters that the model stage left"),
    ("precision", "autocast wraps the forward of the finished model"),
    ("kernels", "chosen by timing, so layout, precision and batch must be settled"),
    ("optimizer", "it takes the final parameters"),
    ("step", "the step closes over all of the above"),
)


WORKLOADS: tuple[WorkloadEntry, ...] = (
    WorkloadEntry(
        name="cifar",
        title="CIFAR-10, ResNet-18",
        explanation="torchvision's ResNet-18 with one output a class, cross-entropy, accuracy; 32x32 images.",
        batch_size=32,
        learning_rate=1e-3,
        quality="accuracy",
        floor_over_chance=0.5,
        image_size=32,
        train_count=50_000,
        test_count=10_000,
        presets=(
            Preset(
                "quick",
                epochs=2,
                repeats=3,
                rungs=("dead-taps", "products"),
                warmup_steps=5,
                limit_train=2000,
                limit_test=1000,
            ),
            Preset("full", epochs=4, repeats=3, warmup_steps=50),
        ),
    ),
)

OPTIMIZATIONS: tuple[OptimizationEntry, ...] = (
    OptimizationEntry(
        "threads",
        "exact",
        "process",
        "threads and number modes",
        "Sets the threads to the cores that affinity and quota allow, and flushes denormal numbers to zero.",
        devices=("cpu",),
        options=(OptionEntry("count", 0, "threads; 0 for the cores that this process may use"),),
    ),
    OptimizationEntry(
        "keep-pages",
        "exact",
        "process",
        "kept memory pages",
        "Freed memory stays with the process: large tensors are not mapped anew, page by page, in each step.",
        devices=("cpu",),
    ),
    OptimizationEntry(
        "resident",
        "exact",
        "data",
        "resident data",
        "Keeps all images as one uint8 tensor and takes whole batches out of it, instead of item by item.",
    ),
    OptimizationEntry(
        "no-reads",
        "exact",
        "step",
        "no reads in the step",
        "Loss and correct counts stay tensors until the epoch ends, instead of .item() in each step.",
    ),
    OptimizationEntry(
        "channels-last",
        "exact",
        "layout",
        "channels_last",
        "Weights and images in NHWC memory format, which convolution kernels prefer.",
    ),
    OptimizationEntry(
        "fused-optimizer",
        "exact",
        "optimizer",
        "fused optimizer",
        "One kernel updates all parameters, instead of several operations on each.",
    ),
    OptimizationEntry(
        "dead-taps",
        "exact",
        "model",
        "dead taps",
        "Crops kernel taps that only ever meet padding: their gradient is zero, their cost is not.",
    ),
    OptimizationEntry(
        "products",
        "exact",
        "kernels",
        "small maps as matrix products",
        "Convolutions on maps of 8x8 and less become dense matrix products, layer by layer where that is faster.",
        options=(
            OptionEntry("largest", 8, "largest side of a map that is computed as a product"),
            OptionEntry("layers", "probe", "probe (each layer is timed both ways), all, or names joined by /"),
        ),
    ),
    OptimizationEntry(
        "bf16",
        "numeric",
        "precision",
        "bfloat16",
        "Convolutions and matrix products in bfloat16 under autocast; weights stay fp32.",
        probe="bf16",
    ),
    OptimizationEntry(
        "large-batch",
        "statistical",
        "schedule",
        "larger batch, scaled learning rate, OneCycle",
        "Fewer, larger steps; the learning rate grows with the root of the batch and follows OneCycle.",
        options=(
            OptionEntry("size", 512, "samples a step"),
            OptionEntry("max_lr", 0.0, "peak learning rate; 0 for the baseline's times sqrt(size / baseline's batch)"),
            OptionEntry("schedule", "onecycle", "onecycle or constant"),
        ),
    ),
)

# The rungs of a device in the order in which they are tried: exact, then numeric, then statistical, so that the last
# one before the first statistical rung is the fastest at the baseline's own batch and trajectory. keep-pages comes
# last: only large batches make tensors that the allocator hands back.
LADDERS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "resident",
        "no-reads",
        "threads",
        "channels-last",
        "fused-optimizer",
        "dead-taps",
        "bf16",
        "products",
        "large-batch",
        "keep-pages",
    ),
}

# Left out of the optimized variant in turn, for the headline without them.
WITHOUT: dict[str, tuple[str, ...]] = {"cpu": ("dead-taps",)}


def find_workload(name: str) -> WorkloadEntry:
    """Finds a workload by name.

    Raises:
        UsageError: there is none, with the nearest names.
    """
    for entry in WORKLOADS:
        if entry.name == name:
            return entry
    raise unknown("workload", name, [w.name for w in WORKLOADS])


def find_preset(workload: WorkloadEntry, name: str) -> Preset:
    """Finds a workload's preset; raises UsageError with the nearest names."""
    for preset in workload.presets:
        if preset.name == name:
            return preset
    raise unknown("preset", name, [p.name for p in workload.presets])


def find_optimization(name: str) -> OptimizationEntry:
    """Finds an optimization; raises UsageError with the nearest names."""
    for entry in OPTIMIZATIONS:
        if entry.name == name:
            return entry
    raise unknown("optimization", name, [o.name for o in OPTIMIZATIONS])


def parse_optimization(text: str) -> OptimizationSpec:
    """Parses `name(:option=value)*`; raises UsageError for what does not exist or has another type."""
    name, *given = text.split(":")
    entry = find_optimization(name)
    options: dict[str, Option] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{shorten(pair)!r} in {shorten(text)!r} is no option: write {name}:option=value.")
        options[key] = parse_option(entry, key, value)
    return OptimizationSpec(name=name, options=options)


def parse_option(entry: OptimizationEntry, key: str, value: str) -> Option:
    """Reads an option's value with the type of its default."""
    default = next((o.default for o in entry.options if o.name == key), None)
    if default is None:
        if not entry.options:
            raise UsageError(
                f"optimization {entry.name!r} has no options, so {shorten(key)!r} can't be set: leave it out."
            )
        raise unknown(f"option of {entry.name}", key, [o.name for o in entry.options])
    try:
        return _convert(default, value)
    except ValueError:
        kind = type(default).__name__
        raise UsageError(
            f"option {key!r} of {entry.name!r} takes a value of type {kind}, not {shorten(value)!r}: "
            "see laptime list optimizations."
        ) from None


def _convert(default: Option, value: str) -> Option:
    if isinstance(default, bool):
        if value.lower() not in ("true", "false"):
            raise ValueError(value)
        return value.lower() == "true"
    return type(default)(value)


def options_of(spec: OptimizationSpec) -> dict[str, Option]:
    """All options of an optimization, defaults filled in."""
    entry = find_optimization(spec.name)
    return {o.name: o.default for o in entry.options} | spec.options


def in_stage_order(optimizations: tuple[OptimizationSpec, ...]) -> tuple[OptimizationSpec, ...]:
    """Sorts by stage, then by place in the catalogue."""
    stages = [s for s, _ in STAGES]
    names = [o.name for o in OPTIMIZATIONS]
    return tuple(
        sorted(optimizations, key=lambda o: (stages.index(find_optimization(o.name).stage), names.index(o.name)))
    )


def classes_of(optimizations: tuple[OptimizationSpec, ...]) -> tuple[Class, ...]:
    """The classes of a list of optimizations, in the order exact, numeric, statistical, model."""
    found = {find_optimization(o.name).klass for o in optimizations}
    order: tuple[Class, ...] = ("exact", "numeric", "statistical", "model")
    return tuple(c for c in order if c in found)
