"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from laptime.errors import UsageError, shorten

WORKLOAD = Annotated[
    str,
    typer.Argument(help="A workload (laptime list workloads), or your own: path/to/train.py:NAME.", metavar="WORKLOAD"),
]
DEVICE = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DATA = Annotated[
    str,
    typer.Option(
        help="auto, official, synthetic, a folder or archive, s3://… or http(s)://…; DIR#bands=8,4,3: bands; "
        "DIR#size=96: height and width; DIR#seed=1: another test of a folder without one; for detection "
        "DIR#boxes=labels.csv: which boxes, DIR#side=800: pixels of the shorter side."
    ),
]
LIMIT_TRAIN = Annotated[int | None, typer.Option(help="Training samples at most.")]
LIMIT_TEST = Annotated[int | None, typer.Option(help="Test samples at most.")]
WEIGHTS = Annotated[
    str, typer.Option(help="Initial weights: none, imagenet, for detection coco, or a file with a state dict.")
]
SEED = Annotated[int, typer.Option(help="Seed of weights and order; a repeat adds its number.")]
TIMEOUT = Annotated[float, typer.Option(help="Seconds after which a process is ended.")]
LAUNCHER = Annotated[str, typer.Option(help="auto (torchrun for several), process, torchrun, kubernetes or inline.")]
TRACKING = Annotated[str | None, typer.Option(help="MLflow's tracking URI; default: MLFLOW_TRACKING_URI, else SQLite.")]
PROFILE = Annotated[
    str | None,
    typer.Option(help="full (torch's profiler, after the counted epochs; the default), simple (a table) or none."),
]
NO_PROFILE = Annotated[bool, typer.Option("--no-profile", help="The same as --profile none.")]
PROFILE_SCHEDULE = Annotated[str, typer.Option(help="Steps of the profiler: wait,warmup,active,repeat.")]
JSON = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, for machines.")]


def typed(context: typer.Context, fields: Iterable[str]) -> set[str]:
    """Which of some options the user has typed, as names of a request's fields."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    named = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    return {{"no_profile": "profile"}.get(name, name) for name in named} & set(fields)


def chosen_profile(profile: str | None, no_profile: bool) -> str:
    """What `--profile` and `--no-profile` come to.

    Raises:
        UsageError: they contradict each other.
    """
    if no_profile and profile not in (None, "none"):
        raise UsageError(f"--no-profile and --profile {shorten(profile)} contradict each other: give one of them.")
    return "none" if no_profile else profile or "full"
