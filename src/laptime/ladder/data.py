"""Data for a ladder, by a child process: decoding and torchvision stay out of whoever asks."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from laptime.catalogue.own import is_own, place_of
from laptime.errors import DataError, UsageError, answered, shorten
from laptime.host.processes import death, end_tree, undisturbed
from laptime.host.scratch import scratch
from laptime.host.starts import Started, start_piped
from laptime.ladder.silence import Listening, Silence
from laptime.own.user_code import crash_place
from laptime.places import Places
from laptime.records import write_json
from laptime.spec import DataSpec

# What is being done, how much of it is done, and of how much (0 where that is not known).
OnProgress = Callable[[str, int, int], None]

_GRACE_S = 10.0
# How often is looked whether a silent child has ended.
_LOOK_EVERY_S = 0.2


def fetch_data(
    workload: str,
    asked: str,
    places: Places,
    on_progress: OnProgress | None = None,
    halved_on: str = "",
    silence: Silence | None = None,
) -> DataSpec:
    """Makes a workload's data stand ready in the local store.

    Args:
        workload: name in the catalogue.
        asked: what `--data` takes; nothing but `auto` for a workload of the user's own.
        places: where the local store is.
        on_progress: told how far it is, in this thread.
        halved_on: where a look into a user's own workload is to try bf16, `cpu` or `cuda`; nowhere if a probe will.
        silence: what is done while a user's own file says nothing for long; None for nothing.

    Raises:
        UsageError: the workload or the kind of source does not exist, or the store may not be written to.
        UnreachableError: the source does not answer (another try may help).
        DataError: the data can't be used, or the disk is full.
    """
    places.require_writable()
    if is_own(workload):
        _check_own(workload, asked)
        return _looked({"workload": workload, "halved_on": halved_on}, places, on_progress, silence)
    return _ask({"do": "fetch", "workload": workload, "asked": asked}, places, on_progress)


def look_at_data(workload: str, asked: str, places: Places) -> tuple[int, int] | None:
    """Refuses a place of data that could not be fetched, as far as names on this machine tell; raises as a fetch.

    Returns:
        How many images there are to train and to test on; None where that is not known before they are fetched.
    """
    if is_own(workload):
        _check_own(workload, asked)
        return None
    if asked in ("auto", "synthetic"):
        return None
    counts = _answer({"do": "look", "workload": workload, "asked": asked}, places, None)
    return (counts[0], counts[1]) if counts else None


def _check_own(workload: str, asked: str) -> None:
    """A user's own workload brings its data itself."""
    place_of(workload)
    if asked != "auto":
        raise UsageError(
            f"--data {shorten(asked)!r} is not for {shorten(workload)}, which brings its own data: leave it out."
        )


def verify_data(workload: str, asked: str, places: Places, on_progress: OnProgress | None = None) -> DataSpec:
    """Checks every byte of what the local store holds; raises DataError naming what is wrong."""
    return _ask({"do": "verify", "workload": workload, "asked": asked}, places, on_progress)


def push_data(workload: str, asked: str, to: str, places: Places, on_progress: OnProgress | None = None) -> DataSpec:
    """Fetches data and puts it on an S3 mirror; raises what `fetch_data` does."""
    return _ask({"do": "push", "workload": workload, "asked": asked, "to": to}, places, on_progress)


def in_words(say: Callable[[str], None], every: float = 0.25) -> OnProgress:
    """Progress as sentences, for logs.

    Args:
        say: takes a sentence.
        every: share of the whole between two sentences.
    """
    said: dict[str, float] = {}

    def on_progress(what: str, done: int, total: int) -> None:
        share = done / total if total else 0.0
        if what in said and (share < said[what] + every or not total):
            return
        said[what] = share
        say(f"{what} data: {done:,} of {total:,}" if total else f"{what} data")

    return on_progress


def _ask(request: dict[str, str], places: Places, on_progress: OnProgress | None) -> DataSpec:
    return DataSpec.model_validate(_answer(request, places, on_progress))


def _looked(
    request: dict[str, str], places: Places, on_progress: OnProgress | None, silence: Silence | None
) -> DataSpec:
    """What a look into a user's own file found."""
    return DataSpec.model_validate(_answer(request, places, on_progress, silence or Silence(lambda _: None)))


def _answer(
    request: dict[str, str], places: Places, on_progress: OnProgress | None, silence: Silence | None = None
) -> Any:
    """What a child says of data; raises what it refused. With `silence` it looks into a user's own file."""
    module = "laptime.preflight.inspecting" if silence else "laptime.data"
    with scratch("data") as folder:
        asked, answer = folder / "request.json", folder / "result.json"
        write_json(asked, {**request, "home": str(places.home)})
        with (folder / "stderr.txt").open("w+b") as log:
            listening = Listening(silence, place_of(request["workload"])[0], log) if silence else None
            try:
                code = _run([module, str(asked), str(answer)], log, on_progress, listening)
            except KeyboardInterrupt as stop:
                for sentence in _kept(answer):
                    stop.add_note(sentence)
                raise
            if not answer.is_file():
                doing = f"looks into {shorten(place_of(request['workload'])[0].name)}" if silence else "brings the data"
                raise DataError(f"the process that {doing} {death(code)}{_said(log, request)}")
        fields = json.loads(answer.read_text(encoding="utf-8"))
    if "data" in fields:
        return fields["data"]
    raise answered(fields)


def _run(words: list[str], log: IO[bytes], on_progress: OnProgress | None, listening: Listening | None) -> int:
    child, output = start_piped(words, errors=log.fileno())
    try:
        for line in _lines(child, output, listening):
            _tell(line, on_progress)
        return child.wait()
    finally:
        if child.poll() is None:
            _end(child, listening is not None)


def _lines(child: Started, output: IO[bytes], listening: Listening | None) -> Iterator[bytes]:
    """What a child says until it ends; a process that a user's file has started may hold the pipe open for longer."""
    rest = b""
    with output as pipe, selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while True:
            ended = child.poll() is not None  # asked first, so that all it has said is read
            if ready.select(0 if ended else _LOOK_EVERY_S):
                said = os.read(pipe.fileno(), 1 << 16)
                *whole, rest = (rest + said).split(b"\n")
                yield from whole
                if not said:
                    return
                if listening is not None:
                    listening.heard()
            elif ended:
                return
            elif listening is not None:
                listening.look(child.pid)


def _end(child: Started, own: bool) -> None:
    if own:  # whatever a user's file has started ends with it
        with undisturbed():
            end_tree(child.pid)
            child.wait()
        return
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            # Asked first, so that it removes what is half done.
            os.kill(child.pid, number)
            child.wait(patience_s)
            return


def _tell(line: bytes, on_progress: OnProgress | None) -> None:
    if on_progress is None:
        return
    try:
        fields = json.loads(line)
        what, done, total = str(fields["what"]), int(fields["done"]), int(fields["total"])
    except (ValueError, KeyError, TypeError):
        # A library's own output; nothing to show.
        return
    on_progress(what, done, total)


def _kept(answer: Path) -> list[str]:
    """What an interrupted child said about what it keeps."""
    try:
        return [str(json.loads(answer.read_text(encoding="utf-8"))["kept"])]
    except (OSError, ValueError, KeyError):
        return []


def _said(log: IO[bytes], request: Mapping[str, str]) -> str:
    """Where the child stood when a signal ended it, else what it said last, as a sentence's end."""
    log.seek(0)
    text = log.read().decode(errors="replace").strip()
    own = request["workload"] if is_own(request["workload"]) else ""
    if place := crash_place(text, place_of(own)[0] if own else None):
        return f"{place}."
    return f": {shorten(text.splitlines()[-1], 300) if text else 'it said nothing'}."
