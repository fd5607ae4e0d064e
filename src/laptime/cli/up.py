"""`laptime up`: the whole stack on this machine, on loopback and the embedded stores."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laptime.cli.options import JSON
from laptime.cli.words import command

if TYPE_CHECKING:
    from laptime.cli.servers import Stack

POOLS = ("process", "docker")
POOL = "laptime"
_USUAL_PORT = 4200


def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect.")] = _USUAL_PORT,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of MLflow.")] = 5000,
    pool: Annotated[str, typer.Option(help="What flow runs run in: process or docker.")] = "process",
    image: Annotated[str, typer.Option(help="The containers' image (--pool docker).")] = "laptime-trainer:dev",
    gpus: Annotated[bool, typer.Option("--gpus", help="Gives containers all GPUs (--pool docker).")] = False,
    as_json: JSON = False,
) -> None:
    """Starts Prefect with a worker and the deployments, and MLflow; Ctrl-C ends all of it."""
    from laptime.cli.containers import ending_containers
    from laptime.cli.servers import HOST, environment, mlflow_arguments, only_one, require_free, stack
    from laptime.places import find_places
    from laptime.tracking.uri import check_uri, is_http, masked

    checkout = find_checkout(Path.cwd())
    places = find_places()
    docker = check_docker(image, gpus) if check_pool(pool, gpus) == "docker" else None
    remote = is_http(check_uri(places.mlflow_uri))
    require_free(port, "--port")
    if not remote:
        require_free(mlflow_port, "--mlflow-port")
    prefect = f"http://{HOST}:{port}"
    mlflow = masked(places.mlflow_uri) if remote else f"http://{HOST}:{mlflow_port}"
    variables = environment(places, PREFECT_API_URL=f"{prefect}/api", LAPTIME_MLFLOW_UI=mlflow)
    places.prefect.mkdir(parents=True, exist_ok=True)
    with only_one(places), stack(places, variables) as servers, ExitStack() as containers:
        typer.echo("Starting Prefect and MLflow (half a minute) …", err=True)
        api = servers.start("prefect", "prefect", ["server", "start", "--host", HOST, "--port", str(port)])
        if not remote:
            runs = servers.start("mlflow", "mlflow", mlflow_arguments(places, mlflow_port))
        servers.wait_for(api, f"{prefect}/api/health")
        if docker is None:
            worker = deploy(servers, checkout)
        else:
            containers.callback(docker[0].close)
            # The servers still stand when the flow runs are cancelled, so that these can say so.
            containers.enter_context(ending_containers(docker[0], places.home, partial(cancel, servers, checkout)))
            worker = deploy_docker(servers, checkout, docker[1], gpus)
        servers.start("worker", "prefect", ["worker", "start", "--pool", worker, "--type", pool])
        if not remote:
            servers.wait_for(runs, f"{mlflow}/health")
        addresses = {"prefect": prefect, "mlflow": mlflow}
        typer.echo(json.dumps(addresses) if as_json else words(prefect, mlflow, port, pool))
        servers.watch()


def find_checkout(start: Path) -> Path:
    """The nearest folder upwards with a `prefect.yaml`; raises UsageError where there is none."""
    from laptime.errors import UsageError

    for folder in (start, *start.parents):
        if (folder / "prefect.yaml").is_file():
            return folder
    raise UsageError(f"{start} is in no checkout with a prefect.yaml, so there is nothing to deploy: go to one.")


def check_pool(pool: str, gpus: bool) -> str:
    """The pool; raises UsageError for one that is not there, and for GPUs given to processes, which see all anyway."""
    from laptime.errors import UsageError, unknown

    if pool not in POOLS:
        raise unknown("pool", pool, POOLS)
    if gpus and pool != "docker":
        raise UsageError("--gpus is for --pool docker: processes see all GPUs of the machine as it is.")
    return pool


def check_docker(image: str, gpus: bool) -> tuple[Any, tuple[str, str]]:
    """A client of Docker and the image's id and digest, when all is there that flow runs need; else raises."""
    from laptime.cli.containers import check_gpus, connect, find_image
    from laptime.errors import LaptimeError

    client = connect()
    try:
        found = find_image(client, image)
        if gpus:
            check_gpus(client)
    except LaptimeError:
        client.close()
        raise
    return client, found


def deploy(servers: Stack, checkout: Path) -> str:
    """Makes the work pool of processes and the deployments; both may be there already. Returns the pool's name."""
    from laptime.errors import RunError

    try:
        servers.run("prefect", ["work-pool", "inspect", POOL], checkout)
    except RunError:
        servers.run("prefect", ["work-pool", "create", POOL, "--type", "process"], checkout)
    servers.run("prefect", ["--no-prompt", "deploy", "--all"], checkout)
    return POOL


def deploy_docker(servers: Stack, checkout: Path, image: tuple[str, str], gpus: bool) -> str:
    """Makes the work pool of containers anew, for this image, and its deployments. Returns the pool's name."""
    from laptime.cli.containers import POOL, PREFECT_FILE, store_variables, write_template
    from laptime.tracking.uri import is_http

    shown, uri = servers.environment["LAPTIME_MLFLOW_UI"], servers.places.mlflow_uri
    addresses = {"MLFLOW_TRACKING_URI": uri if is_http(uri) else shown, "LAPTIME_MLFLOW_UI": shown}
    env = store_variables(servers.environment) | addresses
    template = write_template(checkout, servers.places, image, env, gpus)
    arguments = ["--type", "docker", "--base-job-template", str(template), "--overwrite"]
    servers.run("prefect", ["work-pool", "create", POOL, *arguments], checkout)
    servers.run("prefect", ["--no-prompt", "deploy", "--all", "--prefect-file", PREFECT_FILE], checkout)
    return POOL


def cancel(servers: Stack, checkout: Path, flow_run: str) -> None:
    """Cancels a flow run; raises RunError where there is none of this id that can be cancelled."""
    servers.run("prefect", ["flow-run", "cancel", flow_run], checkout)


def words(prefect: str, mlflow: str, port: int, pool: str) -> str:
    """The addresses and the next command."""
    deployment = "optimize/cifar" if pool == "process" else f"optimize/cifar-{pool}"
    from laptime.cli.servers import mlflow_page

    other = "" if port == _USUAL_PORT else f"  export PREFECT_API_URL={prefect}/api\n"
    return (
        f"\nPrefect: {prefect}\nMLflow:  {mlflow_page(mlflow)}\n\nIn a second terminal, in this checkout:\n\n{other}"
        f"  {command('prefect')} deployment run {deployment} --watch\n\nCtrl-C ends all of it."
    )
