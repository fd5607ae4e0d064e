"""The command line: thin, one file a command. Everything heavy is imported inside the commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from laptime.cli import (
    advise,
    clean,
    compare,
    data,
    doctor,
    explain,
    gate,
    listing,
    new,
    optimize,
    predict,
    run,
    sync,
    ui,
    up,
)
from laptime.cli.sweeping import sweep_first
from laptime.errors import LaptimeError, in_words

app = typer.Typer(
    name="laptime",
    help="Makes PyTorch training faster, proves it, and keeps it fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Makes PyTorch training faster, proves it, and keeps it fast."""
    context.obj = {"debug": debug}
    sweep_first(context.invoked_subcommand)


COMMANDS = (
    ("optimize", optimize.optimize),
    ("run", run.run),
    ("list", listing.show),
    ("explain", explain.explain),
    ("compare", compare.compare),
    ("advise", advise.advise),
    ("predict", predict.predict),
    ("gate", gate.gate),
    ("new", new.new),
    ("sync", sync.sync),
    ("doctor", doctor.doctor),
    ("up", up.up),
    ("ui", ui.ui),
    ("clean", clean.clean),
)
for _name, _command in COMMANDS:
    app.command(_name)(_command)
app.add_typer(data.app, name="data")


def main() -> None:
    """The console script: an error that a user can cause is one sentence and an exit code."""
    try:
        app()
    except LaptimeError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"laptime: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"laptime: {in_words(error)}", err=True)
        sys.exit(1)
