"""`laptime up`: the whole stack on this machine, on loopback and the embedded stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.options import JSON
from laptime.cli.words import command

if TYPE_CHECKING:
    from laptime.cli.servers import Stack

POOL = "laptime"
_USUAL_PORT = 4200


def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect.")] = _USUAL_PORT,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of MLflow.")] = 5000,
    as_json: JSON = False,
) -> None:
    """Starts Prefect with a worker and the deployments, and MLflow; Ctrl-C ends all of it."""
    from laptime.cli.servers import HOST, environment, mlflow_arguments, require_free, stack
    from laptime.places import find_places
    from laptime.tracking.uri import check_uri, is_http, masked

    checkout = find_checkout(Path.cwd())
    places = find_places()
    remote = is_http(check_uri(places.mlflow_uri))
    require_free(port, "--port")
    if not remote:
        require_free(mlflow_port, "--mlflow-port")
    prefect = f"http://{HOST}:{port}"
    mlflow = masked(places.mlflow_uri) if remote else f"http://{HOST}:{mlflow_port}"
    variables = environment(places, PREFECT_API_URL=f"{prefect}/api", LAPTIME_MLFLOW_UI=mlflow)
    places.prefect.mkdir(parents=True, exist_ok=True)
    with stack(places, variables) as servers:
        typer.echo("Starting Prefect and MLflow (half a minute) …", err=True)
        api = servers.start("prefect", "prefect", ["server", "start", "--host", HOST, "--port", str(port)])
        if not remote:
            runs = servers.start("mlflow", "mlflow", mlflow_arguments(places, mlflow_port))
        servers.wait_for(api, f"{prefect}/api/health")
        deploy(servers, checkout)
        servers.start("worker", "prefect", ["worker", "start", "--pool", POOL, "--type", "process"])
        if not remote:
            servers.wait_for(runs, f"{mlflow}/health")
        addresses = {"prefect": prefect, "mlflow": mlflow}
        typer.echo(json.dumps(addresses) if as_json else words(prefect, mlflow, port))
        servers.watch()


def find_checkout(start: Path) -> Path:
    """The nearest folder upwards with a `prefect.yaml`; raises UsageError where there is none."""
    from laptime.errors import UsageError

    for folder in (start, *start.parents):
        if (folder / "prefect.yaml").is_file():
            return folder
    raise UsageError(f"{start} is in no checkout with a prefect.yaml, so there is nothing to deploy: go to one.")


def deploy(servers: Stack, checkout: Path) -> None:
    """Makes the work pool and the deployments; both may be there already."""
    from laptime.errors import RunError

    try:
        servers.run("prefect", ["work-pool", "inspect", POOL], checkout)
    except RunError:
        servers.run("prefect", ["work-pool", "create", POOL, "--type", "process"], checkout)
    servers.run("prefect", ["--no-prompt", "deploy", "--all"], checkout)


def words(prefect: str, mlflow: str, port: int) -> str:
    """The addresses and the next command."""
    other = "" if port == _USUAL_PORT else f"  export PREFECT_API_URL={prefect}/api\n"
    return (
        f"\nPrefect: {prefect}\nMLflow:  {mlflow}\n\nIn a second terminal, in this checkout:\n\n{other}"
        f"  {command('prefect')} deployment run optimize/cifar --watch\n\nCtrl-C ends all of it."
    )
