"""What to run, as data: the spec goes into a worker as JSON and stands in every record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from laptime.errors import LaptimeError, UsageError, shorten
from laptime.parsing import other_schema, parse_json

SPEC_SCHEMA: Literal["laptime.spec/1"] = "laptime.spec/1"

Option = bool | int | float | str


class Frozen(BaseModel):
    """Base of what crosses a boundary and must not hold unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OptimizationSpec(Frozen):
    """One optimization with the options that differ from its defaults."""

    name: str
    options: dict[str, Option] = Field(default_factory=dict)

    def text(self) -> str:
        """Writes it as in a variant's name: `name:option=value:option=value`."""
        return ":".join([self.name, *(f"{k}={_plain(v)}" for k, v in sorted(self.options.items()))])


DataKind = Literal["official", "mirror", "folder", "synthetic", "own"]


class OwnSpec(Frozen):
    """What a look into a user's file found (see `laptime.preflight.inspecting`); the file itself is the data's `path`.

    Attributes:
        attribute, name: the file's name for the workload, and the workload's own.
        quality: `score` or `error` (less is better) of an evaluation of its own, else `accuracy` or `loss` of its loss.
        refused: optimizations that are not for it, each with the reason.
        file, beside: SHA-256 of the file and of the user's modules that it imports and settings that it reads (paths
            from its folder, or whole).
        lightning, numbered, schedule: it is a LightningModule; whose steps read their batch's number; has a schedule.
        clip_norm, micro_batch: the largest norm of its gradient, and samples that go through its net at once, if any.
        by_name, weighted, begun: its optimizer(model, lr) takes the net; it draws by weights; has a `worker_init_fn`.
        optimizer, least_limit: its optimizer has `modes`, or sets `hooks`; samples that keep a weight above 0.
    """

    attribute: str
    name: str
    batch_size: Annotated[int, Field(ge=1)]
    learning_rate: Annotated[float, Field(gt=0)]
    quality: Literal["accuracy", "loss", "score", "error"]
    refused: dict[str, str] = Field(default_factory=dict)
    file: str = ""
    lightning: bool = False
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    schedule: bool = False
    numbered: bool = False
    by_name: bool = False
    weighted: bool = False
    begun: bool = False
    optimizer: tuple[Literal["modes", "hooks"], ...] = ()
    least_limit: Annotated[int, Field(ge=1)] = 1
    beside: tuple[str, ...] = ()


class DataSpec(Frozen):
    """Data that stands ready in a local store.

    Attributes:
        asked: what the user asked for (`auto`, `official`, `synthetic`, a folder or a URL).
        kind: which source it came from.
        digest: SHA-256 over the stored tensors, the key of the store.
        path: the folder of the stored arrays (see `laptime.data.store`); of a user's own workload its file.
        classes: class names, in the order of the labels.
        train_count, test_count: samples of either part.
        commonest: share of the test samples that the largest class has; 0 where unknown.
        notice: what the user must know about this data, a line for each thing; empty when nothing.
        own: of a user's own workload what was found in its file.
    """

    asked: str
    kind: DataKind
    digest: str
    path: str
    classes: tuple[str, ...]
    train_count: int
    test_count: int
    commonest: Annotated[float, Field(ge=0, le=1)] = 0.0
    notice: str = ""
    own: OwnSpec | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user must know, one thing at a time."""
        return tuple(self.notice.splitlines())

    @property
    def weighted(self) -> bool:
        """Whether training samples are drawn by weights, so that training and test see other shares of the classes."""
        return self.own is not None and self.own.weighted


ProfileMode = Literal["full", "simple", "none"]

_MOST_PROFILED_STEPS = 200


@dataclass(frozen=True)
class ProfileSchedule:
    """Steps of the profiled segment, as torch's profiler takes them: `repeat` times `wait`, `warmup`, `active`."""

    wait: int
    warmup: int
    active: int
    repeat: int

    @property
    def steps(self) -> int:
        """Steps in all."""
        return (self.wait + self.warmup + self.active) * self.repeat

    def __str__(self) -> str:
        """As it is given: `1,2,5,1`."""
        return f"{self.wait},{self.warmup},{self.active},{self.repeat}"


def read_schedule(text: str) -> ProfileSchedule:
    """Reads `wait,warmup,active,repeat`; raises ValueError for what is none or goes on for too long."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 4 and all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        found = ProfileSchedule(*map(int, parts))
        if found.active and found.repeat and found.steps <= _MOST_PROFILED_STEPS:
            return found
    raise ValueError(
        "give wait,warmup,active,repeat, four integers of which active and repeat are at least 1, with at most "
        f"{_MOST_PROFILED_STEPS} steps in all, such as 1,2,5,1"
    )


def _normal(text: str) -> str:
    return str(read_schedule(text))


ScheduleText = Annotated[str, AfterValidator(_normal)]


class RunSpec(Frozen):
    """One process of one variant.

    Attributes:
        profile: what follows the counted epochs: `full` records steps with torch's profiler, `simple` leaves a table
            of the marks alone, `none` nothing.
        profile_schedule: `wait,warmup,active,repeat`, steps of the profiler's schedule.
        ceilings: rates of this machine that were measured before, by the names in `records.Ceilings`; where there are
            none, a run that is profiled measures them itself.
        checkpoints: a folder or an s3:// prefix of this run's own: its state is written there after each counted epoch,
            and a worker that is started again goes on from there. None for none.
        checkpoint_share: seconds of writing checkpoints for each second of training at most: one that would cost more
            is left out, as where epochs are short and the model is large; after the last epoch a twentieth of that.
            None for a checkpoint after every epoch.
    """

    schema_: Literal["laptime.spec/1"] = Field(default=SPEC_SCHEMA, alias="schema")
    workload: str
    variant: str
    optimizations: tuple[OptimizationSpec, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    ranks: Annotated[int, Field(ge=1)] = 1
    data: DataSpec
    batch_size: Annotated[int, Field(ge=1)] = 32
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    epochs: Annotated[int, Field(ge=1)] = 1
    warmup_epochs: Annotated[int, Field(ge=0)] = 1
    warmup_steps: Annotated[int, Field(ge=1)] | None = None
    limit_train: Annotated[int, Field(ge=1)] | None = None
    limit_test: Annotated[int, Field(ge=1)] | None = None
    weights: str = "none"
    seed: Annotated[int, Field(gt=-(10**18), lt=10**18)] = 0  # torch takes more, and a file of JSON no longer ones
    repeat: Annotated[int, Field(ge=0)] = 0
    timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    check: bool = True
    save_model: bool = False
    profile: ProfileMode = "none"
    profile_schedule: ScheduleText = "1,2,5,1"
    ceilings: dict[str, float] = Field(default_factory=dict)
    checkpoints: str | None = None
    checkpoint_share: Annotated[float, Field(gt=0)] | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def digest(self) -> str:
        """SHA-256 of what is trained: equal for the repeats of a variant, whatever the seed and the machine's paths."""
        fields = self.model_dump(
            mode="json",
            by_alias=True,
            exclude={
                "seed": True,
                "repeat": True,
                "timeout_s": True,
                "save_model": True,
                "profile": True,
                "profile_schedule": True,
                "ceilings": True,
                "checkpoints": True,
                "checkpoint_share": True,
                "data": {"path", "asked", "own", "commonest"},
            },
        )
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    @property
    def begins_own(self) -> bool:
        """Whether this is a first process of the baseline of a user's own training, beside which others are judged."""
        return self.check and self.data.own is not None and not self.optimizations and not self.repeat

    def option(self, name: str) -> dict[str, Option] | None:
        """The options of an optimization of this spec, None when it has none of that name."""
        return next((o.options for o in self.optimizations if o.name == name), None)


@dataclass(frozen=True)
class Versioned:
    """A kind of file with a schema: its name in messages, the schema that is read, the remedy for another one.

    Attributes:
        later: schemas that are read as well, of files that hold something an older version would misunderstand.
    """

    what: str
    schema: str
    remedy: str
    error: type[LaptimeError]
    later: tuple[str, ...] = ()


SPEC_FILE = Versioned(
    "spec", SPEC_SCHEMA, "write it again with this version, or run it with the version that wrote it", UsageError
)

M = TypeVar("M", bound=BaseModel)


def read_versioned(path: Path, model: type[M], kind: Versioned) -> M:
    """Reads a JSON file with a schema.

    Raises:
        LaptimeError: of the kind's class; it can't be read, is of another version or does not validate.
    """
    try:
        fields = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise kind.error(f"the {kind.what} {path} can't be read ({error}): {kind.remedy}.") from error
    found = fields.get("schema") if isinstance(fields, dict) else None
    if found not in (kind.schema, *kind.later):
        raise kind.error(f"the {kind.what} {path} {other_schema(found, kind.schema, kind.remedy)}")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise kind.error(f"the {kind.what} {path} is not valid: {explain(error)}.") from error


def read_spec(path: Path) -> RunSpec:
    """Reads a spec; raises UsageError, see `read_versioned`."""
    return read_versioned(path, RunSpec, SPEC_FILE)


def explain(error: ValidationError, options: bool = False) -> str:
    """Writes pydantic's findings as one sentence: place, complaint and offending value.

    Args:
        error: the findings.
        options: whether the fields are options of a command, and named as they are typed.
    """
    found = error.errors(include_url=False, include_context=False)
    return "; ".join(_finding(e["loc"], e["msg"], e["input"], options) for e in found[:3])


def _finding(place: tuple[int | str, ...], message: str, value: Any, options: bool) -> str:
    where = option_name(str(place[0])) if options and place else shorten(".".join(map(str, place))) or "it"
    said = message.removeprefix("Value error, ")  # pydantic's words before a validator's own
    return f"{where}: {said[0].lower()}{said[1:]} (given {shorten(str(value), 60)!r})"


def option_name(field: str) -> str:
    """How a request's field is typed: `--limit-train`, and WORKLOAD, which is no option."""
    return "WORKLOAD" if field == "workload" else f"--{field.replace('_', '-')}"


def _plain(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
