"""`laptime gate`: base against head; its exit codes are its own (docs/gate.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.options import LIMIT_TEST, LIMIT_TRAIN, SEED, TIMEOUT, TRACKING
from laptime.errors import UsageError, in_words, shorten

if TYPE_CHECKING:
    from laptime.gate.records import GateRecord
    from laptime.gate.request import GateRequest
    from laptime.ladder.afterwards import Proposed
    from laptime.places import Places
    from laptime.records import Finding

INTERRUPTED = 130

PATH = Path | None


def gate(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A workload, or any name with --command.")],
    variant: Annotated[str, typer.Option(help="What both sides train; default: <device>-optimized.")] = "",
    base: Annotated[str | None, typer.Option(help="The target; base is where head left it. Default: main.")] = None,
    base_dir: Annotated[str | None, typer.Option(help="Base's checkout, with --head-dir instead of --base.")] = None,
    head_dir: Annotated[str | None, typer.Option(help="Head's checkout.")] = None,
    command: Annotated[
        str | None, typer.Option(help="Trains either side and writes {record}; see docs/gate.md.")
    ] = None,
    command_base: Annotated[str | None, typer.Option(help="The same for base alone.")] = None,
    command_head: Annotated[str | None, typer.Option(help="The same for head alone.")] = None,
    max_slowdown: Annotated[str, typer.Option(help="The slowdown that must not pass.")] = "10%",
    budget: Annotated[str, typer.Option(help="Time for all pairs: 900s, 15m, 1h.")] = "15m",
    max_pairs: Annotated[int, typer.Option(help="Pairs at most.")] = 24,
    epochs: Annotated[int, typer.Option(help="Kept epochs of each process, after one that is not.")] = 3,
    limit_train: LIMIT_TRAIN = None,
    limit_test: LIMIT_TEST = None,
    data: Annotated[str, typer.Option(help="As in laptime run.")] = "auto",
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda: whose lock is held; none of them for a command that uses neither.")
    ] = "auto",
    seed: SEED = 0,
    timeout: TIMEOUT = 3600.0,
    link: Annotated[
        list[str] | None, typer.Option(help="A file or folder that git ignores, data say, seen from both commits.")
    ] = None,
    aa: Annotated[int, typer.Option(help="So many pairs of base against itself: measures the noise.")] = 0,
    advised: Annotated[
        str,
        typer.Option(help="The finding of its advice that the change follows: expected beside measured."),
    ] = "",
    replay: Annotated[PATH, typer.Option(help="Says the verdict of a written gate again; nothing runs.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Earlier gates, base's trend and its changes.")] = False,
    json: Annotated[PATH, typer.Option(help="Writes the gate with all pairs.")] = None,
    junit: Annotated[PATH, typer.Option(help="Writes JUnit XML.")] = None,
    markdown: Annotated[PATH, typer.Option(help="Writes Markdown.")] = None,
    tracking_uri: TRACKING = None,
    tracked: Annotated[bool, typer.Option("--track/--no-track", help="Sends the gate to MLflow.")] = True,
    github: Annotated[bool, typer.Option("--github", help="Step summary and annotation of a GitHub workflow.")] = False,
) -> None:
    """Is head slower than base? 0 no, 1 yes, 2 usage, 3 inconclusive, 4 invalid, 5 head crashes, 6 quality lost."""
    given = dict(locals())
    own = ("advised", "replay", "history", "json", "junit", "markdown", "tracking_uri", "tracked", "github")
    asked = {name: value for name, value in given.items() if name not in own}
    from laptime.gate.reports import check_places
    from laptime.gate.request import make_gate_request
    from laptime.gate.track import track
    from laptime.places import find_places
    from laptime.tracking.uri import check_uri

    places: dict[str, Path | None] = {"json": json, "junit": junit, "markdown": markdown}
    check_places(places)
    if advised and (replay or history):
        raise UsageError(f"--advised {shorten(advised)!r} is about a gate that runs: leave out --replay and --history.")
    if replay is not None:
        raise typer.Exit(_finish(_replayed(replay), places, github))
    where = find_places()
    # Before minutes are spent: a gate that waits for what is no store would wait for ever.
    uri = check_uri(tracking_uri or where.mlflow_uri) if tracked else None
    if history:
        from laptime.cli.gate_history import show

        raise typer.Exit(show(workload, where, uri, json))
    request = make_gate_request(**asked)
    before = _advised(request, advised, where) if advised else None
    code, record = _run(request, places, github, uri)
    finding = _brought(before, record) if before and record is not None else None
    if uri and record is not None:
        track(record, where, uri, _say, finding)
    raise typer.Exit(code)


def _advised(request: GateRequest, finding: str, places: Places) -> Proposed:
    """What is to be measured, known before minutes are spent; raises UsageError."""
    from laptime.catalogue.own import is_own
    from laptime.ladder.afterwards import advised_change

    if request.command_base or request.aa or not is_own(request.workload):
        raise UsageError(
            f"--advised {shorten(finding)!r} is about a change of a training in a file of yours that laptime has "
            "advised on: give that as FILE.py:NAME, without --command and --aa."
        )
    return advised_change(finding, request, places)


def _brought(before: Proposed, record: GateRecord) -> Finding | None:
    """Says what a change brought beside what was expected, and keeps it with the advice; None without a figure."""
    from laptime.gate.brought import in_words as brought_words
    from laptime.gate.brought import measured
    from laptime.ladder.afterwards import keep_measured

    found = measured(record)
    typer.echo(brought_words(before.finding, found, f"{record.variant} ({before.folder})"))
    return keep_measured(before, found) if found.gain is not None else None


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _run(
    request: GateRequest, places: dict[str, Path | None], github: bool, uri: str | None
) -> tuple[int, GateRecord | None]:
    from laptime.catalogue import find_workload
    from laptime.gate.history import nowhere
    from laptime.gate.reports import write_reports
    from laptime.gate.track import stored_gates
    from laptime.gate.whole import run_gate
    from laptime.places import find_places
    from laptime.variants import resolve

    if not request.command_base:
        find_workload(request.workload)
        resolve(request.variant, workload=request.workload)
    last: list[GateRecord] = []

    def save(record: GateRecord) -> None:
        last[:] = [record]
        write_reports(record, places)

    try:
        elsewhere = stored_gates(request.workload, uri, _say) if uri else nowhere
        record = run_gate(request, find_places(), _say, save, elsewhere)
    except KeyboardInterrupt:
        typer.echo("laptime: interrupted; what was measured stands in the reports that were asked for.", err=True)
        if last:
            _finish(last[0], places, github)
        return INTERRUPTED, last[0] if last else None
    return _finish(record, places, github), record


def _finish(record: GateRecord, places: dict[str, Path | None], github: bool) -> int:
    """Writes and prints a concluded gate; returns its exit code."""
    from laptime.gate.reports import to_annotation, to_markdown, write_reports
    from laptime.gate.words import TITLES, conditions

    outcome = record.outcome
    assert outcome is not None
    write_reports(record, places)
    typer.echo(f"{TITLES[outcome.kind]}: {outcome.sentence}\n{conditions(record)}")
    for text in (record.advisory, *outcome.not_shown):
        if text:
            typer.echo(text)
    if record.mode == "aa" and outcome.exit_code == 0:
        typer.echo(_noise_words(record))
    if record.trouble is not None and record.trouble.log:
        typer.echo(f"\nThe last lines of the log:\n{record.trouble.log}", err=True)
    if github:
        typer.echo(to_annotation(record))
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        try:
            if summary:
                with Path(summary).open("a", encoding="utf-8") as file:
                    file.write(to_markdown(record))
        except OSError as error:  # the verdict stays what it is
            _say(f"The step summary was not written: {in_words(error)}")
    return outcome.exit_code


def _replayed(path: Path) -> GateRecord:
    from laptime.gate.conclude import conclude
    from laptime.gate.records import read_gate

    if not path.is_file():
        raise UsageError(f"--replay {shorten(str(path))!r} is no file: give one that laptime gate --json has written.")
    record = read_gate(path)
    return record.model_copy(update={"outcome": conclude(record)})


def _noise_words(record: GateRecord) -> str:
    """What pairs without a change say about this machine."""
    from laptime.gate.decision import spread_of
    from laptime.gate.history import resampled
    from laptime.gate.noise import known_noise, pairs_needed

    d, policy = record.log_ratios, record.policy.policy()
    if len(d) < 4:
        return "Four pairs are the fewest that say anything about the noise."
    noise = known_noise(d)
    sd = noise or spread_of(d, None).variance ** 0.5
    found = resampled(d, noise, policy)
    low, high = pairs_needed(sd, policy)
    return (
        f"Noise of a pair: {sd * 100:.1f} % ({len(d)} pairs); a gate takes about {low} to {high} pairs here. Of 10,000 "
        f"gates drawn from these pairs {found['regressed'] / 100:.2f} % were regressed and "
        f"{found['inconclusive'] / 100:.1f} % inconclusive."
    )
