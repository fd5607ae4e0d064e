"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

WORKLOAD = Annotated[str, typer.Argument(help="A workload: see laptime list workloads.", metavar="WORKLOAD")]
DEVICE = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DATA = Annotated[str, typer.Option(help="auto, official, synthetic, a folder or archive, s3://… or http(s)://….")]
LIMIT_TRAIN = Annotated[int | None, typer.Option(help="Training images at most.")]
LIMIT_TEST = Annotated[int | None, typer.Option(help="Test images at most.")]
WEIGHTS = Annotated[str, typer.Option(help="Initial weights: none, imagenet or a file with a state dict.")]
SEED = Annotated[int, typer.Option(help="Seed of weights and order; a repeat adds its number.")]
TIMEOUT = Annotated[float, typer.Option(help="Seconds after which a process is ended.")]
LAUNCHER = Annotated[str, typer.Option(help="auto (torchrun for several ranks), process, torchrun or inline.")]
TRACKING = Annotated[str | None, typer.Option(help="MLflow's tracking URI; default: MLFLOW_TRACKING_URI, else SQLite.")]
JSON = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, for machines.")]
