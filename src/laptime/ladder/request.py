"""What a user asks of a ladder: the options of `laptime optimize` and the parameters of the Prefect flow."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from laptime.catalogue import DEVICES, find_optimization, find_preset, find_workload
from laptime.catalogue.entries import Preset
from laptime.catalogue.own import is_own, resolved, with_findings
from laptime.data.limits import check_drawn, check_limits
from laptime.devices import cuda_devices, require_scoring
from laptime.durations import duration_s
from laptime.errors import UsageError, shorten, without_secrets
from laptime.ladder.ranks import check_ranks, ranks_of
from laptime.launchers import AUTO, NAMES, launcher_of, ranks_there
from laptime.places import Places, expanded, is_text
from laptime.records import LadderRecord, write_json
from laptime.spec import DataSpec, Frozen, ProfileMode, RunSpec, ScheduleText, explain
from laptime.tracking.uri import check_uri, without_credentials
from laptime.variants import BASELINE, OPTIMIZED, TUNED, Variant

_RESULTS = ("ladder.json", "record.json")

Positive = Annotated[int, Field(ge=1)]


class LadderRequest(Frozen):
    """The request; None takes the preset's value.

    Attributes:
        budget: seconds for a search that leads the ladder in place of rungs, as a number or as text (`20m`); None for
            rungs.
    """

    workload: str = "cifar"
    preset: Literal["quick", "full"] = "quick"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    variants: tuple[str, ...] | None = None
    epochs: Positive | None = None
    warmup_epochs: Annotated[int, Field(ge=0)] | None = None
    repeats: Positive | None = None
    limit_train: Positive | None = None
    limit_test: Positive | None = None
    data: str = "auto"
    weights: str = "none"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    ablation: bool | None = None
    profile: ProfileMode = "full"
    profile_schedule: ScheduleText = "1,2,5,1"
    verify_advice: bool = False
    verify_most: Positive | Literal["all"] | None = None
    launcher: str = AUTO
    budget: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tracking_uri: str | None = None
    out: str | None = None
    resume: str | None = None

    @field_validator("variants", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Takes `a,b` as well as a list; an empty text is none."""
        if isinstance(value, str):
            names = tuple(part.strip() for part in value.split(",") if part.strip())
            if value.strip() and not names:
                raise ValueError("names no variant: see laptime list variants")
            return names or None
        return value

    @field_validator("verify_most", mode="before")
    @classmethod
    def _all_or_some(cls, value: Any) -> Any:
        """One sentence where a union's would be one for each of its types."""
        digits = str(value)
        if value not in (None, "all") and not (digits.isascii() and digits.isdigit() and int(digits) > 0):
            raise ValueError("must be all or a number from 1")
        return value

    @field_validator("budget", mode="before")
    @classmethod
    def _as_seconds(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return duration_s(value)
        except ValueError:
            raise ValueError("must be a duration above 0, as 15m, 900s or 1h") from None

    @model_validator(mode="after")
    def _searches_alone(self) -> Self:
        if self.budget is not None and (self.variants or self.ablation or self.verifies):
            raise ValueError(
                "--budget has a search find what to try, so it goes neither with --variants nor with --ablation, "
                "--verify-advice and --verify-most: leave these out."
            )
        return self

    @field_validator("out")
    @classmethod
    def _from_home(cls, value: str | None) -> str | None:
        """A shell leaves the ~ of `--out=~/runs` as it is."""
        return value if value is None else str(expanded(value))

    @field_validator("launcher")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in NAMES:
            raise ValueError(f"must be one of {', '.join(NAMES)}")
        return value

    @property
    def verifies(self) -> bool:
        """Whether remedies are run: either option asks for it."""
        return self.verify_advice or self.verify_most is not None


def make_request(**options: Any) -> LadderRequest:
    """Builds a request; raises UsageError in one sentence where an option makes no sense."""
    try:
        return LadderRequest(**options)
    except ValidationError as error:
        raise UsageError(f"{explain(error, options=True)}.") from error


def settled_preset(request: LadderRequest) -> Preset:
    """The preset with the request's own values in it; raises UsageError for unknown names."""
    preset = find_preset(find_workload(request.workload), request.preset)
    if request.budget is not None:
        preset = replace(preset, rungs=(), ablation=False, parallel=False)
    on_gpu = request.device == "cuda" or (request.device == "auto" and bool(cuda_devices()))
    return replace(
        preset,
        epochs=request.epochs or preset.epochs,
        repeats=request.repeats or preset.repeats,
        warmup_epochs=preset.warmup_epochs if request.warmup_epochs is None else request.warmup_epochs,
        limit_train=request.limit_train or (None if on_gpu else preset.limit_train),
        limit_test=request.limit_test or (None if on_gpu else preset.limit_test),
        ablation=preset.ablation if request.ablation is None else request.ablation,
    )


def fitted_preset(request: LadderRequest, data: DataSpec) -> Preset:
    """The settled preset for this data: limits of the preset's own shrink to what is there, a user's are refused.

    Raises:
        UsageError: the user asked for more images than there are, or for some of which none is drawn.
    """
    check_limits(data, request.limit_train, request.limit_test)
    preset = settled_preset(request)
    limits = ((preset.limit_train, data.train_count), (preset.limit_test, data.test_count))
    train, test = (None if limit is None or limit >= count else limit for limit, count in limits)
    check_drawn(data, train)
    return replace(preset, limit_train=train, limit_test=test)


def make_spec(request: LadderRequest, variant: Variant, data: DataSpec, repeat: int) -> RunSpec:
    """The spec of one process: the check, the model and the profile belong to the first round, times to all."""
    entry, preset = with_findings(find_workload(request.workload), data), fitted_preset(request, data)
    return RunSpec(
        workload=entry.name,
        variant=variant.name,
        optimizations=variant.optimizations,
        device=DEVICES[variant.device],
        ranks=check_ranks(variant, entry, ranks_there(request.launcher)),
        data=data,
        batch_size=entry.batch_size,
        learning_rate=entry.learning_rate,
        epochs=preset.epochs,
        warmup_epochs=preset.warmup_epochs,
        warmup_steps=preset.warmup_steps,
        limit_train=preset.limit_train,
        limit_test=preset.limit_test,
        weights=request.weights,
        seed=request.seed + repeat,
        repeat=repeat,
        timeout_s=request.timeout,
        check=repeat == 0,
        save_model=repeat == 0,
        profile=profile_of(request, preset, variant.name) if repeat == 0 else "none",
        profile_schedule=request.profile_schedule,
    )


def profile_of(request: LadderRequest, preset: Preset, variant: str) -> ProfileMode:
    """What is asked for, or nothing for what a preset leaves out; variants that are named are all profiled."""
    if preset.profiled_rungs or request.variants or variant.partition("-")[2] in (BASELINE, OPTIMIZED, TUNED):
        return request.profile
    return "none"


def check_variant(request: LadderRequest, variant: Variant, data: DataSpec | None = None) -> None:
    """Refuses a variant whose ranks this machine, its batch or the asked launcher can't hold, or of another device.

    Args:
        request: of the ladder.
        variant: to look at.
        data: None before it is known; the batch of a workload of the user's own isn't either then.

    Raises:
        UsageError: it is refused.
    """
    _require_its_device(variant)
    if is_own(request.workload) and request.launcher == "kubernetes":
        raise UsageError(f"--launcher kubernetes is not for {shorten(request.workload)!r}: pods have no such file.")
    entry = find_workload(request.workload)
    if entry.boxes and request.launcher == "kubernetes":
        raise UsageError(f"--launcher kubernetes is not for {entry.name}: its store of files is not sent to pods.")
    if entry.boxes:
        require_scoring()  # else a child would find out, after all data is fetched
    there = ranks_there(request.launcher)
    if data is None and is_own(request.workload):
        ranks = ranks_of(variant, there)
    else:
        ranks = check_ranks(variant, entry if data is None else with_findings(entry, data), there)
    launcher_of(request.launcher, variant.name, ranks)


def _require_its_device(variant: Variant) -> None:
    """Refuses what does nothing on a variant's device, whose time would be told as if it did; raises UsageError."""
    for name in (o.name for o in variant.optimizations):
        meant = find_optimization(name).devices
        if DEVICES[variant.device] not in meant:
            other = "a GPU" if "cuda" in meant else "a CPU"
            raise UsageError(f"{name} is for {other}, and {variant.name} does not run on one: leave it out.")


def check_weights(weights: str, workload: str) -> None:
    """Refuses weights that are neither a known name nor a file, or not ours to load; raises UsageError."""
    if is_own(workload) and weights != "none":
        raise UsageError(f"--weights {shorten(weights)!r} is not for {shorten(workload)}: load them in its model().")
    named = () if is_own(workload) else find_workload(workload).weights
    if weights not in named and weights != "none" and not expanded(weights).is_file():
        raise UsageError(
            f"--weights {shorten(weights)!r} is neither {' nor '.join(named)} nor a file: give one of these."
        )


def kept_request(request: LadderRequest) -> dict[str, Any]:
    """A request as it is kept with its ladder: plain values, whole paths, no credentials."""
    kept = request.model_dump(mode="json", exclude={"resume", "out"})
    if request.tracking_uri:
        kept["tracking_uri"] = without_credentials(check_uri(request.tracking_uri))
    kept["workload"] = resolved(request.workload)
    kept["data"] = without_secrets(request.data).replace("***@", "").replace("?***", "")
    return kept


def tracking_uri(request: LadderRequest, places: Places) -> str:
    """Where runs are published; raises UsageError where none can be."""
    return check_uri(request.tracking_uri or places.mlflow_uri)


def check_out(request: LadderRequest, name: str) -> None:
    """Refuses an output folder that holds results already, or that can be none; raises UsageError."""
    if not request.out:
        return
    folder = Path(request.out).resolve()
    if not is_text(str(folder)):
        raise UsageError(f"--out {shorten(str(folder))!r} is no UTF-8, in which paths are kept: give another.")
    # A run's files in a ladder's folder would be taken for one of its own, and a ladder's around a run's.
    found = next((n for n in (name, *_RESULTS) if (folder / n).exists()), None)
    if found:
        more = ", or go on with it by --resume" if name == found == "ladder.json" else ""
        raise UsageError(f"--out {request.out!r} holds a {found} already: give another folder or remove it{more}.")
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise UsageError(f"--out {shorten(request.out)!r} can be no folder, since {there} is a file: give another.")
    if not os.access(there, os.W_OK):
        raise UsageError(f"--out {shorten(request.out)!r} can't be made: {there} may not be written to; give another.")


def claim_out(folder: Path, record: LadderRecord) -> None:
    """Makes a new ladder's folder its own; raises UsageError where another has begun there since `check_out`."""
    place, mine = folder / _RESULTS[0], folder / f".{_RESULTS[0]}.{os.getpid()}.first"
    try:
        write_json(mine, record)
        place.hardlink_to(mine)
    except FileExistsError as error:
        raise UsageError(f"another ladder has begun in {folder} meanwhile: give another --out.") from error
    except OSError:
        if not mine.is_file():  # the disk is full
            raise
        mine.replace(place)  # the file system has no links
    finally:
        mine.unlink(missing_ok=True)
