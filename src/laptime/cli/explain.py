"""`laptime explain`: what a variant does, transform by transform, or as a plain PyTorch script."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from laptime.cli.options import JSON


def explain(
    variant: Annotated[str, typer.Argument(help="A variant's name, also with +optimization:option=value.")],
    code: Annotated[
        bool,
        typer.Option("--code", help="Print a plain PyTorch script without laptime, which trains the same."),
    ] = False,
    workload: Annotated[
        str,
        typer.Option(help="The script's workload: cifar, eurosat, detection or your own, path/to/train.py:NAME."),
    ] = "cifar",
    as_json: JSON = False,
) -> None:
    """Prints a variant's transforms in the order in which they are applied, with the reason of each stage."""
    if code:
        _print_code(variant, workload, as_json)
        return
    from laptime.catalogue import STAGES, class_of, classes_of, find_optimization, options_of
    from laptime.variants import resolve

    found = resolve(variant, workload=workload)
    reasons = dict(STAGES)
    rows: list[dict[str, Any]] = []
    for chosen in found.optimizations:
        entry = find_optimization(chosen.name)
        rows.append(
            {
                "stage": entry.stage,
                "optimization": chosen.name,
                "class": class_of(chosen),
                "options": options_of(chosen),
                "what": entry.explanation,
                "why_here": reasons[entry.stage],
            }
        )
    if as_json:
        body = {
            "variant": found.name,
            "device": found.device,
            "classes": classes_of(found.optimizations),
            "transforms": rows,
        }
        typer.echo(json.dumps(body, indent=1))
        return
    typer.echo(f"{found.name}, on {found.device}; classes: {', '.join(classes_of(found.optimizations)) or 'none'}")
    if not rows:
        typer.echo("The loop of the tutorials: single items, fp32, Adam, loss and hits read in each step.")
    for number, row in enumerate(rows, start=1):
        options = "".join(f", {k}={v}" for k, v in row["options"].items())
        typer.echo(f"{number:2}. [{row['stage']}] {row['optimization']} ({row['class']}{options}): {row['what']}")
    typer.echo("\nStages, in order:")
    for stage, reason in STAGES:
        typer.echo(f"  {stage:<10} {reason}")


def _print_code(name: str, workload: str, as_json: bool) -> None:
    """Prints a variant's script, without the rungs that are not for the workload, which it says."""
    from laptime.catalogue import WORKLOADS
    from laptime.catalogue.own import is_own
    from laptime.ladder.data import fetch_data
    from laptime.ladder.plan import rungs_refused
    from laptime.places import find_places
    from laptime.script import print_script, unprinted
    from laptime.variants import resolve

    whole = resolve(name, workload=workload)
    data = fetch_data(workload, "auto", find_places()) if is_own(workload) else None
    known = data is not None or workload in [entry.name for entry in WORKLOADS]
    without = rungs_refused(whole.device, workload, data) if known else ()
    # One of several rungs is left out where a script can't show it; asked for by itself it is refused.
    without += tuple(r for r in unprinted(data) if name != f"{whole.device}-{r}")
    found = resolve(name, without, workload)
    away = [o.name for o in whole.optimizations if o not in found.optimizations]
    if away:
        typer.echo(f"not for {workload}, and left out: {', '.join(away)}", err=True)
    text = print_script(found, workload, data)
    typer.echo(json.dumps({"variant": found.name, "workload": workload, "code": text}) if as_json else text, nl=as_json)
