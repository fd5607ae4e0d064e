"""`laptime ui`: the MLflow UI, or TensorBoard, on the embedded stores."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from laptime.cli.options import JSON


def ui(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; default: 5000, of TensorBoard 6006.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="TensorBoard over the runs of this machine.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Shows the recorded runs in MLflow's UI or in TensorBoard, on this machine only, until Ctrl-C."""
    from laptime.cli.servers import HOST, environment, mlflow_arguments, mlflow_page, require_free, stack
    from laptime.errors import UsageError
    from laptime.places import find_places
    from laptime.tracking.uri import check_uri, is_http, masked

    places = find_places()
    if is_http(check_uri(places.mlflow_uri)) and not tensorboard:
        raise UsageError(f"MLFLOW_TRACKING_URI names a server: open {masked(places.mlflow_uri)} in a browser.")
    number = port or (6006 if tensorboard else 5000)
    require_free(number, "--port")
    places.runs.mkdir(parents=True, exist_ok=True)
    address = f"http://{HOST}:{number}"
    with stack(places, environment(places)) as servers:
        if tensorboard:
            arguments = ["--logdir", str(places.runs), "--host", HOST, "--port", str(number)]
            server = servers.start("tensorboard", "tensorboard.main", arguments)
        else:
            server = servers.start("mlflow", "mlflow", mlflow_arguments(places, number))
        servers.wait_for(server, address if tensorboard else f"{address}/health")
        name, page = ("TensorBoard", address) if tensorboard else ("MLflow", mlflow_page(address))
        typer.echo(json.dumps({name.lower(): address}) if as_json else f"{name}: {page}   (Ctrl-C ends it)")
        servers.watch()
