"""`laptime data`: the data stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.bars import bars_are_drawn
from laptime.cli.options import DATA, JSON, WORKLOAD
from laptime.cli.strict import Command
from laptime.places import find_places

if TYPE_CHECKING:
    from laptime.ladder.data import OnProgress
    from laptime.spec import DataSpec

app = typer.Typer(help="The data stores: fetch, verify, push.", no_args_is_help=True, rich_markup_mode=None)

_TO = Annotated[str, typer.Option("--to", help="The mirror to put the data on: s3://bucket/prefix.")]


@app.command(cls=Command, short_help="Brings a workload's data into the local store.")
def fetch(workload: WORKLOAD, data: DATA = "auto", as_json: JSON = False) -> None:
    """Brings a workload's data into the local store; what is there already is found in under a second."""
    from laptime.ladder.data import fetch_data
    from laptime.ladder.silence import Silence

    silence = Silence(lambda text: typer.echo(text, err=True))
    _show(lambda on_progress: fetch_data(workload, data, find_places(), on_progress, silence=silence), "ready", as_json)


@app.command(cls=Command, short_help="Checks every byte that is stored.")
def verify(workload: WORKLOAD, data: DATA = "auto", as_json: JSON = False) -> None:
    """Checks every byte of the stored data against its checksums."""
    from laptime.ladder.data import verify_data

    _show(lambda on_progress: verify_data(workload, data, find_places(), on_progress), "verified", as_json)


@app.command(cls=Command, short_help="Puts a workload's data on an S3 mirror.")
def push(workload: WORKLOAD, to: _TO, data: DATA = "auto", as_json: JSON = False) -> None:
    """Puts a workload's data on an S3 mirror, for other machines to fetch."""
    from laptime.ladder.data import push_data

    done = f"pushed to {to}"
    _show(lambda on_progress: push_data(workload, data, to, find_places(), on_progress), done, as_json)


def _show(work: Callable[[OnProgress], DataSpec], done: str, as_json: bool) -> None:
    with _bar() as on_progress:
        found = work(on_progress)
    for notice in found.notices:
        typer.echo(f"NOTICE: {notice}", err=True)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    typer.echo(f"{done}: {found.kind} data ({found.asked}), digest {found.digest[:12]}")
    typer.echo(f"  {found.train_count:,} training and {found.test_count:,} test images")
    typer.echo(f"  {len(found.classes)} classes: {_names(found.classes)}")
    typer.echo(f"  {found.path}")


def _names(classes: tuple[str, ...], limit: int = 20) -> str:
    more = f", … {len(classes) - limit} more" if len(classes) > limit else ""
    return ", ".join(classes[:limit]) + more


@contextmanager
def _bar() -> Iterator[OnProgress]:
    """A bar on stderr where one can be drawn, a few sentences elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from laptime.ladder.data import in_words

    if not bars_are_drawn():
        yield in_words(lambda text: typer.echo(text, err=True))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("looking", total=None)

        def on_progress(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total or None)

        yield on_progress
