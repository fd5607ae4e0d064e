"""What an entry of the catalogue says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from laptime.spec import Option

Class = Literal["exact", "numeric", "statistical", "model"]
Stage = Literal[
    "process",
    "data",
    "schedule",
    "loss",
    "model",
    "layout",
    "precision",
    "kernels",
    "compile",
    "parallel",
    "optimizer",
    "step",
]
# The machine's sides that an optimization may be for.
ANYWHERE = ("cpu", "cuda")

# What options may hold. None is a number of that size, and torch takes no count that does not fit 64 bits.
_MOST = 10**15
Count = Annotated[int, Field(ge=1, lt=_MOST)]
CountOrZero = Annotated[int, Field(ge=0, lt=_MOST)]
CountOrAny = Annotated[int, Field(ge=-1, lt=_MOST)]
Positive = Annotated[float, Field(gt=0, lt=_MOST)]
PositiveOrZero = Annotated[float, Field(ge=0, lt=_MOST)]
Between = Annotated[float, Field(gt=0, lt=1)]
FromZero = Annotated[float, Field(ge=0, lt=1)]
ToOne = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class OptionEntry:
    """One option of an optimization.

    Attributes:
        kind: what it may hold, as an annotation that pydantic reads; None where any text will do, or true and false.
        tried: values among which a search for the fastest variant looks, from one to the next; none for no search.
    """

    name: str
    default: Option
    help: str
    kind: Any = None
    tried: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shift:
    """An option's value that changes the class of its optimization.

    Attributes:
        klass: the class with this value.
        checked_as: the value in the one-step comparison, where this one is not comparable; None to leave it as it is.
    """

    option: str
    value: Option
    klass: Class
    checked_as: Option | None = None


@dataclass(frozen=True)
class OptimizationEntry:
    """One optimization.

    Attributes:
        klass: `exact`, `numeric`, `statistical` or `model` (see docs/design.md).
        probe: key in `ProbeRecord.gains` that must show a gain on this machine before it enters, if it has one.
        probe_with: an optimization behind it that chooses by timing; beside that one a gain has to show. Where it shows
            there alone, the two enter together.
        excludes: optimizations whose place it takes, and they its: a variant holds only the one that was added last.
        only_shown: a rung that is kept for comparison and never joins the optimized variant.
        earned: on these devices it joins the optimized variant only in a ladder that measured it, never by the
            variant's name or untried.
        shifts: values of options that make the class a weaker one.
        alone: holds the place of the whole loop, so a variant that has it is the baseline and this, and nothing else.
        extra: the optional extra that it needs, called as the package that it brings.
        for_quality: it is there for what is learnt, and makes no epoch faster.
        workload: the only one that it is for, in whose presets its rung is named; empty for all.
        probe_limit_s: seconds after which its probe is ended. Such a probe runs in a process of its own, only for a
            ladder that tries the rung, and its result is kept; 0 for one that runs within the few seconds before all.
    """

    name: str
    klass: Class
    stage: Stage
    title: str
    explanation: str
    devices: tuple[str, ...] = ANYWHERE
    options: tuple[OptionEntry, ...] = ()
    probe: str | None = None
    probe_with: str = ""
    excludes: tuple[str, ...] = ()
    only_shown: bool = False
    earned: tuple[str, ...] = ()
    shifts: tuple[Shift, ...] = ()
    probe_limit_s: float = 0.0
    alone: bool = False
    extra: str | None = None
    workload: str = ""
    for_quality: bool = False


@dataclass(frozen=True)
class Preset:
    """How much of a ladder is run.

    Attributes:
        rungs: the optimizations that get a rung of their own; those before one in the device's ladder enter with it.
            None for all; none (`()`) for the optimized variant alone.
        warmup_steps: steps of a warm-up epoch at most; None for the whole epoch.
        parallel: whether the variants on several ranks follow the optimized one, where the machine has the devices.
        limit_train, limit_test: images at most, on a CPU; a GPU takes all of them in less time.
        ablation: whether each part of the optimized variant is left out in turn, unless the user says.
        profiled_rungs: whether each variant of the ladder gets a profile; else only the baseline and the optimized one,
            which is for steps of seconds: there a profile takes longer than a variant's counted epochs.
    """

    name: str
    epochs: int
    repeats: int
    rungs: tuple[str, ...] | None = None
    warmup_epochs: int = 1
    warmup_steps: int | None = None
    limit_train: int | None = None
    limit_test: int | None = None
    parallel: bool = False
    ablation: bool = False
    profiled_rungs: bool = True


@dataclass(frozen=True)
class WorkloadEntry:
    """One workload.

    Attributes:
        batch_size, learning_rate, workers, page_locked: those of the tutorials' loop; the last two are its loader's
            processes, and whether it asks for page-locked batches, which makes a difference on a GPU alone.
        sgd: options of SGD where the tutorials' loop trains with that; empty where it trains with Adam.
        quality: the quality metric; `test_<quality>` stands in the epochs.
        floor_over_chance: quality is judged where the baseline comes this share of the way from chance to perfect.
        image_size: height and width that images of mixed sizes are brought to.
        train_count, test_count: images of the official data, for estimates and for the stand-in.
        probe_batch: what probes take in the place of a batch that would take them minutes on a CPU.
        boxes: whether its data are images with boxes, as files (see `laptime.data.boxes.box`).
        refused: optimizations that are not for it, each with the reason.
        weights: names of initial weights beside files.
        batch_on_several: of all GPUs together in the tutorials' training on several; 0 for what the ladder kept.
    """

    name: str
    title: str
    explanation: str
    batch_size: int
    learning_rate: float
    quality: str
    floor_over_chance: float
    image_size: int
    train_count: int
    test_count: int
    presets: tuple[Preset, ...] = field(default_factory=tuple)
    workers: int = 0
    page_locked: bool = False
    sgd: Mapping[str, float] = field(default_factory=dict)
    probe_batch: int | None = None
    boxes: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    weights: tuple[str, ...] = ("none", "imagenet")
    batch_on_several: int = 0

    def titled(self, called: str) -> str:
        """The title, where the user's own data have a name that of the net alone with it."""
        return f"{self.title.rpartition(', ')[2]} on {called}" if called else self.title
