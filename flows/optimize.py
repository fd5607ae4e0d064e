"""The flow `optimize`: fetch data, plan the ladder, run each variant, compare, publish.

python -m flows.optimize --preset quick        without any server
prefect deployment run optimize/cifar --watch  through the worker of `laptime up`
"""

from __future__ import annotations

if __name__ == "__main__":  # first of all: Prefect reads its settings when it is imported
    from flows.embedded import use_embedded_server

    use_embedded_server()

from contextlib import suppress
from typing import Annotated, Any, Literal

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import TerminationSignal
from prefect.runtime import deployment
from prefect.states import Completed, Failed
from pydantic import Field

from flows.artifacts import Progress, publish_artifacts
from flows.deployed import end_with_worker
from flows.leaving import leave_soon
from laptime.catalogue import WORKLOADS, find_workload
from laptime.errors import LaptimeError, TrackingError, UnreachableError, in_words
from laptime.host.starts import warm_starts
from laptime.ladder import Ladder, LadderRequest, Turn, make_request, open_ladder, prepare_data, resume_ladder
from laptime.launchers.base import Hooks
from laptime.places import Places, find_places
from laptime.spec import DataSpec
from laptime.tracking.reach import let_go
from laptime.tune import led
from laptime.variants import resolve

# The names reach the form as examples, since a file of the user's own is a workload too. Whether they are known is
# looked at in the flow: what a validator refuses, Prefect logs with all parameters and a traceback.
Workload = Annotated[str, Field(json_schema_extra={"examples": [entry.name for entry in WORKLOADS]})]
Positive = Annotated[int, Field(ge=1)]


def _worth_retrying(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """Only what time can heal: a source or a server that did not answer."""
    try:
        state.result()
    except (UnreachableError, TrackingError):
        return True
    except Exception:  # whatever else a task raised will be raised again
        return False
    return False


@task(
    name="fetch data",
    task_run_name="fetch data",
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=_worth_retrying,
    cache_policy=NO_CACHE,
)
def fetch_data(request: LadderRequest, places: Places) -> DataSpec:
    """Makes the data stand ready in the local store."""
    logger = get_run_logger()
    data = prepare_data(request, places, logger.info)
    for notice in data.notices:
        logger.warning(notice)
    return data


@task(name="run variant", retries=0, cache_policy=NO_CACHE)
def run_variant(ladder: Ladder, turn: Turn) -> Any:
    """Runs one process of one variant to its record. Never retried, never submitted: a timed run stands alone.

    It stays in the main thread, where a cancellation reaches it.
    """
    logger = get_run_logger()
    record = ladder.run(turn, Hooks(on_line=logger.info, say=logger.warning))
    if record.status != "done":
        return Failed(message=f"{record.status}: {record.error}")
    return f"{len(record.kept)} counted epochs"


@task(
    name="publish",
    task_run_name="publish",
    retries=2,
    retry_delay_seconds=[2, 10],
    retry_condition_fn=_worth_retrying,
    cache_policy=NO_CACHE,
)
def publish(ladder: Ladder) -> None:
    """Copies the journal to MLflow; what arrived before a failure is not sent again."""
    ladder.publish(get_run_logger().info)


@flow(name="optimize", flow_run_name="{workload} {preset} on {device}", validate_parameters=True)
def optimize(
    *,
    workload: Workload = "cifar",
    preset: Literal["quick", "full"] = "quick",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    variants: str | list[str] | None = None,
    epochs: Positive | None = None,
    warmup_epochs: Annotated[int, Field(ge=0)] | None = None,
    repeats: Positive | None = None,
    limit_train: Positive | None = None,
    limit_test: Positive | None = None,
    data: str = "auto",
    weights: str = "none",
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0,
    timeout: Annotated[float, Field(gt=0)] = 3600.0,
    ablation: bool | None = None,
    profile: Literal["full", "simple", "none"] = "full",
    profile_schedule: str = "1,2,5,1",
    verify_advice: bool = False,
    verify_most: Positive | Literal["all"] | None = None,
    launcher: Literal["auto", "process", "torchrun", "kubernetes", "inline"] = "auto",
    budget: Annotated[float, Field(gt=0)] | str | None = None,
    tracking_uri: str | None = None,
    out: str | None = None,
    resume: str | None = None,
) -> Any:
    """Trains a ladder of variants one after another, compares them with the baseline and publishes the runs.

    Args:
        workload: What is trained; laptime list workloads shows the names; path/to/train.py:workload is one of your own.
        preset: quick takes a few variants and little data, full takes all of both.
        device: cpu, cuda, or auto for the fastest that is there.
        variants: Names separated by commas, or a list of them, instead of the ladder; laptime list variants shows them.
        epochs: Counted epochs of each process; empty for the preset's, and up to 12 where they are short.
        warmup_epochs: Epochs before them that do not count; empty for the preset's.
        repeats: Rounds, each of which takes every variant once; empty for the preset's.
        limit_train: Training images at most; empty for the preset's.
        limit_test: Test images at most; empty for the preset's.
        data: auto, official, synthetic, a folder or archive, s3://… or http(s)://….
        weights: Initial weights - none, imagenet, for detection coco, or a file with a state dict.
        seed: Seed of weights and order; each repeat adds its number.
        timeout: Seconds after which a process is ended and counted as failed.
        ablation: Whether each part of the optimized variant is left out in turn; empty for the preset's.
        profile: What follows the counted epochs of a variant's first process - full (torch's profiler), simple or none.
        profile_schedule: Steps of the profiler, as wait,warmup,active,repeat.
        verify_advice: Whether the first three remedies of the baseline and of the fastest variant run beside it.
        verify_most: Remedies of every variant to run so, a number for each or all; empty for what verify_advice says.
        launcher: How processes are started - auto (torchrun for several), process, torchrun, kubernetes or inline.
        budget: Time for a search in place of the ladder's rungs, as 20m or in seconds; empty for none.
        tracking_uri: MLflow's tracking URI; empty for MLFLOW_TRACKING_URI, else the embedded store.
        out: Folder for the ladder's files; empty for one under LAPTIME_HOME.
        resume: Folder, id or MLflow run id of a ladder that was broken off, to go on with it.

    Returns:
        The ladder's folder as text, in which comparison.json and advice.json stand.
    """
    given = dict(locals())
    end_with_worker()
    try:
        ladder = run_all(_known(make_request(**given)))
    except (LaptimeError, OSError) as error:
        # A state instead of an exception: the sentence is shown, and no traceback around it.
        return Failed(message=in_words(error) if isinstance(error, OSError) else str(error))
    except TerminationSignal:
        leave_soon()
        raise
    if ladder.exit_code():
        return Failed(message=ladder.complaint(), data=None)
    return done(ladder)


def done(ladder: Ladder) -> State[str]:
    """The state of a flow run whose ladder is done: a sentence, and as its result the folder, for what comes after."""
    count = len(ladder.runs)
    what = "1 process" if count == 1 else f"{count} processes"
    return Completed(message=f"{what} compared in {ladder.folder}", data=str(ladder.folder))


@warm_starts()
def run_all(request: LadderRequest) -> Ladder:
    """Runs, compares and publishes a ladder; the current flow run gets its logs and artifacts."""
    places = find_places()
    ladder = _opened(request, places)
    if ladder.record.status == "done":
        get_run_logger().info(f"The ladder {ladder.record.id} is done, nothing was run.")
        return _shown(ladder, places)
    deployed = deployment.id is not None  # asks the server, which an interruption may have ended
    try:
        run_turns(ladder)
        ladder.compare()
        ladder.close("failed" if ladder.exit_code() else "done")
    except BaseException as error:
        ladder.close("failed" if isinstance(error, (LaptimeError, OSError)) else "interrupted")
        if deployed:
            let_go(error)
            # Now, since the journal may go with its container; no task, which a cancelled flow can't start.
            with suppress(LaptimeError, OSError):
                ladder.publish()
        raise
    return _shown(ladder, places)


def _known(request: LadderRequest) -> LadderRequest:
    """The request, if its names are known; raises UsageError with the nearest ones."""
    find_workload(request.workload)
    for name in request.variants or ():
        resolve(name, workload=request.workload)
    return request


def _opened(request: LadderRequest, places: Places) -> Ladder:
    say = get_run_logger().info
    if request.resume:
        return led(resume_ladder(request, places, say))
    return led(open_ladder(request, fetch_data(request, places), places, say))


def _shown(ladder: Ladder, places: Places) -> Ladder:
    """Publishes a ladder that has its comparison."""
    FINISHED.append(ladder)
    try:
        publish(ladder)
    finally:
        publish_artifacts(ladder, places)
    return ladder


def run_turns(ladder: Ladder) -> None:
    """Runs the variants in turn; one that fails is a failed task run, and the ladder goes on."""
    progress = Progress()
    for turn in ladder.turns():
        name = str(turn)
        get_run_logger().info(f"{turn.number} of {max(turn.number, turn.total)}: {name}")
        state = run_variant.with_options(task_run_name=name)(ladder, turn, return_state=True)
        if ladder.finished < turn.number:
            state.result()  # no record, so something is wrong with the ladder itself: raises
        progress.show(turn.number, turn.total)


# What this process has run, for the main job's last words.
FINISHED: list[Ladder] = []


if __name__ == "__main__":
    from flows.command import run

    raise SystemExit(run(optimize, FINISHED))
