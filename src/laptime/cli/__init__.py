"""The command line: thin, one file a command. Everything heavy is imported inside the commands."""

from __future__ import annotations

import signal
import sys
import threading
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
    tune,
    ui,
    up,
)
from laptime.cli.strict import Command
from laptime.cli.sweeping import sweep_first
from laptime.errors import LaptimeError, in_words
from laptime.places import require_working_folder

app = typer.Typer(
    name="laptime",
    help="Makes PyTorch training faster, proves it, and keeps it fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"laptime {version('laptime')}")
        raise typer.Exit


@app.callback()
def begin(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Makes PyTorch training faster, proves it, and keeps it fast."""
    context.obj = {"debug": debug}
    _end_as_by_ctrl_c()
    require_working_folder()
    sweep_first(context.invoked_subcommand)


def _end_as_by_ctrl_c() -> None:
    """Has SIGTERM and a terminal that is closed end a command as Ctrl-C does: children, files and runs are put away.

    What whoever started this has ignored stays ignored: that is what `nohup` is for.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


# The third is the command's line in `laptime --help`, which 80 columns hold whole; a docstring's first line is longer.
COMMANDS = (
    ("optimize", optimize.optimize, "Trains the ladder of variants, compares them, records the runs."),
    ("tune", tune.tune, "Searches for the fastest variant within a budget."),
    ("run", run.run, "Trains one variant, records it and says what to change next."),
    ("list", listing.show, "Lists workloads, optimizations and variants."),
    ("explain", explain.explain, "Says what a variant does, in order; --code: as a script."),
    ("compare", compare.compare, "Compares recorded runs: speed-ups with intervals, quality."),
    ("advise", advise.advise, "Says what to change, of a run or of anybody's trace."),
    ("predict", predict.predict, "Says what a trained model sees in images."),
    ("gate", gate.gate, "Does this branch train slower than where it left main?"),
    ("new", new.new, "Writes a training of your own, which runs as it is."),
    ("sync", sync.sync, "Sends what waits in journals to MLflow."),
    ("doctor", doctor.doctor, "Says what this machine can do, and measures its ceilings."),
    ("up", up.up, "Starts Prefect, a worker and MLflow here, until Ctrl-C."),
    ("ui", ui.ui, "Shows the recorded runs in MLflow's UI or in TensorBoard."),
    ("clean", clean.clean, "Tells what may be deleted, and deletes it with --yes."),
)
for _name, _command, _short in COMMANDS:
    app.command(_name, cls=Command, short_help=_short)(_command)
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
