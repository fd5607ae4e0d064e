"""`laptime sync`: sends what waits in journals to MLflow and ends the runs of dead processes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def sync(
    tracking_uri: Annotated[
        str | None, typer.Option(help="Sends everything here, whatever store it was meant for.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to standard output, for machines.")] = False,
) -> None:
    """Sends what waits in journals to MLflow and ends the runs of dead processes; exit 1 where some still wait."""
    from laptime.host.scratch import sweep_scratch
    from laptime.places import find_places
    from laptime.tracking.sync import sync as bring_up_to_date
    from laptime.tracking.uri import check_uri

    sweep_scratch()
    places = find_places()
    uri = check_uri(tracking_uri or places.mlflow_uri)
    result = bring_up_to_date(places, uri, lambda text: typer.echo(text, err=True), redirect=tracking_uri is not None)
    left = len(result.unsent) + len(result.damaged)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=1))
        raise typer.Exit(1 if left else 0)
    if result.sent:
        typer.echo(f"Sent {result.events} events of {len(result.sent)} journal{'s' * (len(result.sent) != 1)}.")
    elif not left:
        typer.echo("Nothing was waiting.")
    for path in result.busy:
        typer.echo(f"{path} is being written by a running process and was left alone.")
    if left:
        typer.echo("1 journal still waits." if left == 1 else f"{left} journals still wait.")
        raise typer.Exit(1)
