"""`laptime explain`: what a variant does, transform by transform, or as a plain PyTorch script; or an optimization."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from laptime.cli.options import JSON
from laptime.errors import UsageError


def explain(
    variant: Annotated[
        str,
        typer.Argument(metavar="VARIANT", help="A variant, also with +optimization:option=value, or an optimization."),
    ],
    code: Annotated[
        bool,
        typer.Option("--code", help="Print a plain PyTorch script without laptime, which trains the same."),
    ] = False,
    workload: Annotated[
        str,
        typer.Option(help="What it trains: cifar, eurosat, detection or your own, path/to/train.py:NAME."),
    ] = "cifar",
    data: Annotated[
        str | None,
        typer.Option(help="What the script will train on, as of optimize: batch and loader are fitted to it."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Prints a variant's transforms in the order in which they are applied, with the reason of each stage."""
    if code:
        _print_code(variant, workload, data, as_json)
        return
    if data is not None:
        raise UsageError("--data is for the script alone: give --code, too.")
    from laptime.catalogue import OPTIMIZATIONS, find_workload
    from laptime.variants import all_names

    find_workload(workload)  # a misspelt one is refused, not passed over
    if variant not in all_names() and any(variant == entry.name for entry in OPTIMIZATIONS):
        _print_optimization(variant, as_json)
    else:
        _print_variant(variant, workload, as_json)


def _print_variant(variant: str, workload: str, as_json: bool) -> None:
    """Prints what a variant does, in order, without the rungs that are not for the workload, which it says."""
    from laptime.catalogue import STAGES, class_of, classes_of, find_optimization, options_of
    from laptime.ladder.plan import reasons_against, rungs_refused
    from laptime.variants import resolve

    whole, against = resolve(variant, workload=workload), reasons_against(workload, None)
    found = resolve(variant, rungs_refused(whole.device, workload, None), workload)
    gone = [o.name for o in whole.optimizations if o not in found.optimizations]
    away = {name: against[name] for name in gone if name in against}
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
            "left_out": away,
        }
        typer.echo(json.dumps(body, indent=1))
        return
    typer.echo(f"{found.name}, on {found.device}; classes: {', '.join(classes_of(found.optimizations)) or 'none'}")
    if not rows:
        typer.echo("The loop of the tutorials: single items, fp32, Adam, loss and hits read in each step.")
    for number, row in enumerate(rows, start=1):
        options = "".join(f", {k}={v}" for k, v in row["options"].items())
        typer.echo(f"{number:2}. [{row['stage']}] {row['optimization']} ({row['class']}{options}): {row['what']}")
    for name, reason in away.items():
        typer.echo(f"Not for {workload}, and left out: {name}, since {reason}.")
    typer.echo("\nStages, in order:")
    for stage, reason in STAGES:
        typer.echo(f"  {stage:<10} {reason}")


def _print_optimization(name: str, as_json: bool) -> None:
    """Prints what one optimization does, its options, and the variants that try it."""
    from laptime.catalogue import STAGES, find_optimization
    from laptime.variants import all_names

    entry = find_optimization(name)
    body: dict[str, Any] = {
        "optimization": name,
        "class": entry.klass,
        "stage": entry.stage,
        "why_here": dict(STAGES)[entry.stage],
        "devices": list(entry.devices),
        "what": entry.explanation,
        "options": [{"name": o.name, "default": o.default, "what": o.help} for o in entry.options],
        "variants": [n for n in all_names() if n in (f"cpu-{name}", f"cuda-{name}")],
    }
    if as_json:
        typer.echo(json.dumps(body, indent=1))
        return
    shifts = "".join(f", {shift.klass} with {shift.option}={shift.value}" for shift in entry.shifts)
    typer.echo(f"{name} ({entry.klass}{shifts}; on {', '.join(entry.devices)}): {entry.explanation}")
    typer.echo(f"Stage {entry.stage}: {body['why_here']}.")
    for option in entry.options:
        typer.echo(f"  {option.name}={option.default}  {option.help}")
    rungs = f"{', '.join(body['variants'])} in a ladder; " if body["variants"] else ""
    devices = " or ".join(f"{device}-baseline+{name}" for device in entry.devices)
    typer.echo(f"Variants: {rungs}alone as {devices}.")


def _print_code(name: str, workload: str, asked: str | None, as_json: bool) -> None:
    """Prints a variant's script, without the rungs that are not for the workload, which it says."""
    from laptime.catalogue import DEVICES, WORKLOADS
    from laptime.catalogue.own import is_own
    from laptime.devices import EMULATED, hopeless_here
    from laptime.ladder.data import fetch_data
    from laptime.ladder.fitting import fit_here
    from laptime.ladder.plan import rungs_refused
    from laptime.ladder.silence import Silence
    from laptime.places import find_places
    from laptime.script import print_script, require_printable, unprinted
    from laptime.variants import resolve

    whole = resolve(name, workload=workload)
    own, known = is_own(workload), workload in [entry.name for entry in WORKLOADS]
    silence = Silence(lambda text: typer.echo(text, err=True))
    needed = own or (known and asked)
    data = fetch_data(workload, asked or "auto", find_places(), silence=silence) if needed else None
    without = rungs_refused(whole.device, workload, data) if own or known else ()
    # One of several rungs is left out where a script can't show it; asked for by itself it is refused.
    without += tuple(r for r in unprinted(data) if name != f"{whole.device}-{r}")
    hopeless = hopeless_here(name, [o.name for o in whole.optimizations], DEVICES[whole.device])
    found = resolve(name, (*without, *hopeless), workload)
    away = [o.name for o in whole.optimizations if o not in found.optimizations and o.name not in hopeless]
    if away:
        typer.echo(f"not for {workload}, and left out: {', '.join(away)}", err=True)
    if hopeless:
        typer.echo(f"left out: {', '.join(hopeless)}, since {EMULATED}", err=True)
    require_printable(found, workload, data if own else None)  # before the seconds that a fit takes
    fit = fit_here(found, workload, data) if known else None
    text = print_script(found, workload, data if own else None, fit)
    typer.echo(json.dumps({"variant": found.name, "workload": workload, "code": text}) if as_json else text, nl=as_json)
